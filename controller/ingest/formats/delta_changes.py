"""Reads the changes of some versions of a Delta table, each row with its sign.

    insert          +1
    update_before   -1   Delta's update_preimage
    update_after    +1   Delta's update_postimage
    delete          -1

The claimed file says which versions (`change_group`); `changed_files` says which rows of which
files. Each data file is read and checked as a dropped Parquet file is. Columns that a file lacks
are null, and columns that the schema lacks are refused or left out as the source's option `unknown`
says. Wrong rows are counted over all files, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.model.dataflow.nodes import SourceNode
from cbp.model.dataflow.source_options import DeltaOptions, ReadOptions, ValueRules
from cbp.model.flow.changes import DELETE, INSERT, SIGNS, UPDATE_AFTER, UPDATE_BEFORE
from cbp.model.flow.schema import DataType, Field, Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.change_group import BYTES_MAX, ChangeGroup
from controller.ingest.formats.column_builder import ColumnBuilder
from controller.ingest.formats.content import ClaimedContent
from controller.ingest.formats.delta import ChangedRows, changed_files, gone
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.parquet import read_parquet
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

__all__ = ["read_changes"]

CHANGE, IS_CHANGE = "_change_type", "__is_cdc"
"""Columns that say what a row of changes is. Spark leaves them in files of rows, too."""

_NAMES = {
    "insert": INSERT,
    "update_preimage": UPDATE_BEFORE,
    "update_postimage": UPDATE_AFTER,
    "delete": DELETE,
}


def read_changes(
    content: ClaimedContent,
    source: SourceNode,
    options: ReadOptions,
    limits: IngestLimits,
    notes: Notes,
    bad: BadLines,
) -> Iterator[pa.RecordBatch]:
    """Yield the changed rows with the source's schema, in the order of the table's versions.

    Args:
        content: The claimed file.
        source: With the table's folder, without links, in its options.
        options: The source's.
        limits, notes, bad: As for `read_batches`.

    Raises:
        FileRejectedError: `format_mismatch`, a `delta_...` rule, or what `read_parquet` raises.
        OSError: The table cannot be reached now.
    """
    data = content.read(BYTES_MAX)
    content.finish()
    try:
        group = ChangeGroup.decoded(data)
    except ValueError as error:
        message = "this source takes in the changes of its table; drop files into another source"
        raise FileRejectedError(
            rule="format_mismatch", message=message, cause=str(error)[:200]
        ) from error
    reader = _Reader(content, source.schema, options, limits, notes, bad)
    for rows in changed_files(options.delta.table, group):
        yield from reader.batches(rows, group)


class _Reader:
    """Reads the files of one group."""

    def __init__(
        self,
        content: ClaimedContent,
        schema: Schema,
        options: ReadOptions,
        limits: IngestLimits,
        notes: Notes,
        bad: BadLines,
    ) -> None:
        self._content, self._schema, self._options = content, schema, options
        self._limits, self._notes, self._bad = limits, notes, bad
        self._target, self._line = arrow_schema(schema), 0

    def batches(self, rows: ChangedRows, group: ChangeGroup) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        delta = self._options.delta
        constants = self._constants(rows, group)
        others = {*constants, delta.sign, delta.change_type}
        fields = [field for field in self._schema.fields if field.name not in others]
        if not rows.change:
            fields.append(Field(CHANGE, DataType("STRING"), nullable=False))
        schema, name = Schema(tuple(fields)), rows.path.rpartition("/")[2]
        try:
            with self._content.beside(rows.path) as file:
                for batch in read_parquet(
                    file,
                    schema,
                    self._options.rules,
                    self._limits,
                    self._notes,
                    self._bad,
                    keep=rows.keep,
                    line=self._line,
                    aside=(*group.partitions, IS_CHANGE, *([CHANGE] if rows.change else [])),
                ):
                    yield self._joined(batch, rows.change, constants, delta)
                rows.check_counts(file.size)
        except FileNotFoundError as error:
            raise gone(self._options.delta.table, f"{name} is gone") from error
        except FileRejectedError as error:
            arguments = error.arguments()
            message = f"{group.words}, in {name} of the table: {error.message}"
            raise FileRejectedError(**arguments | {"message": message}) from error
        self._line += rows.taken

    def _constants(self, rows: ChangedRows, group: ChangeGroup) -> dict[str, pa.Scalar]:
        """Return the values of the partition columns that the source declares."""
        made: dict[str, pa.Scalar] = {}
        for name in group.partitions:
            if name not in self._schema.names:
                if not self._options.rules.ignore_unknown:
                    message = f"the table's partition column {name!r} is not in the source's schema"
                    raise FileRejectedError(rule="column_unknown", message=message, column=name)
                self._notes.extra_columns([name])
                continue
            text = rows.partition[name] or None  # an empty text means null
            rules = self._options.rules
            utc = ValueRules(zone=rules.zone or UTC)
            builder, bad = ColumnBuilder(self._schema[name], utc, text=True), BadLines()
            array = builder.array([text], [self._line + 1], bad)
            if array is None:
                raise bad.error(more=True)
            made[name] = array[0]
        return made

    def _joined(
        self,
        batch: pa.RecordBatch,
        change: str,
        constants: dict[str, pa.Scalar],
        delta: DeltaOptions,
    ) -> pa.RecordBatch:
        """Return a batch with the columns that its file does not have."""
        count = batch.num_rows
        types = pa.repeat(pa.scalar(change), count) if change else _renamed(batch.column(CHANGE))
        signs = pc.if_else(pc.is_in(types, _arrays()[0]), 1, -1)
        arrays = []
        for field in self._schema.fields:
            if field.name == delta.sign:
                arrays.append(signs.cast(arrow_type(field.type)))
            elif field.name == delta.change_type:
                arrays.append(types)
            elif field.name in constants:
                arrays.append(pa.repeat(constants[field.name], count))
            else:
                arrays.append(batch.column(field.name))
        return pa.record_batch(arrays, schema=self._target)


@cache
def _arrays() -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the changes that add a row, the log's names of changes, and ours.

    Made at the first use: Arrow would import pandas before a reader process can say that there is
    none.
    """
    added = [name for name, sign in SIGNS.items() if sign > 0]
    return pa.array(added), pa.array([*_NAMES]), pa.array([*_NAMES.values()])


def _renamed(types: pa.Array) -> pa.Array:
    """Return our names of Delta's types of changes."""
    _, theirs, ours = _arrays()
    places = pc.index_in(types, theirs)
    if places.null_count:
        strange = pc.filter(types, places.is_null())[0].as_py()
        message = f"a change has the type {str(strange)[:50]!r}, which Delta does not have"
        raise FileRejectedError(rule="delta_damaged", message=message)
    return ours.take(places)
