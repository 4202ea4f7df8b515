"""What becomes of a group's records: the difference of two multisets, however it is found.

What stays of a group's state is not written again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from cbp.engine.kernel.group_batch import Source
from cbp.engine.kernel.state_diff import settle
from cbp.model.dataflow.equality import identity

NAN = float("nan")

values = st.sampled_from([None, 0, 1, -0.0, 0.0, NAN, float("nan")])
rows = st.tuples(values, st.lists(st.one_of(values, st.lists(values, max_size=1)), max_size=2))
groups = st.lists(st.tuples(st.lists(rows, max_size=5), st.lists(rows, max_size=5)), max_size=3)


@given(groups=groups)
@example(groups=[([(0, []), (1, [])], [(0, []), (2, []), (1, [])])])
@example(groups=[([(0, []), (0, [])], [(0, [])])])
@example(groups=[([(0, []), (1, [])], [(1, []), (0, [])])])
@example(groups=[([(0, [])], []), ([(1, [])], [(1, [])]), ([], [(2, [])])])
@example(groups=[([(0, [])], []), ([(1, [])], [(2, [])]), ([], [])])
@example(groups=[([], [(0, [])]), ([(1, [])], []), ([(2, [])], [(2, [])])])
def test_records_die_and_are_born_as_multisets_differ(
    groups: list[tuple[list[Any], list[Any]]],
) -> None:
    """A record is there afterwards as often as it was emitted; NaN is NaN, and -0.0 is 0.0.

    None dies only to be written again, but perhaps one with a NaN: it may be rewritten.
    """
    sizes = [len(olds) for olds, _ in groups]
    ends = np.cumsum(sizes, dtype=np.int64)
    source = Source(
        "state", [row for olds, _ in groups for row in olds], ends - np.array(sizes, np.int64), ends
    )
    emitted = [row for _, news in groups for row in news]
    settled = settle(source, emitted, np.cumsum([len(news) for _, news in groups]).tolist())
    assert len(set(settled.died.tolist())) == len(settled.died)
    assert sorted(settled.groups.tolist()) == settled.groups.tolist()
    for at, (olds, news) in enumerate(groups):
        first = int(ends[at]) - len(olds)
        died = [olds[d - first] for d in settled.died.tolist() if first <= d < ends[at]]
        born = [b for g, b in zip(settled.groups.tolist(), settled.born, strict=True) if g == at]
        before, after = (Counter(map(identity, side)) for side in (olds, news))
        gone, new = (Counter(map(identity, side)) for side in (died, born))
        assert (gone - new, new - gone) == (before - after, after - before)
        assert not any(old == row for old in died for row in born)


def test_records_that_stay_are_not_written() -> None:
    """One that is new, gone or changed among many costs no other record anything.

    What is emitted are other objects than what was read, as after a function that made them
    anew: records are compared by their values.
    """
    olds: list[Any] = [(at, [at]) for at in range(6)]
    again: list[Any] = [(at, [at]) for at in range(6)]
    for news, died in (
        (again, []),
        ([*again[:3], (9, []), *again[3:]], []),
        ([*again[:3], *again[4:]], [3]),
        ([*again[:3], (3, []), *again[4:]], [3]),
        (again[::-1], []),
        ([*again[::-1], (9, [])], []),
        ([(9, []), *again[4::-1]], [5]),
    ):
        source = Source("state", olds, np.array([0]), np.array([6]))
        settled = settle(source, news, [len(news)])
        assert settled.died.tolist() == died
        assert settled.born == [row for row in news if row not in olds]


def test_a_record_with_nan_that_is_emitted_again_stays() -> None:
    """NaN is unlike itself for Python, and the same value here; a change beside it is a change."""
    olds: list[Any] = [(0, []), (NAN, [1])]
    for last, died in (((float("nan"), [1]), []), ((1.5, [1]), [1]), ((NAN, [2]), [1])):
        source = Source("state", olds, np.array([0]), np.array([2]))
        assert settle(source, [(0, []), last], [2]).died.tolist() == died
