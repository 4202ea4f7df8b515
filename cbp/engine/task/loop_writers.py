"""Writers of a task that runs a loop: what its supersteps emit is held until the loop ends.

A message is read by the next superstep; if none follows, it is written. What became of the records
of views is written at the end: what is left of all their changes. State of another key is seen by
the next superstep. Any other output is written at once, superstep after superstep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.external_sort import order_by_columns
from cbp.engine.task.writers import TaskWriters
from cbp.model.dataflow.stage import OutputSpec, StateSpec
from cbp.model.flow.changes import SIGN
from cbp.model.flow.schema import Schema

__all__ = ["LoopWriters"]

Int64s = npt.NDArray[np.int64]

_HASH = "_hash"


@dataclass
class LoopWriters(TaskWriters):
    """The writers of a loop's only task; see the module header."""

    _outputs_of: Mapping[str, OutputSpec] = field(init=False)
    _held: dict[str, list[pa.Table]] = field(init=False)
    _remote: dict[str, list[pa.Table]] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.plan.spec
        held = {loopback.name for loopback in spec.loopbacks} | {v.changes for v in spec.views}
        self._outputs_of = {one.name: one for one in spec.outputs}
        self._held = {name: [] for name in sorted(held)}
        self._remote = {state.name: [] for state in spec.states}

    def write_output(self, name: str, columns: list[pa.Array]) -> None:
        """Take records of an output; write them at once unless they are held."""
        if name not in self._held:
            super().write_output(name, columns)
            return
        names = self._outputs_of[name].schema.names
        self._held[name].append(pa.Table.from_arrays(columns, names=list(names)))

    def write_remote(self, state: str, columns: list[pa.Array]) -> None:
        """Take state records that a group emitted for other keys."""
        spec = self.plan.spec.state(state)
        key, schema = self.plan.spec.key_of(spec), state_file_schema(spec)
        keys = [columns[spec.schema.index(name)] for name in key.names]
        hashes = hash_columns(keys, [f.type for f in key.fields]) & np.int64(self.plan.hash_mask)
        self._remote[state].append(
            pa.Table.from_arrays([*columns, pa.array(hashes)], schema=schema)
        )
        self.counts["state_remote"] += len(hashes)

    def take_messages(self) -> dict[str, pa.Table]:
        """Return the messages of the superstep that ended, in the order of their emission."""
        return {
            loopback.name: pa.concat_tables(tables)
            for loopback in self.plan.spec.loopbacks
            if (tables := self._take(self._held, loopback.name))
        }

    def take_remote(self, state: str) -> list[pa.Table]:
        """Return the records of a state that groups emitted for other keys in this superstep."""
        return self._take(self._remote, state)

    def go_on(self) -> None:
        """Call no more groups for their timers: only the first superstep does."""
        self.plan = replace(self.plan, wakes=False, ages=False)

    def release(self, left: Mapping[str, pa.Table]) -> None:
        """Write the messages that no superstep reads, and what became of the views."""
        for name, table in left.items():
            for part in table.to_batches():
                super().write_output(name, part.columns)
        for view in self.plan.spec.views:
            if tables := self._take(self._held, view.changes):
                self._release_view(view, pa.concat_tables(tables))

    def _release_view(self, view: StateSpec, changes: pa.Table) -> None:
        records = changes.select(list(view.schema.names))
        signs = changes.column(SIGN).to_numpy().astype(np.int64)
        (codes,) = row_codes([records])
        sums = np.bincount(codes, weights=signs).astype(np.int64)
        died, born = _rows_left(codes, signs, -sums), _rows_left(codes, -signs, sums)
        rows = np.concatenate([died, born])
        if not len(rows):
            return
        left = records.take(pa.array(rows))
        groups = self._visits(left, self.plan.spec.key_of(view))
        gone, came = left.slice(0, len(died)), left.slice(len(died))
        write = ViewChanges(view, super().write_output).write
        write(gone, groups[: len(died)], came, groups[len(died) :])

    def _visits(self, records: pa.Table, key: Schema) -> Int64s:
        """Return a number for the group of each record, ascending in visiting order."""
        keys = records.select(list(key.names)).combine_chunks()
        arrays = [column.chunk(0) for column in keys.columns]
        hashes = hash_columns(arrays, [f.type for f in key.fields]) & np.int64(self.plan.hash_mask)
        keys = keys.append_column(_HASH, pa.array(hashes.view(np.uint64)))
        order = order_by_columns(keys, [_HASH, *key.names])
        (codes,) = row_codes([keys])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(np.diff(codes[order], prepend=codes[order[:1]]) != 0)
        return numbers

    @staticmethod
    def _take(held: dict[str, list[pa.Table]], name: str) -> list[pa.Table]:
        tables, held[name] = held[name], []
        return tables


def _rows_left(codes: Int64s, signs: Int64s, counts: Int64s) -> Int64s:
    """Return a row for each record that is left, as often as `counts` says.

    Args:
        codes: A number for the record of each row.
        signs: Rows whose sign is below zero stand for the record.
        counts: By code; none for a record that is not positive.
    """
    rows = np.flatnonzero(signs < 0)
    names, firsts = np.unique(codes[rows], return_index=True)
    times = np.maximum(counts[names], 0)
    left: Int64s = np.repeat(rows[firsts], times)
    return left
