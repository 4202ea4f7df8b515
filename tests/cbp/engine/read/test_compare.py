"""Comparing tables: exact, by value, whatever fits in memory."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cbp.engine.read import compare as module
from cbp.engine.read.compare import (
    SHOWN_MAX,
    compare,
    compare_multisets,
    compare_near,
    compare_views,
)
from cbp.engine.read.contents import ListedContents
from cbp.engine.state import multiset_diff as difference
from cbp.model.dataflow.equality import Closeness, identity
from cbp.model.verification import Comparison
from tests.flows import Ranks

Row = tuple[Any, ...]


@pytest.fixture(params=["memory", "disk"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "disk":
        monkeypatch.setattr(module, "PART_ROWS", 7)
        monkeypatch.setattr(module, "_BLOCK_ROWS", 2)
        monkeypatch.setattr(difference, "PENDING_ROWS_MAX", 5)


def in_batches(rows: list[Row], size: int) -> Any:
    def batches() -> Iterator[list[Row]]:
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    return batches


def drawn(draw: random.Random) -> list[Row]:
    values = [None, 0.0, -0.0, math.nan, 1.5, [1, None], {"a": math.nan}]
    return [(draw.randint(0, 9), draw.choice(values)) for _ in range(draw.randint(0, 40))]


def changed(rows: list[Row], draw: random.Random, *, shuffle: bool) -> list[Row]:
    found = list(rows)
    if shuffle:
        draw.shuffle(found)
    for _ in range(draw.randint(0, 2)):
        if found and draw.random() < 0.5:
            found.pop(draw.randrange(len(found)))
        else:
            found.insert(draw.randint(0, len(found)), (draw.randint(0, 9), "new"))
    return found


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("seed", range(60))
def test_multisets_differ_where_counters_do(seed: int):
    """Told are the keys whose counts differ, and of each what is missing and what is too much."""
    draw = random.Random(seed)
    expected = drawn(draw)
    found = changed(expected, draw, shuffle=True)
    counted: list[int] = []
    told = compare_multisets(
        in_batches(expected, 3), in_batches(found, 4), key=[0], counting=counted.append
    )
    left, right = Counter(map(identity, expected)), Counter(map(identity, found))
    wrong = {row[0] for row in [*(left - right), *(right - left)] if isinstance(row, tuple)}
    assert {int(one.key) for one in told} <= wrong, f"seed {seed}"
    assert len(told) == min(SHOWN_MAX, len(wrong)), f"seed {seed}"
    missing, surplus = (left - right).total(), (right - left).total()
    assert sum(len(one.expected) for one in told) == missing
    assert sum(len(one.found) for one in told) == surplus
    assert sum(counted) == len(expected) + len(found)


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("seed", range(60))
def test_views_differ_where_last_values_do(seed: int):
    """What came before the last record of a key does not matter."""
    draw = random.Random(seed)
    expected = drawn(draw)
    found = changed(expected, draw, shuffle=False)
    told = compare_views(
        in_batches(expected, 3),
        in_batches(found, 4),
        key=[0],
        rows=len(expected),
        counting=lambda rows: None,
    )
    left = {row[0]: identity(row) for row in expected}
    right = {row[0]: identity(row) for row in found}
    wrong = {key for key in {**left, **right} if left.get(key) != right.get(key)}
    assert {int(one.key) for one in told} <= wrong, f"seed {seed}"
    assert len(told) == min(SHOWN_MAX, len(wrong)), f"seed {seed}"


def test_a_difference_is_told_by_key_with_both_sides():
    """The records that one side lacks, as a person reads them; long ones are cut."""
    (one,) = compare_multisets(
        in_batches([("a", 1), ("b", 2)], 9),
        in_batches([("a", 1), ("b", 3), ("b", "x" * 1000)], 9),
        key=[0],
        counting=lambda rows: None,
    )
    assert (one.key, one.expected) == ("'b'", ("'b', 2",))
    assert one.found[0] == "'b', 3"
    assert len(one.found[1]) < 400


def test_a_difference_of_a_state_is_told_by_the_columns_that_hold_its_key():
    """In the order of the stage's key, wherever they stand and whatever they are called."""
    (one,) = compare(
        Comparison("stage", "kept", "state"),
        Ranks().spec(),
        expected=ListedContents([[(1, 0.5, 7, "a"), (2, 0.5, 8, "b")]]),
        found=ListedContents([[(1, 0.5, 7, "a"), (2, 0.5, 9, "b")]]),
        counting=lambda rows: None,
    )
    assert (one.key, one.expected, one.found) == (
        "'b', 0.5",
        ("2, 0.5, 8, 'b'",),
        ("2, 0.5, 9, 'b'",),
    )


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("seed", range(40))
def test_what_need_only_be_near_differs_where_it_is_not(seed: int):
    """Keys with a record that has no near counterpart; order and left out columns do not matter."""
    draw = random.Random(seed)
    close = Closeness(0.01, frozenset({0}), frozenset({2}))
    rows = [(float(key), draw.random() + 10 * key, key) for key in range(30)]
    expected = [row for row in rows for _ in range(draw.randint(1, 2))]
    found = [(k, x * (1 + draw.uniform(-0.005, 0.005)), draw.randrange(9)) for k, x, _ in expected]
    wrong = set(draw.sample(range(30), draw.randint(0, 3)))
    found = [(k, x + (k in wrong) * (1 + x), n) for k, x, n in found]
    gone = draw.randrange(30)
    found = [row for row in found if row[0] != gone or seed % 2]
    wrong |= set() if seed % 2 else {gone}
    draw.shuffle(found)
    counted: list[int] = []
    told = compare_near(
        in_batches(expected, 3),
        in_batches(found, 4),
        key=[0],
        rows=len(expected),
        counting=counted.append,
        close=close,
    )
    assert {int(float(one.key)) for one in told} <= wrong, f"seed {seed}"
    assert len(told) == min(SHOWN_MAX, len(wrong)), f"seed {seed}"
    assert all(bool(one.found) == (float(one.key) != gone or bool(seed % 2)) for one in told)
    assert sum(counted) == len(expected) + len(found)


def test_a_view_need_only_be_near_where_it_says_so():
    """The last records per key: numbers within the tolerance, the key exactly."""

    def told(right: Row) -> list[str]:
        sides = (in_batches([(1, 9.0, 1), (1, 1.0, 2)], 9), in_batches([right], 9))
        close = Closeness(0.1, frozenset({0}), frozenset({2}))
        found = compare_views(*sides, key=[0], rows=2, counting=lambda rows: None, close=close)
        return [one.key for one in found]

    assert told((1, 1.1, 7)) == []
    assert told((1, 1.2, 7)) == ["1"]
    assert told((2, 1.0, 2)) == ["1", "2"]
