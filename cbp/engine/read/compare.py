"""Comparison of the records of two tables in bounded memory; exact, by value.

Tables are compared as `cbp.model.dataflow.equality` defines it: as multisets of records (a state,
a history with its epochs, an output without a key), or as views, by the last record per key.
Both sides are read as streams, batch by batch.

- A multiset is compared by `cbp.engine.state.multiset_difference`; records that come in another
  order are spilled by hash.
- Other tables are cut by a hash into parts of about `compared_rows` records, on disk: a view by its
  keys, changes by their record, and a multiset with a tolerance (`Closeness`) by the columns that
  must be equal.

Guaranteed: a difference of one record, beyond the table's tolerance, is found; no decision
depends on a hash. If a table differs, its first `SHOWN_MAX` keys are returned, and its comparison
ends.
Not guaranteed: bounded memory with a tolerance. All records that agree in every column without
floating-point numbers are then in memory together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from typing import Any, Literal

import numpy as np

from cbp.engine.columnar.values import Row
from cbp.engine.interface.readers import Contents
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.multiset_difference import Difference
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.spill_files import BlockFile
from cbp.model.dataflow.equality import (
    EXACTLY,
    Closeness,
    closeness,
    identity,
    is_tombstone,
    paired,
    record_rank,
)
from cbp.model.dataflow.set_aside import SET_ASIDE_COMPARED
from cbp.model.dataflow.stage import OutputSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import change_splitter, split_change
from cbp.model.verification import Comparison, Differing

SHOWN_MAX = 100
"""Maximum number of differing keys that are returned per table."""

_SET_ASIDE_COUNTED = SET_ASIDE_COMPARED.select(SET_ASIDE_COMPARED.names[2:])
"""The columns of `SET_ASIDE_COMPARED` without the first two, epoch and number."""

_PARTS_MAX = 1024
_TEXT_MAX = 300

Batches = Callable[[], Iterator[list[Row]]]
"""Starts reading one side; yields lists of records in the order of the table."""

_Rank = Callable[[tuple[int, Row]], Any]
"""Returns the rank of an epoch and a record."""

Counting = Callable[[int], None]
"""Called with the number of records as they are compared; may raise to end the comparison."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a comparison, of about `rows` records each."""

    expected: Batches
    actual: Batches
    rows: int
    counting: Counting
    limits: EngineLimits = DEFAULT_LIMITS


def column_names(
    comparison: Comparison, spec: TranslatorSpec
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the compared columns of a table, and the columns that identify a difference."""
    schema, key, output = _declared(comparison, spec)
    if output is None:
        return schema.names, key
    if comparison.kind == "changes":
        columns = output.record_schema.names
        return columns, columns
    before = ("_epoch",) if comparison.kind == "history" else ()
    columns = (*before, *schema.names)
    return columns, (*before, *key) if key else columns


def _declared(
    comparison: Comparison, spec: TranslatorSpec
) -> tuple[Schema, tuple[str, ...], OutputSpec | None]:
    """Return a table's columns, its key's columns, and, for an output, the spec."""
    if comparison.kind == "set_aside":
        return SET_ASIDE_COMPARED, ("key", "record"), None
    if comparison.kind == "state":
        state = spec.state(comparison.name)
        return state.schema, spec.key_of(state).names, None
    output = spec.output(comparison.name)
    return output.schema, output.key, output


def _ranked(output: OutputSpec | None) -> tuple[_Rank | None, list[int]]:
    """Return the rank that decides which record of a key counts, and the columns it reads."""
    if output is None or not output.latest_by:
        return None, []
    return record_rank(output), [output.schema.index(name) for name in output.latest_by]


def compare(
    comparison: Comparison,
    spec: TranslatorSpec,
    *,
    expected: Contents,
    actual: Contents,
    counting: Counting,
    limits: EngineLimits = DEFAULT_LIMITS,
) -> list[Differing]:
    """Return keys of a table whose records differ, `SHOWN_MAX` at most; empty if there are none."""
    epochs = comparison.kind == "history"
    schema, names, output = _declared(comparison, spec)
    rank, beside = _ranked(output)
    close = EXACTLY
    if comparison.kind != "set_aside":
        close = closeness(output or spec.state(comparison.name), names, behind=int(epochs))
    # Without a key, the whole record is the key; in a history, the epoch comes first.
    key = [schema.index(name) + epochs for name in names] or list(range(len(schema) + epochs))
    if epochs and names:
        key = [0, *key]

    def side(contents: Contents, number: int) -> Batches:
        wanted = [number] if expected.parts == actual.parts else list(range(contents.parts))
        with_epochs = epochs or rank is not None
        return lambda: chain.from_iterable(contents.part(n, with_epochs) for n in wanted)

    differences: list[Differing] = []
    parts = expected.parts if expected.parts == actual.parts else 1
    rows = max(expected.rows, actual.rows) // parts
    for number in range(parts):
        sides = Sides(side(expected, number), side(actual, number), rows, counting, limits)
        if comparison.kind == "view":
            differences += compare_views(sides, key, close, rank=rank, beside=beside)
        elif comparison.kind == "changes":
            differences += compare_changes(sides, close, change_splitter(schema.names))
        elif close.tolerance or close.left_out:
            differences += compare_near(sides, key, close)
        else:
            differences += compare_multisets(sides, key)
        if len(differences) >= SHOWN_MAX:
            break
    return differences[:SHOWN_MAX]


@dataclass(slots=True)
class DifferenceCounts:
    """Counts of records that differ between two versions of a table.

    Records `added` are only in the version after, records `gone` only in the one before. The key of
    a record `changed` is in both.
    """

    before: int = 0
    after: int = 0
    added: int = 0
    gone: int = 0
    changed: int = 0


def count_differences(
    comparison: Comparison,
    spec: TranslatorSpec,
    *,
    before: Contents,
    after: Contents,
    counting: Counting,
) -> DifferenceCounts:
    """Count the records in which two versions of a table differ, exactly and by value.

    The table is not a flow of changes; both versions have the same columns. A history and set-aside
    records are compared without their epochs.
    """
    schema, names, output = _declared(comparison, spec)
    if comparison.kind == "set_aside":
        schema, names = _SET_ASIDE_COUNTED, ("input", "key", "record")
    elif output is not None and comparison.kind != "view":
        names = ()
    rank, beside = _ranked(output if names else None)
    key = [schema.index(name) for name in names] or list(range(len(schema)))
    places = [at + int(rank is not None) for at in key]
    counts = DifferenceCounts()

    left_out = len(SET_ASIDE_COMPARED) - len(schema) if comparison.kind == "set_aside" else 0

    def side(contents: Contents) -> Batches:
        numbers = range(contents.parts)
        return lambda: (
            [row[left_out:] for row in batch] if left_out else batch
            for n in numbers
            for batch in contents.part(n, rank is not None)
        )

    sides = Sides(side(before), side(after), max(before.rows, after.rows), counting)
    with closing(_Parts(sides, lambda row: identity([row[at] for at in places]))) as spilled:
        spilled.take()
        for part in range(spilled.parts):
            if comparison.kind != "view":
                olds, news = spilled.all(part, 0), spilled.all(part, 1)
            else:
                olds, news = (
                    {
                        value: _listed(_present(row, (*key, *beside)))
                        for value, row in spilled.last(part, number, rank).items()
                    }
                    for number in (0, 1)
                )
            for value in dict.fromkeys([*olds, *news]):
                _count(counts, olds.get(value, []), news.get(value, []))
    return counts


def _count(counts: DifferenceCounts, olds: list[Row], news: list[Row]) -> None:
    """Count the records of one key."""
    left, right = (Counter(identity(row) for row in side) for side in (olds, news))
    gone, added = (left - right).total(), (right - left).total()
    changed = min(gone, added)
    counts.before += len(olds)
    counts.after += len(news)
    counts.added += added - changed
    counts.gone += gone - changed
    counts.changed += changed


def compare_multisets(sides: Sides, key: Sequence[int]) -> list[Differing]:
    """Return the first keys whose records differ, as multisets; empty if both sides are equal.

    Each side is read at most twice, and counted once. `key` has the positions of the columns that
    identify a difference.
    """
    surplus, missing = _one_sided(sides)
    if not surplus and not missing:
        return []
    groups: dict[Hashable, _Group] = {}
    _into(groups, surplus, key, "actual")
    if missing:
        # A difference returns the records of one side only; for the others, the sides are swapped.
        swapped = replace(sides, expected=sides.actual, actual=sides.expected)
        lacking, _ = _one_sided(replace(swapped, counting=lambda rows: None))
        _into(groups, lacking, key, "expected")
    return _first(groups)


def compare_near(sides: Sides, key: Sequence[int], close: Closeness) -> list[Differing]:
    """Return keys whose records differ by more than a tolerance, as multisets; `SHOWN_MAX` at most.

    Each record is paired with at most one close record of the other side; those without a partner
    differ. The keys are in no particular order. Each side is read once.
    """
    spilled = _Parts(sides, lambda row: close.parts(row)[0])
    return _unpaired(spilled, close, lambda wants, has: (wants, has), key)


def compare_changes(
    sides: Sides,
    close: Closeness = EXACTLY,
    split: Callable[[Row], tuple[Sequence[Any], int]] = split_change,
) -> list[Differing]:
    """Return records whose signs sum up differently on the two sides, `SHOWN_MAX` at most.

    Empty if all sums are equal; in no particular order. Each side is read once. `split` returns
    the record and the sign of a change.
    """
    spilled = _Parts(sides, lambda row: close.parts(split(row)[0])[0])
    return _unpaired(spilled, close, lambda wants, has: _net(wants, has, split), None)


def _unpaired(
    spilled: _Parts,
    close: Closeness,
    net: Callable[[list[Row], list[Row]], tuple[list[Row], list[Row]]],
    key: Sequence[int] | None,
) -> list[Differing]:
    """Return the keys of the records that have no record of the other side close to them.

    `net` is called with the records of both sides that agree in all columns that must be equal, and
    returns the records to pair. `key` has the positions of the columns that identify a difference;
    `None` means all columns.
    """
    groups: dict[Hashable, _Group] = {}
    with closing(spilled):
        spilled.take()
        for part in range(spilled.parts):
            wants, has = spilled.all(part, 0), spilled.all(part, 1)
            for same in dict.fromkeys([*wants, *has]):
                left, right = net(wants.get(same, []), has.get(same, []))
                numbers = ([close.parts(row)[1] for row in side] for side in (left, right))
                lacking, surplus = paired(close, *numbers)
                names = range(max(map(len, [*left, *right]), default=0)) if key is None else key
                _into(groups, [left[at] for at in lacking], names, "expected")
                _into(groups, [right[at] for at in surplus], names, "actual")
            if len(groups) >= SHOWN_MAX:
                break
    return _first(groups)


def _net(
    wants: Sequence[Row], has: Sequence[Row], split: Callable[[Row], tuple[Sequence[Any], int]]
) -> tuple[list[Row], list[Row]]:
    """Return for each side the records that its changes have more often than the other side's."""
    records: dict[Hashable, Row] = {}
    sums: Counter[Hashable] = Counter()
    for direction, side in ((1, wants), (-1, has)):
        for row in side:
            record, sign = split(row)
            records[identity(record)] = tuple(record)
            sums[identity(record)] += direction * sign
    lacking = [records[name] for name, total in sums.items() for _ in range(total)]
    surplus = [records[name] for name, total in sums.items() for _ in range(-total)]
    return lacking, surplus


def compare_views(
    sides: Sides,
    key: Sequence[int],
    close: Closeness = EXACTLY,
    *,
    rank: _Rank | None = None,
    beside: Sequence[int] = (),
) -> list[Differing]:
    """Return the first keys whose last records differ; empty if both views are equal.

    Both sides are in the order of the flow. A tombstone (`cbp.model.dataflow.equality`) equals a
    key that never had a record; it has the columns `beside` next to its key. With a `rank`, not the
    last record of a key counts but the one with the greatest rank, and each record starts with its
    epoch.
    """
    differences: list[Differing] = []
    places = [at + int(rank is not None) for at in key]
    with closing(_Parts(sides, lambda row: identity([row[at] for at in places]))) as spilled:
        spilled.take()
        for part in range(spilled.parts):
            wants, has = (spilled.last(part, side, rank) for side in (0, 1))
            for value in dict.fromkeys([*wants, *has]):
                left, right = (_present(side.get(value), (*key, *beside)) for side in (wants, has))
                if left is None and right is None:
                    continue
                if left is None or right is None or not close.agree(left, right):
                    some = left if left is not None else right
                    assert some is not None, "the key has no record on either side"
                    where = tuple(some[at] for at in key)
                    differences.append(_differing(where, _listed(left), _listed(right)))
                    if len(differences) == SHOWN_MAX:
                        return differences
    return differences


def _one_sided(sides: Sides) -> tuple[list[Row], int]:
    """Return the first records that only `actual` has, and how many only `expected` has.

    Both sides are read in step, so that records in the same order cancel out immediately.
    """
    born: list[Row] = []
    gone = 0

    def died(records: RecordPositions) -> None:
        nonlocal gone
        gone += len(records.hashes)

    def fresh(records: list[Row]) -> None:
        born.extend(records[: max(0, 100 * SHOWN_MAX - len(born))])

    with Difference(died, fresh, sides.limits) as difference:
        nothing: list[Row] = []
        for left, right in zip_longest(sides.expected(), sides.actual(), fillvalue=nothing):
            sides.counting(len(left) + len(right))
            if left:
                nowhere = np.zeros(len(left), np.int64)
                difference.read(left, RecordPositions(nowhere, nowhere, nowhere))
            if right:
                difference.emit(right)
        difference.finish()
    return born, gone


@dataclass(slots=True)
class _Group:
    """The records of one key that only one side has."""

    key: Row
    expected: list[Row] = field(default_factory=list)
    actual: list[Row] = field(default_factory=list)


def _first(groups: Mapping[Hashable, _Group]) -> list[Differing]:
    shown = islice(groups.values(), SHOWN_MAX)
    return [_differing(group.key, group.expected, group.actual) for group in shown]


def _into(
    groups: dict[Hashable, _Group],
    rows: list[Row],
    key: Sequence[int],
    side: Literal["expected", "actual"],
) -> None:
    for row in rows:
        where = tuple(row[at] for at in key)
        group = groups.setdefault(identity(where), _Group(where))
        (group.expected if side == "expected" else group.actual).append(row)


def _differing(key: Row, expected: Sequence[Row], actual: Sequence[Row]) -> Differing:
    return Differing(
        _text(key),
        tuple(map(_text, expected)),
        tuple(map(_text, actual)),
        tuple(map(_cell, key)),
        tuple(tuple(map(_cell, row)) for row in expected),
        tuple(tuple(map(_cell, row)) for row in actual),
    )


def _present(row: Row | None, key: Sequence[int]) -> Row | None:
    return None if row is None or is_tombstone(row, key) else row


def _listed(row: Row | None) -> list[Row]:
    return [] if row is None else [row]


def _text(row: Row) -> str:
    return _shortened(", ".join(map(repr, row)))


def _cell(value: object) -> str:
    return "NULL" if value is None else _shortened(repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "..."


class _Parts:
    """Records of both sides, cut into parts by the hash of what `of` returns; on disk."""

    def __init__(self, sides: Sides, of: Callable[[Row], Hashable]) -> None:
        self.parts = min(_PARTS_MAX, max(1, sides.rows // sides.limits.compared_rows))
        self._sides, self._of = sides, of
        self._file = BlockFile()
        self._blocks: dict[tuple[int, int], list[int]] = {}
        self._waiting: dict[tuple[int, int], list[Row]] = {}

    def take(self) -> None:
        """Read both sides, in order; the first is side 0."""
        for side, batches in enumerate((self._sides.expected, self._sides.actual)):
            for batch in batches():
                self._sides.counting(len(batch))
                for row in batch:
                    self._add(side, row)

    def _add(self, side: int, row: Row) -> None:
        part = hash(self._of(row)) % self.parts
        waiting = self._waiting.setdefault((part, side), [])
        waiting.append(row)
        if len(waiting) >= self._sides.limits.spill_block_rows:
            self._blocks.setdefault((part, side), []).append(self._file.add(waiting))
            waiting.clear()

    def last(self, part: int, side: int, rank: _Rank | None) -> dict[Hashable, Row]:
        """Return the last record of each hashed value in one part of one side.

        With a rank, each row is an epoch and a record; returns the record with the greatest rank.
        """
        if rank is None:
            return {self._of(row): row for block in self._read(part, side) for row in block}
        best: dict[Hashable, tuple[int, Row]] = {}
        for block in self._read(part, side):
            for epoch, *row in block:
                named, numbered = self._of((epoch, *row)), (epoch, tuple(row))
                if named not in best or rank(numbered) >= rank(best[named]):
                    best[named] = numbered
        return {named: row for named, (_, row) in best.items()}

    def all(self, part: int, side: int) -> dict[Hashable, list[Row]]:
        """Return all records of each hashed value in one part of one side."""
        rows_by_key: dict[Hashable, list[Row]] = {}
        for block in self._read(part, side):
            for row in block:
                rows_by_key.setdefault(self._of(row), []).append(row)
        return rows_by_key

    def _read(self, part: int, side: int) -> Iterator[list[Any]]:
        for offset in self._blocks.get((part, side), ()):
            yield self._file.get(offset)
        yield self._waiting.get((part, side), [])

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
