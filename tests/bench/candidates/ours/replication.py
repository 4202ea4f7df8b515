"""Replication in the black-box mode: records for `ALL` or an address are copied per group.

The copies are made before the shuffle. In the direct engine, only the tasks know the receivers of
such a record. Here, the reader of the record finds them by reading the same data: the keys in
state, the keys of the other inputs, and the bindings. So bytes and time grow with the number of
groups; the direct engine's single copy per task is measured against that.

    record to ["x", ["items"]]  ->  a copy per key bound to x or found in `items`, each once

Guaranteed: the destinations of `cbp.model.dataflow.routing`. A destination that reaches no group
keeps its text, so that tasks count it like any dead letter
(test_blackbox.py).
Memory: the distinct keys of every flow that an `ALL` here names, and the bindings of every epoch
whose messages are read. Each file of bindings is read once, however many addresses are looked up.

Source: CBP (SoCC'10), section 5.2: multicast and broadcast replicated in the map function.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.file_slices import Share
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.shuffle.delivery import has_already
from cbp.engine.shuffle.layout import COUNT, MADE, TO, FlowRoute, ShuffleLayout
from cbp.engine.shuffle.multicast_bindings import BindingFile, read_bindings
from cbp.engine.shuffle.replicated_read import read_input
from cbp.engine.shuffle.routing_keys import slot_columns
from cbp.engine.shuffle.several_destinations import copies, destinations
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.dataflow.stage import TranslatorSpec

__all__ = ["Replication", "replication", "state_flow"]

_STATE = "_state_"

Column: TypeAlias = pa.Array | pa.ChunkedArray
Columns: TypeAlias = Mapping[str, Column]
Int64s = npt.NDArray[np.int64]
_Source = str | tuple[int | None, str | int]
"""Where keys are found: in a flow, or in the bindings of an epoch to an address."""


def state_flow(name: str) -> str:
    """Name the flow of a state; no author's name begins with an underscore."""
    return f"{_STATE}{name}"


def replication(plan: TaskPlan) -> Replication:
    """Return the function that copies shared records, for one reader of a run's increments."""
    assert plan.layout is not None, "a record-wise stage shares nothing"
    return Replication(plan.stage, plan.spec, plan.layout, plan.inputs, plan.bindings)


@dataclass
class Replication:
    """Copies shared records; reads each flow and each file of bindings at most once.

    Attributes:
        spec: The spec with every state as an input; see `state_flow`.
        inputs: Maps each input to its files.
        bindings: Binding files of the epochs whose messages are read.
    """

    stage: str
    spec: TranslatorSpec
    layout: ShuffleLayout
    inputs: Mapping[str, tuple[Share, ...]]
    bindings: tuple[BindingFile, ...]
    _distinct_tables: dict[_Source, pa.Table] = field(init=False, default_factory=dict)
    _bound_in: dict[int | None, dict[str, pa.Table]] = field(init=False, default_factory=dict)

    def __call__(self, columns: Columns, records: pa.Table) -> tuple[dict[str, Column], pa.Table]:
        """Replace each shared copy by one copy per group.

        Args:
            columns: The columns that `cbp.engine.shuffle.several_destinations.copies` returns.
            records: The record of each copy, with `_seq`.

        Raises:
            IncrementDamagedError: If a flow that has to be read is missing or damaged.
            AuthorCodeError: If a route function failed.
        """
        texts = columns[TO].to_pylist()
        shared = [at for at, text in enumerate(texts) if text not in (None, "[]")]
        if not shared:
            return dict(columns), records
        made = columns[MADE].to_pylist() if MADE in columns else [None] * len(texts)
        asked = dict.fromkeys((made[at], str(texts[at])) for at in shared)
        tables = {source: self._keys(source) for each in asked for source in self._sources(*each)}
        slots = list(self.layout.keys)
        own = pa.table({slot: columns[slot] for slot in slots})
        codes = row_codes([own, *tables.values()])
        codes_of = dict(zip(tables, codes[1:], strict=True))
        reached = {each: self._reached(each, codes_of) for each in asked}
        position = records.column("_seq").to_numpy()
        named = np.array([text is None for text in texts])
        receivers = [reached[made[at], str(texts[at])] for at in shared]
        places = np.repeat(np.array(shared, np.int64), [len(keys) for keys in receivers])
        keys = np.concatenate(receivers)
        more = ~has_already(codes[0][named], position[named], keys, position[places])
        places, keys = places[more], keys[more]
        every = pa.concat_tables([own, *tables.values()])
        _, first = np.unique(np.concatenate(codes), return_index=True)
        copied = every.take(pa.array(first[keys]))
        dead = {at: self._dead(made[at], str(texts[at])) for at in shared}
        return self._joined(columns, records, places, copied, dead)

    def _joined(
        self,
        columns: Columns,
        records: pa.Table,
        places: Int64s,
        keys: pa.Table,
        dead: Mapping[int, str],
    ) -> tuple[dict[str, Column], pa.Table]:
        """Add the new copies to the records; these keep the destinations that reach no group."""
        texts = [dead.get(at, text) for at, text in enumerate(columns[TO].to_pylist())]
        more = pa.array(places)
        joined: dict[str, Column] = {}
        for slot, column in columns.items():
            if slot in self.layout.keys:
                added: Column = keys.column(slot)
            elif slot == TO:
                column, added = pa.array(texts, pa.string()), pa.nulls(len(places), pa.string())
            elif slot == COUNT:
                added = pa.array(np.zeros(len(places), np.int64))
            else:
                added = column.take(more)
            joined[slot] = _chained(column, added)
        records = pa.concat_tables([records, records.take(more)])
        # Sort the copies into the order of their records, as a reader of files returns them.
        order = pa.array(np.argsort(records.column("_seq").to_numpy(), kind="stable"))
        return {slot: c.take(order) for slot, c in joined.items()}, records.take(order)

    def _sources(self, made: int | None, text: str) -> Iterator[_Source]:
        for destination in destinations(text):
            yield from self._of(made, destination)

    def _of(self, made: int | None, destination: str | int | tuple[str, ...]) -> list[_Source]:
        """Return the sources of the keys of one destination."""
        if not isinstance(destination, tuple):
            return [(made, destination)]
        states = {state.name for state in self.spec.states}
        every = [input_.name for input_ in self.spec.inputs]
        return [state_flow(name) if name in states else name for name in destination or every]

    def _reached(self, asked: tuple[int | None, str], codes_of: Mapping[_Source, Int64s]) -> Int64s:
        receivers = [codes_of[source] for source in self._sources(*asked)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *receivers]))

    def _dead(self, made: int | None, text: str) -> str:
        """Return the destinations of a text that reach no group."""
        nobody = [
            list(destination) if isinstance(destination, tuple) else destination
            for destination in destinations(text)
            if not any(self._keys(source).num_rows for source in self._of(made, destination))
        ]
        return json.dumps(nobody)

    def _keys(self, source: _Source) -> pa.Table:
        """Return the distinct keys of a source."""
        if source not in self._distinct_tables:
            parts = self._bound(*source) if isinstance(source, tuple) else self._named(source)
            self._distinct_tables[source] = _distinct(parts, self._nobody())
        return self._distinct_tables[source]

    def _named(self, name: str) -> Iterator[pa.Table]:
        """Yield the keys that the records of an input name, by key or by address."""
        flow = [input_.name for input_ in self.spec.inputs].index(name)
        input_, slots = self.spec.inputs[flow], list(self.layout.keys)
        route = FlowRoute(self.stage, self.spec, self.layout, flow, 1, -1, 0)
        for file in self.inputs.get(name, ()):
            table = read_input([file], input_)
            if not input_.has_several:
                columns_by_slot = slot_columns(table, route)
                yield pa.table({slot: columns_by_slot[slot] for slot in slots})
                continue
            columns, _ = copies(table, route)
            keys = pa.table({slot: columns[slot] for slot in slots})
            yield keys.filter(columns[TO].is_null())
            made = columns[MADE].to_pylist() if MADE in columns else [None] * keys.num_rows
            for each in dict.fromkeys(zip(made, columns[TO].to_pylist(), strict=True)):
                yield from self._addressed(*each)

    def _addressed(self, made: int | None, text: str | None) -> Iterator[pa.Table]:
        for destination in destinations(text or "[]"):
            if not isinstance(destination, tuple):
                yield self._keys((made, destination))

    def _bound(self, made: int | None, address: str | int) -> Iterator[pa.Table]:
        """Yield the keys that an epoch bound to an address."""
        if made not in self._bound_in:
            self._bound_in[made] = self._by_address(made)
        table = self._bound_in[made].get(json.dumps(address))
        if table is not None:
            yield table

    def _by_address(self, made: int | None) -> dict[str, pa.Table]:
        """Read an epoch's bindings once; return the keys that are bound to each address."""
        assert self.spec.key is not None, "a record-wise stage binds nobody"
        files = [file for file in self.bindings if file.epoch == made]
        parts = [table for file in files for table in read_bindings(file, self.spec.key)]
        if not parts:
            return {}
        bound = pa.concat_tables(parts)
        coded = pc.dictionary_encode(bound.column("_address").combine_chunks())
        codes = coded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(coded.dictionary) + 1)).tolist()
        keys = bound.select(list(self.spec.key.names)).rename_columns(list(self.layout.keys))
        keys = keys.take(pa.array(order)).combine_chunks()
        return {
            text: keys.slice(start, end - start)
            for text, start, end in zip(
                coded.dictionary.to_pylist(), starts, starts[1:], strict=False
            )
        }

    def _nobody(self) -> pa.Table:
        assert self.spec.key is not None
        empty = arrow_schema(self.spec.key).empty_table()
        return empty.rename_columns(list(self.layout.keys))


def _distinct(parts: Iterable[pa.Table], nobody: pa.Table) -> pa.Table:
    every = pa.concat_tables([nobody, *(part.cast(nobody.schema) for part in parts)])
    _, first = np.unique(row_codes([every])[0], return_index=True)
    return every.take(pa.array(np.sort(first)))


def _chained(one: Column, other: Column) -> pa.ChunkedArray:
    chunks = [c for part in (one, other) for c in _chunks(part)]
    return pa.chunked_array(chunks, one.type)


def _chunks(column: Column) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
