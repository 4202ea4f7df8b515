"""Writes the changes that groups of a window made to their states, and changes of views.

Records that were emitted again are kept, others are deleted, and new ones are written.

In a kept state only the records that are put or deleted are looked up
(`cbp.engine.kernel.kept_groups`). A record that is put unchanged costs no write; one that is put
with other values replaces the record of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from operator import ne
from typing import Any, cast

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import positive_zeros
from cbp.engine.columnar.kept_records import Deletion, KeptShape, changes_of
from cbp.engine.columnar.row_codec import encode_rows
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.expiry import Timers
from cbp.engine.kernel.group_batch import Source, Window
from cbp.engine.kernel.kept_groups import KeptSource
from cbp.engine.kernel.named_records import Place
from cbp.engine.kernel.state_diff import Settled, settle
from cbp.engine.kernel.view_changes import ViewChanges, require_single
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.run_files import state_file_schema
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec


@dataclass(slots=True)
class KeptChanges:
    """What the groups of a window changed in one kept state; the groups of records ascend."""

    died: RecordPositions
    died_groups: Int64s
    groups: Int64s
    born: list[Row]


def settle_kept(
    source: KeptSource, operations: Sequence[Row | Deletion], ends: Sequence[int]
) -> KeptChanges:
    """Return the changes made by puts and deletions; a record put unchanged is not a change.

    Group g put and deleted `operations[ends[g - 1]:ends[g]]`. Raises `TypeError` if a record does
    not fit the state, `ValueError` if it has another key than its group.
    """
    found = _Found()
    shape, kinds = source.shape, list(map(type, operations))
    deletes = Deletion in kinds
    puts = [one for one in operations if type(one) is not Deletion] if deletes else operations
    exact = shape.are_exact(cast("Sequence[Row]", puts))
    for number, (start, end) in enumerate(pairwise([0, *ends])):
        if start == end:
            continue
        mine = operations[start:end]
        mixed = deletes and Deletion in kinds[start:end]
        changes = _changes(shape, mine, exact=exact, mixed=mixed)
        _require_key(source, source.keys[number], mine, mixed=mixed)
        seconds, group = shape.in_order(changes), source.group(number)
        rows = list(map(changes.__getitem__, seconds))
        found.numbers.append(number)
        found.sizes.append(len(rows))
        found.after += rows
        found.places += map(group.locate, seconds)
        if mixed:
            pairs = zip(seconds, rows, strict=True)
            found.before += [_ABSENT if row is None else group.get(second) for second, row in pairs]
        else:
            found.before += map(group.get, seconds)
    return found.changes(source)


_ABSENT: Any = object()
"""Placeholder for a record that is deleted without having been read."""


@dataclass(slots=True)
class _Found:
    """The puts and deletions of all groups of a window, with the present records of their keys.

    Each group of `numbers` puts and deletes `sizes` records. `after` has these records, or `None`
    for one that is deleted. `before` has the live records with the same keys: `None` if there is
    none, `_ABSENT` if it was not read. `places` has the places of the live records.
    """

    numbers: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    after: list[Row | None] = field(default_factory=list)
    places: list[Sequence[Place]] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)

    def changes(self, source: KeptSource) -> KeptChanges:
        """Return deleted and new records; a record put unchanged is neither."""
        same = source.are_same(self.before, self.after)
        groups = np.repeat(np.array(self.numbers, np.int64), np.array(self.sizes, np.int64))
        differs = ~np.array(same, np.bool_)
        born = np.flatnonzero(differs & np.array([row is not None for row in self.after], np.bool_))
        gone = np.flatnonzero(differs & np.array(list(map(len, self.places)), np.bool_))
        where = list(map(self.places.__getitem__, gone.tolist()))
        died_groups = np.repeat(groups[gone], np.array(list(map(len, where)), np.int64))
        columns = np.array(list(chain.from_iterable(where)), np.int64).reshape(-1, 2).T
        positions = RecordPositions(source.hashes[died_groups], columns[0], columns[1])
        rows = cast("list[Row]", list(map(self.after.__getitem__, born.tolist())))
        return KeptChanges(positions, died_groups, groups[born], rows)


def _changes(
    shape: KeptShape, operations: Sequence[Row | Deletion], *, exact: bool, mixed: bool
) -> Mapping[Row, Row | None]:
    """Return the result of `changes_of`; `exact` records are not checked one by one."""
    if exact and not mixed:
        rows = cast("Sequence[Row]", operations)
        changes = dict(zip(shape.seconds_of(rows), rows, strict=True))
        if len(changes) == len(rows):  # each is compared or encoded, which checks its values
            return changes
    elif exact:
        pairs: list[tuple[Row, Row | None]] = [
            (one.second, None) if isinstance(one, Deletion) else (shape.second_of(one), one)
            for one in operations
        ]
        if len(mixture := dict(pairs)) == len(pairs):
            return mixture
    return changes_of(shape, operations)


def _require_key(
    source: KeptSource, key: Row, operations: Sequence[Row | Deletion], *, mixed: bool
) -> None:
    puts = [one for one in operations if not isinstance(one, Deletion)] if mixed else operations
    if any(map(ne, source.keys_of(cast("Sequence[Row]", puts)), repeat(key))):
        message = f"a record of state {source.name!r} has the key of another group"
        raise ValueError(message)


class StateSettlement:
    """Writes the changed records of one bucket's states, as tables that ascend by hash."""

    def __init__(
        self,
        spec: TranslatorSpec,
        states: Mapping[str, BucketState],
        write_output: Callable[[str, list[pa.Array]], None],
        write_state: Callable[[str, pa.Table], None],
    ) -> None:
        self._spec, self._states = spec, states
        self._write_output, self._write_file = write_output, write_state

    def settle(
        self, spec: StateSpec, source: Source, window: Window, emitted: list[Row], ends: list[int]
    ) -> None:
        """Write the changes that groups of a window made to a state."""
        settled = settle(source, emitted, ends)
        assert source.origin is not None, "state records have a location"
        died = source.origin.at(settled.died)
        self._states[spec.name].kill(died)
        columns = self._write_state(spec, settled, window) if settled.born else []
        if spec.changes:
            if not spec.bag:
                require_single(spec, settled.groups, emitted, ends)
            died_groups = np.searchsorted(source.stops, settled.died, side="right")
            self._write_changes(spec, died, died_groups, columns, settled.groups)

    def settle_kept(
        self, source: KeptSource, window: Window, operations: list[Row | Deletion], ends: list[int]
    ) -> None:
        """Write the puts and deletions of the groups of a window in a kept state."""
        spec = source.spec
        changes = settle_kept(source, operations, ends)
        source.state.kill(changes.died)
        columns: list[pa.Array] = []
        if changes.born:
            columns = encode_rows(changes.born, spec.schema)
            self._write_rows(spec, columns, changes.groups, window)
        if spec.changes:
            died = changes.died, changes.died_groups
            self._write_changes(spec, *died, columns, changes.groups)

    def settle_timers(self, spec: StateSpec, window: Window, timers: Timers) -> None:
        """Write the changes of the hidden timers of a state."""
        (source,) = (one for one in window.states if one.name == spec.name)
        assert source.origin is not None, "state records have a location"
        self._states[spec.name].kill(source.origin.at(timers.died))
        groups = timers.groups
        if not len(groups):
            return
        keys = positive_zeros(window.key_table)
        if len(groups) < len(keys):
            keys = keys.take(pa.array(groups))
        schema = state_file_schema(spec)
        at = pa.repeat(pa.scalar(timers.at, schema.field(TIMER_COLUMN).type), len(groups))
        columns = [*keys.columns, at, pa.array(window.hashes[groups])]
        self._write_file(spec.name, pa.table(columns, names=schema.names).cast(schema))

    def _write_changes(
        self,
        view: StateSpec,
        died: RecordPositions,
        died_groups: Int64s,
        columns: list[pa.Array],
        born_groups: Int64s,
    ) -> None:
        changes = ViewChanges(view, self._write_output)
        gone = self._states[view.name].take(died, changes.names) if len(died_groups) else None
        born = pa.table(columns, names=changes.names) if columns else None
        changes.write(gone, died_groups, born, born_groups)

    def write_born(self, spec: StateSpec, window: Window, rows: list[Row]) -> list[pa.Array]:
        """Write new state records of the only group of a window; return their columns."""
        nothing = np.empty(0, np.int64)
        return self._write_state(
            spec, Settled(nothing, np.zeros(len(rows), np.int64), rows), window
        )

    def _write_state(self, spec: StateSpec, settled: Settled, window: Window) -> list[pa.Array]:
        columns, groups = encode_rows(settled.born, spec.schema), settled.groups
        if self._is_foreign(spec, groups, columns, window):
            message = f"a record of state {spec.name!r} has the key of another group"
            raise ValueError(message)  # the caller finds the group
        if len(groups):
            self._write_rows(spec, columns, groups, window)
        return columns

    def _write_rows(
        self, spec: StateSpec, columns: list[pa.Array], groups: Int64s, window: Window
    ) -> None:
        hashes = pa.array(window.hashes[groups])
        table = pa.Table.from_arrays([*columns, hashes], schema=state_file_schema(spec))
        self._write_file(spec.name, table)

    def _is_foreign(
        self, spec: StateSpec, groups: Int64s, columns: list[pa.Array], window: Window
    ) -> bool:
        schema = window.key_table.schema
        places = [spec.schema.index(name) for name in self._spec.key_of(spec).names]
        arrays = [columns[at].cast(type_) for at, type_ in zip(places, schema.types, strict=True)]
        emitted = pa.Table.from_arrays(arrays, schema=schema)
        expected = window.key_table
        if len(groups) != expected.num_rows or (np.diff(groups) != 1).any() or groups[:1].any():
            expected = expected.take(pa.array(groups))
        if emitted.equals(expected):
            return False
        # They differ as columns, as NaN always does; as values they may still be equal.
        mine, theirs = row_codes([expected, emitted])
        return bool((mine != theirs).any())
