"""Equality of results: when two runs over the same input, split differently, are equal.

An incremental run must equal a run from scratch. These values are compared (tables on disk:
`cbp.engine.read.compare`):

- *State*: exactly, as a multiset of records.
- An *output* with a key: the last record per key, or the greatest by `latest_by`. A record whose
  other columns (except those of `latest_by`) are all null is a tombstone: its key is removed.
- An *output* without a key: all records of all epochs, as a multiset. With `history`: epoch by
  epoch, each as a multiset, so a history differs if the input is split differently. Changes
  (`OutputSpec.signed`): the sum of the signs of each record, without those whose sum is zero, since
  the split decides how often a record was added and removed.
- A *loopback* is not compared: messages depend on the split, their final effect does not.

A state or an output can declare a weaker comparison (`Closeness`): numbers that an iteration
computes until they change little may differ a little, and columns that only count rounds are left
out.

Guaranteed: the order of records never matters; NaN equals NaN, 0.0 equals -0.0.

Source: ours; it defines the promise "incremental equals from scratch".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cbp.errors.counts import format_count
from cbp.model.dataflow.stage import OutputSpec, StateSpec
from cbp.model.flow.signed_changes import change_splitter, consolidated

_THEMSELVES = frozenset({int, str, bool, bytes, type(None)})
"""Types of values that `identity` returns as they are."""

View = Counter[Hashable] | dict[Hashable, Hashable] | list[Counter[Hashable]]

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Closeness:
    """How closely two records of one table must agree; with a tolerance, this is not transitive.

    Attributes:
        tolerance: Allowed difference of floating-point numbers: relative to the larger number,
            absolute for numbers smaller than 1.
        exact: Positions of columns that must always agree exactly: those of a key.
        left_out: Positions of columns that are not compared.
    """

    tolerance: float = 0.0
    exact: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()

    def parts(self, row: Sequence[Any]) -> tuple[Hashable, Numbers]:
        """Return the parts of a record that must be equal, and the numbers that must be near."""
        numbers: list[float] = []
        same: list[Hashable] = []
        for at, value in enumerate(row):
            if at not in self.left_out:
                exact = not self.tolerance or at in self.exact
                same.append(identity(value) if exact else _without(value, numbers))
        return tuple(same), tuple(numbers)

    def near(self, left: Numbers, right: Numbers) -> bool:
        """Return whether the numbers of two records are near, one by one."""
        most = self.tolerance
        return all(
            math.isclose(one, other, rel_tol=most, abs_tol=most)
            for one, other in zip(left, right, strict=True)
        )

    def agree(self, left: Sequence[Any], right: Sequence[Any]) -> bool:
        """Return whether two records agree this closely."""
        (same, numbers), (other, others) = self.parts(left), self.parts(right)
        return same == other and self.near(numbers, others)


EXACTLY = Closeness()


def closeness(spec: OutputSpec | StateSpec, key: Sequence[str], *, behind: int = 0) -> Closeness:
    """Return how closely records of a state or an output must agree, as it declares.

    The columns of its key are compared exactly, and so are `behind` columns before the declared
    ones.
    """
    schema = spec.record_schema if isinstance(spec, OutputSpec) else spec.schema

    def positions(names: Iterable[str]) -> frozenset[int]:
        return frozenset(schema.index(name) + behind for name in names if name in schema)

    exact = positions(key) | frozenset(range(behind))
    return Closeness(spec.tolerance, exact, positions(spec.not_compared))


def in_words(spec: OutputSpec | StateSpec) -> str:
    """Return the declared closeness as a text: `within 1e-09, ignoring round`, or `""` if exact."""
    said = [f"within {spec.tolerance:g}"] if spec.tolerance else []
    if spec.not_compared:
        said.append(f"ignoring {', '.join(spec.not_compared)}")
    return ", ".join(said)


def paired(
    closeness: Closeness, left: Sequence[Numbers], right: Sequence[Numbers]
) -> tuple[list[int], list[int]]:
    """Return the positions on each side that have no near counterpart on the other side.

    Both sides are sorted and paired greedily. For records with one number each, no other pairing
    leaves fewer records unpaired.
    """
    lefts = sorted(range(len(left)), key=left.__getitem__)
    rights = sorted(range(len(right)), key=right.__getitem__)
    alone: tuple[list[int], list[int]] = [], []
    i = j = 0
    while i < len(lefts) and j < len(rights):
        one, other = left[lefts[i]], right[rights[j]]
        if closeness.near(one, other):
            i, j = i + 1, j + 1
        elif one < other:
            alone[0].append(lefts[i])
            i += 1
        else:
            alone[1].append(rights[j])
            j += 1
    alone[0].extend(lefts[i:])
    alone[1].extend(rights[j:])
    return alone


def state_view(rows: Iterable[Sequence[Any]], close: Closeness = EXACTLY) -> View:
    """Return a state's records in the form in which they are compared."""
    return Counter(_stand_in(row, close) for row in rows)


def output_view(
    output: OutputSpec, epochs: Iterable[Iterable[Sequence[Any]]], close: Closeness = EXACTLY
) -> View:
    """Return an output's records in the form in which they are compared."""
    if output.history:
        return [Counter(_stand_in(tuple(row), close) for row in epoch) for epoch in epochs]
    numbered = [(number, tuple(row)) for number, epoch in enumerate(epochs) for row in epoch]
    if output.latest_by:
        numbered.sort(key=record_rank(output))
    rows = [row for _, row in numbered]
    if output.signed:
        return _consolidated_view(output, rows, close)
    if not output.key:
        return Counter(_stand_in(row, close) for row in rows)
    at = [output.schema.index(name) for name in output.key]
    last = {identity([row[i] for i in at]): row for row in rows}
    beside = [*at, *map(output.schema.index, output.latest_by)]
    return {
        key: _stand_in(row, close) for key, row in last.items() if not is_tombstone(row, beside)
    }


def record_rank(output: OutputSpec) -> Callable[[tuple[int, Sequence[Any]]], Any]:
    """Return the rank of an epoch and a record of an output with `latest_by`, as a sort key.

    The record of a key with the greatest rank counts. Records are ranked by the columns of
    `latest_by`, then by epoch, then by all other comparable columns. Nulls come first, NaN
    last.
    """
    first = [output.schema.index(name) for name in output.latest_by]
    others = [at for at, one in enumerate(output.schema.fields) if not one.type.arguments]
    rest = [at for at in others if at not in first]

    def rank(numbered: tuple[int, Sequence[Any]]) -> Any:
        epoch, row = numbered
        return [_ordered(row[at]) for at in first], epoch, [_ordered(row[at]) for at in rest]

    return rank


def _ordered(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def is_tombstone(row: Sequence[Any], key: Sequence[int]) -> bool:
    """Return whether a record marks its key as removed: it has other columns, all null.

    Args:
        key: The positions of the columns of the key and of `latest_by`.
    """
    others = [value for at, value in enumerate(row) if at not in key]
    return bool(others) and all(value is None for value in others)


def _consolidated_view(
    output: OutputSpec, rows: Sequence[tuple[Any, ...]], close: Closeness
) -> Counter[Hashable]:
    """Return, from its changes, how often each record exists, or was deleted too often."""
    changes = list(map(change_splitter(output.schema.names), rows))
    records = {identity(record): record for record, _ in changes}
    sums = consolidated((identity(record), sign) for record, sign in changes)
    view: Counter[Hashable] = Counter()
    for name, total in sums.items():
        same, numbers = close.parts(records[name])
        named = same if total > 0 else ("deleted too often", same)
        view[(named, numbers) if close.tolerance else named] += abs(total)
    return view


def view_difference(left: View, right: View, close: Closeness = EXACTLY) -> str:
    """Return the first difference between two views as a text; `""` if they are equal."""
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"{format_count(len(left), 'epoch')} against {len(right)}"
        for epoch, pair in enumerate(zip(left, right, strict=True)):
            if difference := view_difference(*pair, close):
                return f"epoch {epoch}: {difference}"
        return ""
    assert isinstance(left, dict), "the views are of different outputs"
    assert isinstance(right, dict), "the views are of different outputs"
    if close.tolerance:
        left, right = _differing(left, right, close)
    differing = (key for key in {**left, **right} if left.get(key) != right.get(key))
    first = next(differing, None)
    if first is None:
        return ""
    one, other = (repr(view[first]) if first in view else "nothing" for view in (left, right))
    return f"{first!r}: {one} against {other}"


def _differing(
    left: dict[Any, Any], right: dict[Any, Any], close: Closeness
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return two views made with a tolerance, without records that are near in both."""
    if isinstance(left, Counter):
        groups: dict[Hashable, tuple[list[Numbers], list[Numbers]]] = defaultdict(lambda: ([], []))
        for side, view in enumerate((left, right)):
            for (same, numbers), count in view.items():
                groups[same][side].extend([numbers] * count)
        alone: tuple[Counter[Hashable], Counter[Hashable]] = Counter(), Counter()
        for same, sides in groups.items():
            for side, places in enumerate(paired(close, *sides)):
                alone[side].update((same, sides[side][at]) for at in places)
        return alone
    left, right = dict(left), dict(right)
    for key in left.keys() & right.keys():
        (same, numbers), (other, others) = left[key], right[key]
        if same == other and close.near(numbers, others):
            del left[key], right[key]
    return left, right


def _stand_in(row: Sequence[Any], close: Closeness) -> Hashable:
    """Return the hashable form of a record in a view; with a tolerance, it has two parts."""
    return close.parts(row) if close.tolerance else close.parts(row)[0]


def _without(value: Any, numbers: list[float]) -> Hashable:
    """Return the identity of a value without its floats, which are appended to `numbers`."""
    if isinstance(value, float) and not math.isnan(value):
        numbers.append(value)
        return float
    if isinstance(value, list | tuple):
        return tuple(_without(item, numbers) for item in value)
    if isinstance(value, dict):
        pairs = [(identity(key), item) for key, item in value.items()]
        # Equal keys have equal texts, so the numbers of equal maps come in the same order.
        pairs.sort(key=lambda pair: repr(pair[0]))
        return tuple((key, _without(item, numbers)) for key, item in pairs)
    return identity(value)


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
