"""Kept records that a window's inputs name, found together: one search for all groups.

    input records -> their second keys, by group -> binary searches in columns -> records

An author mostly looks up what a record of the group names: a link's URL, an order's item. So all
records with these keys are found at once, without any object per search. A guess that the author
does not use only costs time: each group finds other records itself
(`cbp.engine.kernel.kept_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, arrow_schema, arrow_type
from cbp.engine.columnar.groups import FlowRun, Ranges
from cbp.engine.columnar.kept_records import kept_shape, keys_reader
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.arrow.kept_state import KeptCall
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.second_key_order import SecondOrder
from cbp.model.dataflow.stage import InputSpec, StateSpec

Place = tuple[int, int]
"""The place of a record: index of the file, and row."""


class Found(NamedTuple):
    """The records of a kept state for the second keys that one group names.

    A key that several records name is repeated. `places` has the places of each key's live records.
    `records` has the record of each key, or `None` for a key without one; `records` itself is
    `None` if they were not read.
    """

    group: int
    seconds: Sequence[Row]
    places: Sequence[Sequence[Place]]
    records: Sequence[Row | None] | None


@dataclass(frozen=True, slots=True)
class Named:
    """The second keys that one input names, by group: as authors use them, and as columns."""

    sizes: Int64s
    seconds: list[Row]
    keys: pa.Table


def named_by(
    spec: StateSpec,
    inputs: Sequence[InputSpec],
    flows: Sequence[tuple[FlowRun, Ranges]],
    records: Sequence[Sequence[Row]],
) -> list[Named]:
    """Return the second keys named by a window's inputs, if the inputs have its columns.

    `flows` are their records, with the rows of each group, which follow each other; `records` are
    the same in the form that authors use.
    """
    second = spec.schema.select(spec.second_key)
    named: list[Named] = []
    for input_, (run, ranges), rows in zip(inputs, flows, records, strict=True):
        sizes = ranges.stops - ranges.starts
        types = {field.name: field.type for field in input_.schema.fields}
        if not (
            sizes.any() and len(second) and all(f.type == types.get(f.name) for f in second.fields)
        ):
            continue
        slots = [run.columns[input_.schema.index(name)] for name in second.names]
        table = run.table.slice(int(ranges.starts[0]), int(sizes.sum()))
        columns = [table.column(slot) for slot in slots]
        keys = pa.table(columns, names=list(second.names))
        # The author looks up values of these objects, whose hashes are computed once.
        seconds = list(keys_reader(input_.schema, second.names)(rows))
        named.append(Named(sizes, seconds, keys))
    return named


class NamedRecords:
    """The records of one kept state that the inputs of a window name."""

    def __init__(
        self,
        spec: StateSpec,
        call: KeptCall,
        named: Iterable[Named],
        read: Callable[[RecordPositions], list[Row]] | None,
    ) -> None:
        self._spec, self._call, self._named, self._read = spec, call, list(named), read

    def found(self, asked: tuple[int, Row]) -> Iterator[Found]:
        """Yield the state's records for the keys that each group names.

        If no input names the key that an author asked for in a group, it is looked up for every
        group, too.
        """
        named = [*self._named, *self._asked_of_all(*asked)]
        groups = np.concatenate([np.repeat(np.arange(len(n.sizes)), n.sizes) for n in named])
        places, records = self._located(groups, self._columns([one.keys for one in named]))
        start = 0
        for one in named:
            stops = np.cumsum(one.sizes)
            for group in np.flatnonzero(one.sizes).tolist():
                stop = int(stops[group])
                first = stop - int(one.sizes[group])
                mine = slice(start + first, start + stop)
                read = None if records is None else records[mine]
                yield Found(group, one.seconds[first:stop], places[mine], read)
            start += len(one.seconds)

    def _asked_of_all(self, group: int, second: Row) -> Iterator[Named]:
        """Yield a key for every group, unless this group's records name it."""
        for one in self._named:
            stop = int(one.sizes[: group + 1].sum())
            if second in one.seconds[stop - int(one.sizes[group]) : stop]:
                return
        schema, many = kept_shape(self._spec).schema, len(self._call.hashes)
        scalars = map(pa.scalar, second, arrow_schema(schema).types)
        columns = [pa.repeat(scalar, many) for scalar in scalars]
        yield Named(np.ones(many, np.int64), [second] * many, pa.table(columns, schema.names))

    def _columns(self, tables: Sequence[pa.Table]) -> pa.Table:
        schema = kept_shape(self._spec).schema
        wide = [arrow_type(column.type, wide=True) for column in schema.fields]
        return pa.concat_tables(
            pa.table(
                [column.cast(type_) for column, type_ in zip(one.columns, wide, strict=True)],
                names=list(schema.names),
            )
            for one in tables
        )

    def _located(
        self, groups: Int64s, second: pa.Table
    ) -> tuple[list[Sequence[Place]], list[Row | None] | None]:
        found, positions = self._call.locate(groups, second)
        where = list(zip(positions.file.tolist(), positions.position.tolist(), strict=True))
        if np.any(found[1:] == found[:-1]):  # keys with several records: every place counts
            several: list[Sequence[Place]] = [()] * len(groups)
            for at, place in zip(found.tolist(), where, strict=True):
                several[at] = (*several[at], place)
            return several, None
        at = np.full(len(groups), len(found))
        at[found] = np.arange(len(found))
        numbers = at.tolist()
        each: list[Sequence[Place]] = [*zip(where), ()]
        places = list(map(each.__getitem__, numbers))
        if self._read is None:
            return places, None
        read: list[Row | None] = [*(self._read(positions) if where else ()), None]
        return places, list(map(read.__getitem__, numbers))

    def ranges(self) -> list[tuple[int, SecondOrder, int, list[int], list[int]]]:
        """Return the values of `FileRanges`, as lists, for each file that has rows of groups."""
        return [
            (one.at, one.order, one.first, one.starts.tolist(), one.stops.tolist())
            for one in self._call.ranges
        ]
