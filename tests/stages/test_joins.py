"""Joins of views against brute force, while records come, change and go; and any split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.sdk.translate import Declared
from cbp.testing import check_split, run_dataflow, run_epochs
from stages.translators.as_of_join import AsOfJoin
from stages.translators.as_of_join_arrow import AsOfJoinArrow
from stages.translators.distinct import Distinct
from stages.translators.distinct_arrow import DistinctArrow
from stages.translators.join import How, Join
from stages.translators.join_arrow import JoinArrow
from stages.translators.latest import Latest

ORDERS = "id INT, shop STRING, total DOUBLE"
SHOPS = "shop STRING, number INT, name STRING"
EXAMPLES, SPLITS = 40, 8
FORMS, AS_OF_FORMS = (
    st.sampled_from(forms) for forms in ([Join, JoinArrow], [AsOfJoin, AsOfJoinArrow])
)
KINDS: list[How] = ["inner", "left", "semi", "anti"]
Row = tuple[Any, ...]
Days = Sequence[tuple[Sequence[Row], Sequence[Row]]]
_SHOP = st.sampled_from(["a", "a", "b", None])
_ORDER = st.tuples(
    st.integers(0, 3),
    _SHOP,
    st.one_of(st.sampled_from([None, 1.0, 2.0]), st.builds(float, st.just("nan"))),
    st.booleans(),
)
_DETAIL = st.tuples(
    _SHOP, st.sampled_from([None, 1, 2]), st.sampled_from(["x", "y", None]), st.booleans()
)
DAYS = st.lists(
    st.tuples(st.lists(_ORDER, min_size=1, max_size=5), st.lists(_DETAIL, max_size=3)),
    min_size=2,
    max_size=5,
)


def joined(
    stage: Declared, days: Days, lefts: str, left_key: str, rights: str, right_key: str
) -> Counter[Row]:
    """Return the view of a stage that reads two views; a record whose last column is false goes."""
    flow = DataflowBuilder("joined")
    sides = {}
    for name, schema, key in (("left", lefts, left_key), ("right", rights, right_key)):
        rows = flow.source(name, f"{schema}, there BOOLEAN")
        last = Latest(f"{schema}, there BOOLEAN", key, gone="there")
        sides[name] = flow.stage(f"last_{name}", last, rows=rows).latest
    flow.stage("join", stage, **sides)
    given_ = {
        side: [[(*row[:-1], row[-1] or None) for row in day[at]] for day in days]
        for at, side in enumerate(("left", "right"))
    }
    view = run_dataflow(flow.build(), given_).view("join.joined")
    return Counter(shown(row) for row in view)


def shown(row: Sequence[Any]) -> Row:
    """Return values that are equal if they are the same."""
    return tuple("nan" if value != value else value for value in row)


def current(days: Days, side: int, key: Sequence[int]) -> list[Row]:
    """Return the records of a side that are there after all days."""
    last = {tuple(row[i] for i in key): row for day in days for row in day[side]}
    return [row[:-1] for row in last.values() if row[-1]]


def pairs(
    how: str, lefts: list[Row], rights: list[Row], match: Callable[[Row, Row], bool], width: int
) -> list[Row]:
    """Join by comparing every record with every other."""
    rows: list[Row] = []
    for left in lefts:
        partners = [right for right in rights if match(left, right)]
        if how in ("inner", "left"):
            rows += [(*left, *right) for right in partners]
        if how == "left" and not partners:
            rows.append((*left, *[None] * width))
        if (how == "semi" and partners) or (how == "anti" and not partners):
            rows.append(left)
    return rows


def same_shop(left: Row, right: Row) -> bool:
    return left[1] is not None and left[1] == right[0]


@settings(max_examples=EXAMPLES)
@given(days=DAYS, how=st.sampled_from(KINDS), form=FORMS)
def test_a_join_is_that_of_comparing_all_with_all(days: Days, how: How, form: type[Join]) -> None:
    """Keys on both sides: records move between groups, change and go; null matches nothing."""
    stage = form(ORDERS, SHOPS, "shop", how, left_key="id", right_key="shop, number")
    lefts, rights = current(days, 0, [0]), current(days, 1, [0, 1])
    expected = [
        (*row[:3], *row[4:]) if how in ("inner", "left") else row
        for row in pairs(how, lefts, rights, same_shop, 3)
    ]
    actual = joined(stage, days, ORDERS, "id", SHOPS, "shop, number")
    assert actual == Counter(map(shown, expected))


@settings(max_examples=EXAMPLES)
@given(days=DAYS, how=st.sampled_from(KINDS), form=FORMS)
def test_a_join_of_bags_counts_copies(days: Days, how: How, form: type[Join]) -> None:
    """Without keys, a pair has as many copies as those of its records multiply to."""
    stage = form("shop STRING, total DOUBLE", "shop STRING, name STRING", "shop", how)
    lefts = [row[1:] for row in current(days, 0, [0])]
    rights = [(row[0], row[2]) for row in current(days, 1, [0, 1])]
    rows = pairs(how, lefts, rights, lambda left, right: same_shop((0, *left), right), 2)
    expected = Counter(
        shown((*row[:2], *row[3:])) if how in ("inner", "left") else shown(row) for row in rows
    )
    actual = joined(stage, days, ORDERS, "id", SHOPS, "shop, number")
    assert {row[:-1]: row[-1] for row in actual} == dict(expected)


@settings(max_examples=SPLITS)
@given(how=st.sampled_from(KINDS), days=DAYS, form=FORMS)
def test_a_join_does_not_depend_on_the_split(how: How, days: Days, form: type[Join]) -> None:
    """Any split of the changes gives the view of one batch."""
    stage = form("shop STRING, total DOUBLE", "shop STRING, name STRING", "shop", how)
    changes = [
        {
            "left": [(shop, total, 1) for _, shop, total, _ in lefts],
            "right": [(shop, name, 1) for shop, _, name, _ in rights],
        }
        for lefts, rights in days
    ]
    undone = [
        {side: [(*row[:-1], -1) for row in rows[1:]] for side, rows in epoch.items()}
        for epoch in changes
    ]
    check_split(stage, [*changes, *undone])


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SECONDS = st.sampled_from([None, *range(6), *range(6)])
_TIME = _SECONDS.map(lambda n: None if n is None else BEGIN + timedelta(seconds=n))
TRADES, RATES = (
    "id INT, pair STRING, at TIMESTAMP",
    "pair STRING, since TIMESTAMP, maker INT, rate INT",
)
_MOSTLY = st.sampled_from([True, True, True, False])
_TRADE = st.tuples(st.integers(0, 9), _SHOP, _TIME, _MOSTLY)
_RATE = st.tuples(_SHOP, _TIME, st.integers(0, 1), st.integers(0, 9), _MOSTLY)
TIMED_DAYS = st.lists(
    st.tuples(st.lists(_TRADE, min_size=1, max_size=5), st.lists(_RATE, min_size=1, max_size=4)),
    min_size=2,
    max_size=5,
)


def newest(trade: Row, rates: list[Row]) -> Row:
    """Return the rate of a trade without its pair; nulls if there is none."""
    valid = [
        rate
        for rate in rates
        if None not in (trade[1], trade[2], rate[1]) and rate[0] == trade[1] and rate[1] <= trade[2]
    ]
    return max(valid, key=lambda rate: (rate[1], -rate[2]), default=(None,) * 4)[1:]


@settings(max_examples=EXAMPLES)
@given(days=TIMED_DAYS, counted=st.booleans(), form=AS_OF_FORMS)
def test_an_as_of_join_finds_the_newest_up_to_its_time(
    days: Days, counted: bool, form: type[AsOfJoin]
) -> None:
    """Late rates, changed and deleted ones, equal times: as found by looking at all rates."""
    trades, rates = current(days, 0, [0]), current(days, 1, [0, 1, 2])
    left = "pair STRING, at TIMESTAMP" if counted else TRADES
    keys = {} if counted else {"left_key": "id", "right_key": "pair, since, maker"}
    stage = form(left, RATES, "pair", "at", "since", **keys)
    actual = joined(stage, days, TRADES, "id", RATES, "pair, since, maker")
    expected = Counter((*trade[counted:], *newest(trade, rates)) for trade in trades)
    if counted:
        assert {row[:-1]: row[-1] for row in actual} == dict(expected)
    else:
        assert actual == expected


@settings(max_examples=SPLITS)
@given(days=TIMED_DAYS, form=AS_OF_FORMS)
def test_an_as_of_join_does_not_depend_on_the_split(days: Days, form: type[AsOfJoin]) -> None:
    """Any split of the changes gives the view of one batch."""
    stage = form("pair STRING, at TIMESTAMP", RATES, "pair", "at", "since")
    changes = [
        {
            "left": [(pair, at, 1) for _, pair, at, _ in trades],
            "right": [(*rate[:-1], 1) for rate in rates],
        }
        for trades, rates in days
    ]
    undone = [
        {side: [(*row[:-1], -1) for row in rows[1:]] for side, rows in epoch.items()}
        for epoch in changes
    ]
    check_split(stage, [*changes, *undone])


@settings(max_examples=SPLITS)
@given(
    days=st.lists(st.lists(_ORDER, max_size=6), max_size=4),
    form=st.sampled_from([Distinct, DistinctArrow]),
)
def test_distinct_records_are_those_with_a_copy(
    days: list[list[Row]], form: type[Distinct]
) -> None:
    """Each once while any copy is there, null and NaN too; any split gives the same."""
    signed = [[(shop, total, 1) for _, shop, total, _ in day] for day in days]
    undone = [[(shop, total, -1) for _, shop, total, stays in day if not stays] for day in days]
    result = check_split(form("shop STRING, total DOUBLE"), [*signed, *undone])
    expected = {shown(row[1:3]) for day in days for row in day if row[3]}
    assert Counter(shown(row) for row in result.view("distinct")) == Counter(expected)


@pytest.mark.parametrize("form", [AsOfJoin, AsOfJoinArrow])
def test_of_equal_times_the_smaller_record_counts_while_a_copy_is_left(
    form: type[AsOfJoin],
) -> None:
    """A smaller one that comes later takes the place; one that came twice goes with the second."""
    stage = form("pair STRING, at TIMESTAMP", RATES, "pair", "at", "since")
    large, small = (("a", BEGIN, maker, 7) for maker in (1, 0))
    epochs: list[Any] = [{"left": [("a", BEGIN, 1)], "right": [(*large, 1)]}]
    epochs += [{"right": [(*small, 1), (*small, 1)]}, {"right": [(*small, -1)]}]
    makers = [
        [row.maker for row in run_epochs(stage, epochs[:end]).view("joined")] for end in (1, 2, 3)
    ]
    assert makers == [[1], [0], [0]]
    epochs.append({"right": [(*small, -1)]})
    assert [row.maker for row in run_epochs(stage, epochs).view("joined")] == [1]
