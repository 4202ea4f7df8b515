"""Comparing tables: exact, by value, whatever fits in memory."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cbp.engine.read.compare import (
    SHOWN_MAX,
    Sides,
    compare,
    compare_changes,
    compare_multisets,
    compare_near,
    compare_views,
)
from cbp.engine.read.contents import listed_contents
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.model.dataflow.equality import Closeness, identity
from cbp.model.flow.signed_changes import change_splitter
from cbp.model.verification import Comparison
from tests.flows import Ranks

Row = tuple[Any, ...]


@pytest.fixture(params=["memory", "disk"])
def limits(request: pytest.FixtureRequest) -> EngineLimits:
    """Give limits with which everything stays in memory, or goes to disk."""
    if request.param == "memory":
        return DEFAULT_LIMITS
    return EngineLimits(compared_rows=7, spill_block_rows=2, pending_rows=5)


def in_batches(rows: list[Row], size: int) -> Any:
    def batches() -> Iterator[list[Row]]:
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    return batches


def drawn(draw: random.Random) -> list[Row]:
    values = [None, 0.0, -0.0, math.nan, 1.5, [1, None], {"a": math.nan}]
    return [(draw.randint(0, 9), draw.choice(values)) for _ in range(draw.randint(0, 40))]


def changed(rows: list[Row], draw: random.Random, *, shuffle: bool) -> list[Row]:
    actual = list(rows)
    if shuffle:
        draw.shuffle(actual)
    for _ in range(draw.randint(0, 2)):
        if actual and draw.random() < 0.5:
            actual.pop(draw.randrange(len(actual)))
        else:
            actual.insert(draw.randint(0, len(actual)), (draw.randint(0, 9), "new"))
    return actual


@pytest.mark.parametrize("seed", range(60))
def test_multisets_differ_where_counters_do(seed: int, limits: EngineLimits):
    """Keys whose counts differ are listed, each with what is missing and what is too much."""
    draw = random.Random(seed)
    expected = drawn(draw)
    actual = changed(expected, draw, shuffle=True)
    counted: list[int] = []
    told = compare_multisets(
        Sides(in_batches(expected, 3), in_batches(actual, 4), 0, counted.append, limits), [0]
    )
    left, right = Counter(map(identity, expected)), Counter(map(identity, actual))
    wrong = {row[0] for row in [*(left - right), *(right - left)] if isinstance(row, tuple)}
    assert {int(one.key) for one in told} <= wrong, f"seed {seed}"
    assert len(told) == min(SHOWN_MAX, len(wrong)), f"seed {seed}"
    missing, surplus = (left - right).total(), (right - left).total()
    assert sum(len(one.expected) for one in told) == missing
    assert sum(len(one.found) for one in told) == surplus
    assert sum(counted) == len(expected) + len(actual)


@pytest.mark.parametrize("seed", range(60))
def test_views_differ_where_last_values_do(seed: int, limits: EngineLimits):
    """What came before the last record of a key does not matter; a tombstone is no record."""
    draw = random.Random(seed)
    expected = drawn(draw)
    actual = changed(expected, draw, shuffle=False)
    told = compare_views(
        Sides(
            in_batches(expected, 3), in_batches(actual, 4), len(expected), lambda rows: None, limits
        ),
        [0],
    )
    left, right = (
        {
            key: identity(row)
            for key, row in {row[0]: row for row in rows}.items()
            if row[1] is not None
        }
        for rows in (expected, actual)
    )
    wrong = {key for key in {**left, **right} if left.get(key) != right.get(key)}
    assert {int(one.key) for one in told} <= wrong, f"seed {seed}"
    assert len(told) == min(SHOWN_MAX, len(wrong)), f"seed {seed}"


def test_a_difference_is_told_by_key_with_both_sides():
    """The records that one side lacks, as a person reads them; long ones are cut."""
    (one,) = compare_multisets(
        Sides(
            in_batches([("a", 1), ("b", 2)], 9),
            in_batches([("a", 1), ("b", 3), ("b", "x" * 1000)], 9),
            0,
            lambda rows: None,
        ),
        [0],
    )
    assert (one.key, one.expected) == ("'b'", ("'b', 2",))
    assert one.found[0] == "'b', 3"
    assert len(one.found[1]) < 400


def test_a_difference_of_a_state_is_told_by_the_columns_that_hold_its_key():
    """In the order of the stage's key, wherever they stand and whatever they are called."""
    (one,) = compare(
        Comparison("stage", "kept", "state"),
        Ranks().spec(),
        expected=listed_contents([[(1, 0.5, 7, "a"), (2, 0.5, 8, "b")]]),
        actual=listed_contents([[(1, 0.5, 7, "a"), (2, 0.5, 9, "b")]]),
        counting=lambda rows: None,
    )
    assert (one.key, one.expected, one.found) == (
        "'b', 0.5",
        ("2, 0.5, 8, 'b'",),
        ("2, 0.5, 9, 'b'",),
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_need_only_be_near_differs_where_it_is_not(seed: int, limits: EngineLimits):
    """Keys with a record that has no near counterpart; order and left out columns do not matter."""
    draw = random.Random(seed)
    close = Closeness(0.01, frozenset({0}), frozenset({2}))
    rows = [(float(key), draw.random() + 10 * key, key) for key in range(30)]
    expected = [row for row in rows for _ in range(draw.randint(1, 2))]
    actual = [(k, x * (1 + draw.uniform(-0.005, 0.005)), draw.randrange(9)) for k, x, _ in expected]
    wrong = set(draw.sample(range(30), draw.randint(0, 3)))
    actual = [(k, x + (k in wrong) * (1 + x), n) for k, x, n in actual]
    gone = draw.randrange(30)
    actual = [row for row in actual if row[0] != gone or seed % 2]
    wrong |= set() if seed % 2 else {gone}
    draw.shuffle(actual)
    counted: list[int] = []
    told = compare_near(
        Sides(
            in_batches(expected, 3), in_batches(actual, 4), len(expected), counted.append, limits
        ),
        [0],
        close,
    )
    assert {int(float(one.key)) for one in told} <= wrong, f"seed {seed}"
    assert len(told) == min(SHOWN_MAX, len(wrong)), f"seed {seed}"
    assert all(bool(one.found) == (float(one.key) != gone or bool(seed % 2)) for one in told)
    assert sum(counted) == len(expected) + len(actual)


def test_a_view_need_only_be_near_where_it_says_so():
    """The last records per key: numbers within the tolerance, the key exactly."""

    def told(right: Row) -> list[str]:
        left = in_batches([(1, 9.0, 1), (1, 1.0, 2)], 9)
        sides = Sides(left, in_batches([right], 9), 2, lambda rows: None)
        close = Closeness(0.1, frozenset({0}), frozenset({2}))
        actual = compare_views(sides, [0], close)
        return [one.key for one in actual]

    assert told((1, 1.1, 7)) == []
    assert told((1, 1.2, 7)) == ["1"]
    assert told((2, 1.0, 2)) == ["1", "2"]


def told_of(rows: list[Row], draw: random.Random) -> list[Row]:
    """Return changes that give these records, with others that come and go among them."""
    told = [(*row, "insert", 1) for row in rows]
    for row in drawn(draw):
        told += [(*row, "insert", 1), (*row, "delete", -1)]
    draw.shuffle(told)
    return told


@pytest.mark.parametrize("seed", range(40))
def test_changes_differ_where_their_sums_do(seed: int, limits: EngineLimits) -> None:
    """However often a record came and went, only records of unequal count are listed."""
    draw = random.Random(seed)
    rows = [(number, draw.choice([None, math.nan, 0.0, [1]])) for number in range(12)]
    extra = [(99, "new")] * draw.randint(0, 2)
    lacking = draw.randint(0, 2)
    told = compare_changes(
        Sides(
            in_batches(told_of(rows, draw), 3),
            in_batches(told_of([*rows[lacking:], *extra], draw), 4),
            30,
            lambda count: None,
            limits,
        ),
    )
    assert sum(len(one.expected) for one in told) == lacking
    assert sum(len(one.found) for one in told) == len(extra)


def test_changes_of_an_output_with_a_sign_differ_where_their_sums_do(limits: EngineLimits) -> None:
    """The column of signs may have any place; a record without a sign counts as it is."""
    mine = [("a", 1, 7), ("a", -1, 7), ("b", 1, 7), ("c", None, 7)]
    for its, differing in (
        ([("b", 1, 7), ("c", None, 7)], []),
        ([("b", 2, 7), ("c", None, 7)], ["'b', 7"]),
        ([("b", 1, 7)], ["'c', None, 7"]),
    ):
        told = compare_changes(
            Sides(in_batches(mine, 2), in_batches(its, 2), 4, lambda count: None, limits),
            split=change_splitter(("k", "sign", "n")),
        )
        assert [one.key for one in told] == differing


def test_a_tombstone_equals_a_key_that_never_came(limits: EngineLimits) -> None:
    """On either side, and only if it is the last record of its key."""
    for mine, its, differing in (
        ([("a", 1), ("a", None)], [], 0),
        ([], [("a", None)], 0),
        ([("a", None), ("a", 1)], [], 1),
        ([("a", None)], [("a", 1)], 1),
    ):
        told = compare_views(
            Sides(in_batches(mine, 2), in_batches(its, 2), 2, lambda count: None, limits), [0]
        )
        assert len(told) == differing


def test_changes_agree_as_closely_as_declared(limits: EngineLimits) -> None:
    """With a tolerance, records that are near are one; a column that is left out says nothing."""
    near = Closeness(1e-6, frozenset({0}), frozenset({2}))
    mine = [("a", 1.0, 1, "insert", 1), ("b", 1.0, 1, "insert", 1), ("b", 1.0, 1, "delete", -1)]
    its = [("a", 1.0 + 1e-9, 2, "insert", 1)]
    for other, differing in ((its, 0), ([("a", 1.1, 1, "insert", 1)], 2)):
        told = compare_changes(
            Sides(in_batches(mine, 2), in_batches(other, 2), 3, lambda count: None, limits), near
        )
        assert len(told) == differing
