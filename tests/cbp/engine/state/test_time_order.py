"""The earliest timers of a file, and the next one behind them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.state.lookup import TimeOrder

TIMES = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(
    times=TIMES,
    ahead=st.integers(0, 5),
    asked=st.lists(st.integers(-1, 7), max_size=5),
    gone=st.frozensets(st.integers(0, 39)),
)
def test_what_is_due_and_what_comes_next_is_that_of_the_whole_file(
    times: list[int], ahead: int, asked: list[int], gone: frozenset[int]
) -> None:
    """In any order of questions, with equal times and deleted rows: none is missed or early."""
    order = TimeOrder(np.array(times, np.int64), ahead=ahead)
    for until in asked:
        due = order.until(until)
        assert sorted(due.tolist()) == [row for row, at in enumerate(times) if at <= until]
        assert np.all(np.diff(np.array(times)[due]) >= 0)
        following = [
            (int(at), row)
            for rows, ats in order.after(until)
            for row, at in zip(rows.tolist(), ats, strict=True)
        ]
        assert all(times[row] == at > until for at, row in following)
        assert {row for _, row in following} == {r for r, at in enumerate(times) if at > until}
        alive = [at for at, row in following if row not in gone]
        left = [at for row, at in enumerate(times) if at > until and row not in gone]
        assert alive[:1] == sorted(left)[:1]


def test_a_file_is_looked_through_once_for_many_runs() -> None:
    """Runs to come find their timers among those that were sorted ahead."""
    times = np.random.default_rng(0).permutation(1_000)
    order = TimeOrder(times, ahead=100)
    order.until(10)
    times[:] = -1  # nothing of the file is read again
    assert len(order.until(90)) == 91
    assert next(order.after(90))[1][0] == 91
