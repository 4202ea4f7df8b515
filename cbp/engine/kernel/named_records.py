"""Kept records that a window's inputs name, found together: one search for all groups.

    input records -> their second keys, by group -> binary searches in columns -> places, records

An author mostly looks up what a record of the group names: a link's URL, an order's item. So the
columns of the second key are taken from each input that has them, and all records with these keys
are found at once, without any object per search. A guess that the author does not use costs time
only: each group is still asked by its author, and finds others by itself
(`cbp.engine.kernel.kept_groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.engine.columnar.groups import FlowRun, Ranges
from cbp.engine.columnar.kept_records import kept_shape
from cbp.engine.columnar.row_codec import Row, decode_columns
from cbp.engine.kernel.arrow.kept_state import KeptCall
from cbp.engine.state.second_key_order import SecondOrder
from cbp.model.dataflow.stage import InputSpec, StateSpec
from cbp.model.flow.schema import Schema

Int64s = npt.NDArray[np.int64]

Named = tuple[Int64s, pa.Table]
"""Groups, by number, and beside each a second key that a record of it names."""

Place = tuple[int, int]
"""The place of a record: index of the file, and row."""


def named_by(
    spec: StateSpec, inputs: Sequence[InputSpec], flows: Sequence[tuple[FlowRun, Ranges]]
) -> list[Named]:
    """Return what the inputs of a window name, for each that has the columns of the second key.

    Args:
        spec: The kept state.
        inputs: The inputs.
        flows: Their records, and the rows of each group in them, which follow each other.
    """
    second = spec.schema.select(spec.second_key)
    named: list[Named] = []
    for input_, (run, ranges) in zip(inputs, flows, strict=True):
        sizes = ranges.stops - ranges.starts
        if _has(input_.schema, second) and sizes.any():
            slots = [run.columns[input_.schema.index(name)] for name in second.names]
            table = run.table.slice(int(ranges.starts[0]), int(sizes.sum()))
            columns = [table.column(slot) for slot in slots]
            keys = pa.table(columns, names=list(second.names))
            named.append((np.repeat(np.arange(len(sizes)), sizes), keys))
    return named


def _has(schema: Schema, columns: Schema) -> bool:
    """Return whether a schema has some columns, at least one, of the same types."""
    fields = columns.fields
    return bool(fields) and all(f.name in schema and schema[f.name].type == f.type for f in fields)


class NamedRecords:
    """The records of one kept state that the inputs of a window name.

    Args:
        spec: The state.
        call: Finds its records for the groups of the window.
        named: What the inputs name.
    """

    def __init__(self, spec: StateSpec, call: KeptCall, named: Iterable[Named]) -> None:
        self._spec, self._call, self._named = spec, call, named

    def places(self, asked: tuple[int, Row]) -> Iterator[tuple[int, Row, tuple[Place, ...]]]:
        """Yield each key that is named: its group, the key, and where its live records lie.

        A key that several records name comes several times.

        Args:
            asked: The group and the key for which an author asks. If no input names it, it comes
                for every group, too.
        """
        shape = kept_shape(self._spec)
        names, types = shape.schema.names, [column.type for column in shape.schema.fields]
        parts, seconds, tables = [np.empty(0, np.int64)], list[Row](), []
        for numbers, keys in self._named:
            parts.append(numbers)
            seconds += shape.compared(decode_columns(keys, names, types))
            tables.append(keys)
        number, second = asked
        mine = np.flatnonzero(np.concatenate(parts) == number).tolist()
        if second not in [seconds[at] for at in mine]:
            parts.append(every := np.arange(len(self._call.hashes)))
            seconds += [second] * len(every)
            scalars = map(pa.scalar, second, arrow_schema(shape.schema).types)
            columns = [pa.repeat(scalar, len(every)) for scalar in scalars]
            tables.append(pa.table(columns, names=list(names)))
        wide = [arrow_type(type_, wide=True) for type_ in types]
        tables = [
            pa.table(
                [column.cast(type_) for column, type_ in zip(one.columns, wide, strict=True)],
                names=list(names),
            )
            for one in tables
        ]
        groups = np.concatenate(parts)
        found, positions = self._call.locate(groups, pa.concat_tables(tables))
        places: list[tuple[Place, ...]] = [()] * len(groups)
        lies = zip(positions.file.tolist(), positions.position.tolist(), strict=True)
        for at, place in zip(found.tolist(), lies, strict=True):
            places[at] = (*places[at], place)
        yield from zip(groups.tolist(), seconds, places, strict=True)

    def ranges(self) -> list[tuple[int, SecondOrder, list[int], list[int]]]:
        """Return each file that has rows of the groups: index, order, and each group's places."""
        return [
            (at, order, starts.tolist(), stops.tolist())
            for at, order, starts, stops in self._call.ranges
        ]
