"""Windows, sessions and first records within a time, against brute force; and any split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cbp.errors import DefinitionError
from cbp.sdk.translate import Declared
from cbp.testing import check_split, run_epochs
from stages.translators.first_within import FirstWithin
from stages.translators.first_within_arrow import FirstWithinArrow
from stages.translators.sessions import Sessions
from stages.translators.sessions_arrow import SessionsArrow
from stages.translators.windows import Windows
from stages.translators.windows_arrow import WindowsArrow

EXAMPLES = 20
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
VISITS = "who STRING, at TIMESTAMP, cents BIGINT"
Row = tuple[Any, ...]
_VISIT = st.tuples(
    st.sampled_from(["a", "a", None]),
    st.one_of(st.none(), st.integers(0, 20).map(lambda n: BEGIN + timedelta(seconds=n))),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.booleans(),
)
DAYS = st.lists(st.lists(_VISIT, min_size=2, max_size=7), min_size=2, max_size=4)
"""Records, each with whether it stays."""


def visit(second: int, cents: int | None = 1, *, stays: bool = True) -> Row:
    return "a", BEGIN + timedelta(seconds=second), cents, stays


def view_of(stage: Declared, days: Sequence[Sequence[Row]], name: str) -> set[Row]:
    """Return a view after all records came and some went, if it does not depend on the split."""
    came = [[(*row[:-1], 1) for row in day] for day in days]
    gone = [[(*row[:-1], -1) for row in day if not row[-1]] for day in days]
    return {tuple(row) for row in check_split(stage, [*came, *gone]).view(name)}


def left(days: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the records that stay."""
    return [row[:-1] for day in days for row in day if row[-1]]


def seconds(at: datetime) -> int:
    return (at - BEGIN) // timedelta(seconds=1)


AT_A_STEP = [[visit(10, None), visit(12, 2, stays=False)], [visit(17, 0)]]


@settings(max_examples=EXAMPLES)
@example(days=AT_A_STEP, every=5, form=Windows)
@example(days=AT_A_STEP, every=5, form=WindowsArrow)
@given(
    days=DAYS, every=st.sampled_from([0, 5, 2, 3]), form=st.sampled_from([Windows, WindowsArrow])
)
def test_a_window_counts_the_records_of_its_time(
    days: list[list[Row]], every: int, form: type[Windows]
) -> None:
    """Tumbling and sliding, also where steps do not divide the length; late and gone records."""
    begins = range(-10 - BEGIN_SECONDS % (every or 10), 40)
    step = every or 10
    expected = set()
    for begin in begins:
        if (BEGIN_SECONDS + begin) % step:
            continue
        for who in ("a", None):
            inside = [
                row
                for row in left(days)
                if row[0] == who and row[1] and begin <= seconds(row[1]) < begin + 10
            ]
            at = BEGIN + timedelta(seconds=begin)
            total = sum(row[2] or 0 for row in inside)
            if inside:
                expected.add((who, at, at + timedelta(seconds=10), len(inside), total))
    stage = form(VISITS, "who", at="at", seconds=10, every=every, add="cents")
    assert view_of(stage, days, "windows") == expected


BEGIN_SECONDS = int(BEGIN.timestamp())


@settings(max_examples=EXAMPLES)
@given(days=DAYS, form=st.sampled_from([Windows, WindowsArrow]))
def test_windows_of_all_records_need_no_columns(days: list[list[Row]], form: type[Windows]) -> None:
    """Without a column to group by, a window has the records of all."""
    counts = Counter(seconds(row[1]) // 10 for row in left(days) if row[1])
    stage = form(VISITS, "", at="at", seconds=10)
    view = view_of(stage, days, "windows")
    assert {seconds(begin) // 10: n for begin, _, n in view} == counts


@pytest.mark.parametrize("form", [Windows, WindowsArrow])
def test_windows_before_1970_begin_at_multiples_too(form: type[Windows]) -> None:
    """Not one window later, as a quotient that is cut off would have it."""
    at = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(seconds=7)
    stage = form(VISITS, "who", at="at", seconds=10)
    (window,) = run_epochs(stage, [[("a", at, 1, 1)]]).view("windows")
    assert (window.begin, window.records) == (at - timedelta(seconds=3), 1)


EXACTLY_THREE_APART = [[visit(0), visit(2)], [visit(4), visit(4), visit(7)], [visit(9)]]


@settings(max_examples=EXAMPLES)
@example(days=EXACTLY_THREE_APART, gap=3, form=Sessions)
@example(days=EXACTLY_THREE_APART, gap=3, form=SessionsArrow)
@given(days=DAYS, gap=st.integers(1, 6), form=st.sampled_from([Sessions, SessionsArrow]))
def test_a_session_ends_where_the_gap_is(
    days: list[list[Row]], gap: int, form: type[Sessions]
) -> None:
    """Late records join sessions, gone ones part them; a gap parts from exactly its length on."""
    expected = set()
    for who in ("a", None):
        rows = sorted(row[1] for row in left(days) if row[0] == who and row[1])
        ends = [
            n
            for n, at in enumerate(rows)
            if n + 1 == len(rows) or rows[n + 1] - at >= timedelta(seconds=gap)
        ]
        first = 0
        for end in ends:
            expected.add((who, rows[first], rows[end], end + 1 - first))
            first = end + 1
    stage = form(VISITS, "who", at="at", gap_seconds=gap)
    assert view_of(stage, days, "sessions") == expected


TOO_SOON = [[visit(0), visit(2)], [visit(3), visit(6)]]


@settings(max_examples=EXAMPLES)
@example(days=TOO_SOON, patience=3, form=FirstWithin)
@example(days=TOO_SOON, patience=3, form=FirstWithinArrow)
@given(
    days=DAYS,
    patience=st.integers(1, 6),
    form=st.sampled_from([FirstWithin, FirstWithinArrow]),
)
def test_what_follows_too_soon_does_not_count(
    days: list[list[Row]], patience: int, form: type[FirstWithin]
) -> None:
    """From a record that counts the next one is looked for, among those that stay."""
    expected = set()
    for who in ("a", None):
        rows = [row for row in left(days) if row[0] == who and row[1]]
        while rows:
            first = min(rows, key=lambda row: (row[1], row[2] is not None, row[2] or 0))
            expected.add(first)
            rows = [row for row in rows if row[1] - first[1] >= timedelta(seconds=patience)]
    stage = form(VISITS, "who", at="at", seconds=patience)
    assert view_of(stage, days, "firsts") == expected


@pytest.mark.parametrize("form", [FirstWithin, FirstWithinArrow])
def test_a_long_chain_and_a_long_time(form: type[FirstWithin]) -> None:
    """Every record of many counts; and with more time than there is, only the first."""
    times = [BEGIN + timedelta(seconds=n) for n in range(500)]
    came = [[("a", at, 0, 1) for at in times]]
    assert len(run_epochs(form(VISITS, "who", at="at", seconds=1), came).view("firsts")) == 500
    assert len(run_epochs(form(VISITS, "who", at="at", seconds=8e13), came).view("firsts")) == 1


@pytest.mark.parametrize("form", [FirstWithin, FirstWithinArrow])
def test_among_equal_times_nan_is_the_last(form: type[FirstWithin]) -> None:
    """The order of all columns is total: nulls first, ascending, NaN last."""
    stage = form("who STRING, at TIMESTAMP, part DOUBLE", "who", at="at", seconds=1)
    parts = (2.0, float("nan"), 1.0, 3.0)
    epochs = [[("a", BEGIN, part, 1)] for part in parts]
    assert [row.part for row in check_split(stage, epochs).view("firsts")] == [1.0]
    assert [row.part for row in check_split(stage, epochs[::-1]).view("firsts")] == [1.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Windows(VISITS, "who", at="at", seconds=0),
        lambda: Windows(VISITS, "who", at="at", seconds=5, every=6),
        lambda: Windows(VISITS, "who", at="at", seconds=5, add="who"),
        lambda: WindowsArrow("at TIMESTAMP, n DECIMAL(4,2)", "", at="at", seconds=5, add="n"),
        lambda: FirstWithin(VISITS, "who", at="at", seconds=0),
        lambda: FirstWithinArrow(VISITS, "who", at="at", seconds=0),
    ],
)
def test_a_wrong_parameter_is_refused(make: Any) -> None:
    """A length of nothing, gaps between windows, a total of texts."""
    with pytest.raises(DefinitionError) as error:
        make()
    assert error.value.mistake.code == "parameter_invalid"
