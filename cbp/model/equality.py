"""When two runs of the same input are equal, however it was split into increments.

Incremental must equal from scratch; this says what is compared:

- *State*: exactly, as a multiset of records.
- An *output*: by the last value per declared key; without a key, by all records of all
  epochs, as a multiset; declared `history`, epoch by epoch, each as a multiset. So a
  history differs when the input is split otherwise, and is held to an engine's oracle
  on the same split instead.
- A *loopback* is not compared: messages depend on the split, what they lead to does not.

Guarantee: the order of records never matters; NaN equals NaN, 0.0 equals -0.0.

Source: ours; the definition of promise "incremental equals from scratch".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from cbp.model.stage import OutputSpec

__all__ = ["identity", "output_view", "state_view", "view_difference"]

_THEMSELVES = frozenset({int, str, bool, bytes, type(None)})
"""Types whose values stand for themselves."""

View = Counter[Hashable] | dict[Hashable, Hashable] | list[Counter[Hashable]]


def state_view(rows: Iterable[Sequence[Any]]) -> View:
    """Return what of a state is compared."""
    return Counter(identity(tuple(row)) for row in rows)


def output_view(output: OutputSpec, epochs: Iterable[Iterable[Sequence[Any]]]) -> View:
    """Return what of an output is compared.

    Args:
        epochs: Its records by epoch, as tuples of its columns, in order.
    """
    if output.history:
        return [Counter(identity(tuple(row)) for row in epoch) for epoch in epochs]
    rows = [tuple(row) for epoch in epochs for row in epoch]
    if not output.key:
        return Counter(map(identity, rows))
    at = [output.schema.index(name) for name in output.key]
    return {identity([row[i] for i in at]): identity(row) for row in rows}


def view_difference(left: View, right: View) -> str:
    """Say where two views differ first; `""` when they are equal."""
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"{len(left)} epochs against {len(right)}"
        for epoch, pair in enumerate(zip(left, right, strict=True)):
            if found := view_difference(*pair):
                return f"epoch {epoch}: {found}"
        return ""
    assert isinstance(left, dict), "both views are of one output"
    assert isinstance(right, dict), "both views are of one output"
    differing = (key for key in {**left, **right} if left.get(key) != right.get(key))
    first = next(differing, None)
    if first is None and left == right:
        return ""
    return f"{first!r}: {left.get(first, 'nothing')!r} against {right.get(first, 'nothing')!r}"


def identity(value: Any) -> Hashable:
    """Return a hashable stand-in that is equal for equal values, nested ones included."""
    if isinstance(value, list | tuple):
        return tuple(value if _THEMSELVES.issuperset(map(type, value)) else map(identity, value))
    if isinstance(value, dict):
        return frozenset((identity(key), identity(item)) for key, item in value.items())
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    result: Hashable = value
    return result
