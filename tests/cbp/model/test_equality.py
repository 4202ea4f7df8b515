"""What "equal" means when incremental is compared with from scratch."""

from __future__ import annotations

from typing import Any

import pytest

from cbp.model.equality import output_view, state_view, view_difference
from cbp.model.schema import Schema
from cbp.model.stage import OutputSpec

SCHEMA = Schema.parse("k STRING, n INT")
VIEW = OutputSpec("o", SCHEMA, key=("k",))
EVENTS = OutputSpec("o", SCHEMA)
HISTORY = OutputSpec("o", SCHEMA, key=("k",), history=True)
NAN = float("nan")


@pytest.mark.parametrize(
    ("spec", "left", "right", "says"),
    [
        (VIEW, [[("a", 1)], [("a", 2)]], [[("a", 2)]], ""),
        (VIEW, [[("a", 1)]], [[("a", 2)]], "('a', 1) against ('a', 2)"),
        (VIEW, [[("a", 1)]], [[("a", 1)], [("b", 1)]], "nothing' against"),
        (EVENTS, [[("a", 1)], [("b", 2)]], [[("b", 2), ("a", 1)]], ""),
        (EVENTS, [[("a", 1)], [("a", 1)]], [[("a", 1)]], "2 against 1"),
        (HISTORY, [[("a", 1), ("b", 1)]], [[("b", 1), ("a", 1)]], ""),
        (HISTORY, [[("a", 1)], []], [[("a", 1)]], "2 epochs against 1"),
        (HISTORY, [[("a", 1)], []], [[], [("a", 1)]], "epoch 0"),
    ],
)
def test_outputs_are_compared_as_they_are_declared(
    spec: OutputSpec, left: Any, right: Any, says: str
) -> None:
    """By the last value per key, by all records, or epoch by epoch; never by order."""
    found = view_difference(output_view(spec, left), output_view(spec, right))
    assert says in found
    assert bool(found) == bool(says)


def test_state_is_compared_exactly() -> None:
    """Equal records twice are two; lists, dicts and NaN are compared by value."""
    rows = [("a", [1, {"x": NAN}]), ("a", [1, {"x": NAN}])]
    assert not view_difference(state_view(rows), state_view([("a", [1, {"x": -NAN}])] * 2))
    assert view_difference(state_view(rows), state_view(rows[:1]))
