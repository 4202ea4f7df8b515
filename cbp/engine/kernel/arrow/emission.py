"""Emissions of one call of a vectorised translator: checked, and stored until the state diff.

Every emission is checked where it is made, so that an error's traceback ends in the author's line.
The checks cover columns and types (`conform`), and that records of states belong to groups of the
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import first_twice
from cbp.engine.kernel.arrow.groups import Outputs, author_schema, group_numbers, no_records, row_at
from cbp.engine.kernel.arrow.kept_state import KeptOperations
from cbp.engine.kernel.arrow.kept_tables import conformed_table, kept_key
from cbp.errors import AuthorMisuse, StateKeyForeignError
from cbp.model.dataflow.call_rules import refuse_output_foreign, refuse_output_twice, refuse_twice
from cbp.model.dataflow.stage import OutputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

_TEXTS = (pa.large_string(), pa.large_binary())


class Emission:
    """Collects the emissions of one call; holds the `out` that the author calls.

    Records made by an author must be copied (`copies`): they can share memory with a NumPy array or
    a pandas frame that the author changes later. Spark's own records need no copy; their keys are
    checked where they arrive.
    """

    def __init__(
        self,
        spec: TranslatorSpec,
        keys: pa.Table,
        write_output: Callable[[str, pa.Table], None],
        *,
        copies: bool = True,
    ) -> None:
        self._spec, self._keys, self._write, self._copies = spec, keys, write_output, copies
        self._state: dict[str, list[tuple[pa.Table, Int64s]]] = {s.name: [] for s in spec.replaced}
        self._kept: dict[str, list[KeptOperations]] = {s.name: [] for s in spec.kept}
        self._dropped: dict[str, Int64s] = {}
        self._output_keys = OutputKeys(spec) if copies else None
        if self._output_keys is not None:
            self._output_keys.begin(keys)
        functions: dict[str, Any] = {
            output.name: partial(self._take_output, output.name, output.schema)
            for output in spec.emitted
        }
        functions |= {
            state.name: partial(self._take_state, state)
            for state in spec.authored
            if not state.keep
        }
        for state in spec.kept:
            functions[state.name] = partial(self._put, state)
            functions[state.name].delete = partial(self._delete, state)
        self.out = Outputs(functions)

    def close(self) -> None:
        """End the call; free its emissions: `out` refers to them, and tasks collect no cycles."""
        vars(self.out).clear()

    def state(self, name: str) -> tuple[pa.Table, Int64s]:
        """Return the records emitted for a state, and the group of each record."""
        parts = self._state[name]
        if not parts:
            return no_records(self._spec.state(name).schema), np.empty(0, np.int64)
        if len(parts) == 1:
            return parts[0]
        tables, ids = zip(*parts, strict=True)
        return pa.concat_tables(tables), np.concatenate(ids)

    def operations(self, name: str) -> tuple[list[KeptOperations], Int64s]:
        """Return the puts and deletions of a kept state, and the groups that lose all records."""
        return self._kept[name], self._dropped.get(name, np.empty(0, np.int64))

    def drop(self, state: str, groups: Int64s) -> None:
        """Delete all records of some groups in a kept state."""
        self._dropped[state] = groups

    def wrote(self, state: str) -> Int64s:
        """Return the groups, ascending, that emitted, put or deleted records of a state."""
        if state in self._kept:
            groups = [one.groups for one in self._kept[state]]
            return np.unique(np.concatenate([np.empty(0, np.int64), *groups]))
        return np.unique(self.state(state)[1])

    def add(self, state: str, records: pa.Table, groups: Int64s) -> None:
        """Add records of a state that the engine emits; they are checked already."""
        self._state[state].append((records, groups))

    def of_groups(self, numbers: Int64s) -> None:
        """Attribute all emissions so far to these groups of a larger call."""
        for name, parts in self._state.items():
            self._state[name] = [(records, numbers[groups]) for records, groups in parts]
        for name, operations in self._kept.items():
            self._kept[name] = [replace(one, groups=numbers[one.groups]) for one in operations]

    def _take_output(self, name: str, schema: Schema, table: Any) -> None:
        records = self._conformed(name, table, schema)
        if self._output_keys is not None:
            self._output_keys.take(name, records.columns)
        self._write(name, records)

    def _take_state(self, state: StateSpec, table: Any) -> None:
        records = self._conformed(state.name, table, state.schema)
        groups = self._groups_of(state, records)
        if state.changes and not state.bag:
            self._require_single(state, records, groups)
        self._state[state.name].append((records, groups))

    def _put(self, state: StateSpec, table: Any) -> None:
        records = self._conformed(state.name, table, state.schema)
        second, groups = records.select(list(state.second_key)), self._groups_of(state, records)
        self._kept[state.name].append(KeptOperations(second, groups, records))

    def _delete(self, state: StateSpec, keys: Any) -> None:
        given = self._conformed(f"{state.name}.delete", keys, kept_key(self._spec, state))
        second, groups = given.select(list(state.second_key)), self._groups_of(state, given)
        self._kept[state.name].append(KeptOperations(second, groups))

    def check_views(self) -> None:
        """Refuse two emitted records with the same key of a view that is not kept."""
        for view in self._spec.keyed_views:
            if not view.keep and len(self._state[view.name]) > 1:
                self._require_single(view, *self.state(view.name))

    def check_puts(self) -> None:
        """Check that no table puts two records of one key into a kept state: only one can count."""
        for state in self._spec.kept:
            for one in self._kept[state.name]:
                if one.puts is not None:
                    self._require_single(state, one.puts, one.groups)

    def _require_single(self, view: StateSpec, records: pa.Table, groups: Int64s) -> None:
        row = first_twice(records.select(list(view.second_key)), groups)
        if row is not None:
            columns = [*self._spec.key_of(view).names, *view.second_key]
            refuse_twice(view.name, row_at(records.select(columns), row))

    def _groups_of(self, state: StateSpec, records: pa.Table) -> Int64s:
        keys = records.select(list(self._spec.key_of(state).names))
        group_indexes = group_numbers(self._keys, keys)
        unknown = np.flatnonzero(group_indexes < 0)
        if len(unknown):
            key = row_at(keys, int(unknown[0]))
            message = (
                f"a record of state {state.name!r} was emitted for the key {key!r}, but this call "
                "has no group with that key; emit the record in the call that has the group"
            )
            raise AuthorMisuse(StateKeyForeignError, message)
        return group_indexes

    def _conformed(self, flow: str, table: Any, schema: Schema) -> pa.Table:
        conformed = conformed_copy if self._copies else conformed_table
        return conformed(f"out.{flow}", table, schema)


def conformed_copy(function: str, table: Any, schema: Schema) -> pa.Table:
    """Return the result of `conformed_table`, without memory shared with the author's arrays.

    Strings and bytes need no copy: NumPy lacks these types, so no array of the author shares them.
    """
    table = conformed_table(function, table, schema)
    columns = [column if column.type in _TEXTS else _copied(column) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _copied(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow does not copy a single array, so an empty slice is added.
    chunks = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)


class OutputKeys:
    """Checks the keys of records that groups emit to keyed outputs, on whole columns.

    If only the last record of a key counts in an output (`OutputSpec.single`), an epoch has at most
    one record of each key. The output's key holds the stage's key, and a group is called once in an
    epoch. So it is enough that a group emits only its own key, and no key twice.

    Guaranteed: exact within one `take`. Not guaranteed: if a group is too large for a window, its
    keys are compared with those of earlier parts by hash. The oracle's counterpart, record by
    record, is `cbp/engine/reference/views.py`.
    """

    def __init__(self, spec: TranslatorSpec) -> None:
        self._spec = spec
        self._outputs = {one.name: one for one in spec.outputs if one.single and not one.view}
        self._groups = pa.table({})
        self._seen: dict[str, pa.Table | _SeenHashes] = {}

    def begin(self, groups: pa.Table) -> None:
        """Start with other groups; called before each set of groups."""
        self._groups, self._seen = groups, {}

    def take(self, output: str, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        """Check emitted records; refuse a key that none of the groups has, or that came before."""
        spec = self._outputs.get(output)
        if spec is None or not len(columns[0]):
            return
        assert self._spec.key is not None, "a record-wise stage has no output with a key"
        schema = author_schema(spec.schema.select(spec.key))
        at = [spec.schema.index(name) for name in spec.key]
        keys = pa.Table.from_arrays([columns[place] for place in at], names=schema.names)
        keys = keys.cast(pa.schema([field.with_nullable(True) for field in schema]))
        own = keys.select(list(self._spec.key.names))
        groups = self._groups.rename_columns(own.column_names).cast(own.schema)
        numbers = group_numbers(groups, own)
        foreign = np.flatnonzero(numbers < 0)
        if len(foreign):
            refuse_output_foreign(output, row_at(own, int(foreign[0])))
        rest = [name for name in spec.key if name not in self._spec.key]
        again = None
        if not np.all(numbers[1:] > numbers[:-1]):
            again = first_twice(keys.select(rest), numbers)
        if again is None:
            again = self._came_before(spec, keys)
        if again is not None:
            refuse_output_twice(output, row_at(keys, again))

    def _came_before(self, spec: OutputSpec, keys: pa.Table) -> int | None:
        types = [spec.schema[name].type for name in spec.key]
        if not all(type_.can_be_key for type_ in types):
            return None
        before = self._seen.get(spec.name)
        if before is None:  # most groups have only one part, which needs no hashes
            self._seen[spec.name] = keys
            return None
        if isinstance(before, pa.Table):
            hashes = hash_columns(before.columns, types)
            before = self._seen[spec.name] = _SeenHashes()
            before.add(hashes)
        hashes = hash_columns(keys.columns, types)
        known = np.flatnonzero(before.among(hashes))
        before.add(hashes)
        return int(known[0]) if len(known) else None


class _SeenHashes:
    """Hashes in few sorted runs, each more than twice the next: many parts cost little work."""

    def __init__(self) -> None:
        self._runs: list[Int64s] = []

    def add(self, hashes: Int64s) -> None:
        """Add some hashes, at least one."""
        run = np.sort(hashes)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def among(self, hashes: Int64s) -> Mask:
        """Return which of these hashes were added before."""
        known = np.zeros(len(hashes), np.bool_)
        for run in self._runs:
            known |= run[np.minimum(run.searchsorted(hashes), len(run) - 1)] == hashes
        return known
