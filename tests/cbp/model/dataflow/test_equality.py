"""What "equal" means when incremental is compared with from scratch."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from cbp.model.dataflow.equality import (
    Closeness,
    closeness,
    in_words,
    output_view,
    paired,
    state_view,
    view_difference,
)
from cbp.model.dataflow.stage import OutputSpec, StateSpec
from cbp.model.flow.schema import Schema

SCHEMA = Schema.parse("k STRING, n INT")
VIEW = OutputSpec("o", SCHEMA, key=("k",))
EVENTS = OutputSpec("o", SCHEMA)
HISTORY = OutputSpec("o", SCHEMA, key=("k",), history=True)
KEYS = OutputSpec("o", Schema.parse("k STRING"), key=("k",))
SIGNED = OutputSpec("o", Schema.parse("k STRING, sign INT, n INT"))
KEYED_SIGN = OutputSpec("o", Schema.parse("k STRING, sign INT"), key=("k",))
TEXT_SIGN = OutputSpec("o", Schema.parse("k STRING, sign STRING"))
NAN = float("nan")


@pytest.mark.parametrize(
    ("spec", "left", "right", "says"),
    [
        (VIEW, [[("a", 1)], [("a", 2)]], [[("a", 2)]], ""),
        (VIEW, [[("a", 1)]], [[("a", 2)]], "('a', 1) against ('a', 2)"),
        (VIEW, [[("a", 1)]], [[("a", 1)], [("b", 1)]], "nothing against"),
        (EVENTS, [[("a", 1)], [("b", 2)]], [[("b", 2), ("a", 1)]], ""),
        (EVENTS, [[("a", 1)], [("a", 1)]], [[("a", 1)]], "2 against 1"),
        (HISTORY, [[("a", 1), ("b", 1)]], [[("b", 1), ("a", 1)]], ""),
        (HISTORY, [[("a", 1)], []], [[("a", 1)]], "2 epochs against 1"),
        (HISTORY, [[("a", 1)], []], [[], [("a", 1)]], "epoch 0"),
        (VIEW, [[("a", 1), ("b", 1)], [("a", None)]], [[("b", 1)]], ""),
        (VIEW, [[("a", None)], [("a", 1)]], [[("a", 1)]], ""),
        (VIEW, [[("a", None)]], [[("a", 1)]], "nothing against"),
        (HISTORY, [[("a", None)]], [[]], "against"),
        (KEYS, [[("a",)]], [[]], "against"),
        (KEYS, [[(None,)]], [[]], "against"),
        (SIGNED, [[("a", 1, 7)], [("a", -1, 7), ("b", 1, 7)]], [[("b", 1, 7)]], ""),
        (SIGNED, [[("a", 1, 7)], [("a", 1, 7)]], [[("a", 2, 7)]], ""),
        (SIGNED, [[("a", 1, 7)], [("a", -1, 8)]], [[]], "against"),
        (SIGNED, [[("a", 1, 7)]], [[("a", -1, 7)]], "against"),
        (SIGNED, [[("a", None, 7)]], [[]], "1 against nothing"),
        (KEYED_SIGN, [[("a", 1)], [("a", -1)]], [[]], "against"),
        (TEXT_SIGN, [[("a", "1")]], [[]], "against"),
    ],
)
def test_outputs_are_compared_as_they_are_declared(
    spec: OutputSpec, left: Any, right: Any, says: str
) -> None:
    """By the last value per key, by all records, by signs, or epoch by epoch; never by order.

    A key whose last record is a tombstone is gone: it equals a key that never came.
    """
    actual = view_difference(output_view(spec, left), output_view(spec, right))
    assert says in actual
    assert bool(actual) == bool(says)


def test_state_is_compared_exactly() -> None:
    """Equal records twice are two; lists, dicts and NaN are compared by value."""
    rows = [("a", [1, {"x": NAN}]), ("a", [1, {"x": NAN}])]
    assert not view_difference(state_view(rows), state_view([("a", [1, {"x": -NAN}])] * 2))
    assert view_difference(state_view(rows), state_view(rows[:1]))


RANKS = Schema.parse("page INT, rank DOUBLE, parts ARRAY<STRUCT<a: DOUBLE>>, round INT")
NEAR_VIEW = OutputSpec("o", RANKS, key=("page",), tolerance=0.1, not_compared=("round",))
NEAR_EVENTS = OutputSpec("o", RANKS, tolerance=0.1, not_compared=("round",))
NEAR_HISTORY = OutputSpec("o", RANKS, history=True, tolerance=0.1, not_compared=("round",))


@pytest.mark.parametrize("spec", [NEAR_VIEW, NEAR_EVENTS, NEAR_HISTORY], ids=["view", "all", "by"])
@pytest.mark.parametrize(
    ("left", "right", "says"),
    [
        ((1, 2.0, [], 1), (1, 2.1, [], 9), ""),
        ((1, 2.0, [], 1), (1, 2.5, [], 1), "against"),
        ((1, 0.0, [], 1), (1, 0.09, [], 1), ""),
        ((1, 0.0, [], 1), (1, 0.11, [], 1), "against"),
        ((1, 1.0, [{"a": 5.0}], 1), (1, 1.0, [{"a": 5.4}], 1), ""),
        ((1, 1.0, [{"a": 5.0}], 1), (1, 1.0, [{"a": 5.9}], 1), "against"),
        ((1, 1.0, [{"a": 5.0}], 1), (1, 1.0, [], 1), "against"),
        ((1, 1.0, [], 1), (2, 1.0, [], 1), "nothing"),
        ((1, NAN, [], 1), (1, NAN, [], 1), ""),
        ((1, NAN, [], 1), (1, 1.0, [], 1), "NaN"),
        ((1, None, [], 1), (1, 0.0, [], 1), "None"),
    ],
)
def test_numbers_may_differ_as_declared(spec: OutputSpec, left: Any, right: Any, says: str) -> None:
    """Floating-point numbers only, nested ones too, by a part of them; all else not at all."""
    close = closeness(spec, spec.key)
    one, other = (output_view(spec, [[row]], close) for row in (left, right))
    actual = view_difference(one, other, close)
    assert says in actual
    assert bool(actual) == bool(says)


def test_state_is_compared_as_it_is_declared() -> None:
    """Within its tolerance, without its counters of rounds; as many records as there are."""
    spec = StateSpec("s", Schema.parse("k INT, x DOUBLE, n INT"), "inner", 0.1, ("n",))
    close = closeness(spec, ("k",))

    def difference(left: Any, right: Any) -> str:
        return view_difference(state_view(left, close), state_view(right, close), close)

    rows = [(1, 1.0, 1), (1, 5.0, 1), (2, 0.0, 1)]
    assert difference(rows, [(2, 0.05, 7), (1, 5.3, 7), (1, 1.05, 7)]) == ""
    assert difference(rows, [(2, 0.2, 1), *rows[:2]])
    assert difference(rows, rows[:2])
    assert difference(rows, [*rows, rows[0]])


def test_a_key_is_compared_exactly_and_rounds_not_at_all() -> None:
    """Though the key is a floating-point number; and what comes in front of a record is exact."""
    spec = StateSpec("s", Schema.parse("k DOUBLE, x DOUBLE, n INT"), "inner", 0.1, ("n",))
    close = closeness(spec, ("k",))
    assert close.agree((1.0, 1.0, 1), (1.0, 1.05, 2))
    assert not close.agree((1.0, 1.0, 1), (1.05, 1.0, 1))
    behind = closeness(spec, ("k",), behind=1)
    assert behind.agree((0.0, 1.0, 1.0, 1), (0.0, 1.0, 1.05, 2))
    assert not behind.agree((0.0, 1.0, 1.0, 1), (0.05, 1.0, 1.0, 1))
    assert in_words(spec) == "within 0.1, ignoring n"
    assert in_words(VIEW) == ""


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_paired_so_that_fewest_are_left(seed: int) -> None:
    """As the best of all ways to pair two small sides."""
    draw = random.Random(seed)
    close = Closeness(0.3)
    sides = [[(draw.randrange(12) / 4,) for _ in range(draw.randrange(5))] for _ in range(2)]
    shorter, longer = sorted(sides, key=len)
    best = max(
        sum(close.near(one, other) for one, other in zip(shorter, chosen, strict=True))
        for chosen in itertools.permutations(longer, len(shorter))
    )
    lacking, surplus = paired(close, *sides)
    assert len(sides[0]) - len(lacking) == len(sides[1]) - len(surplus) == best, f"seed {seed}"
