"""Reads the changes of some versions of a Delta table, each row with its sign.

    insert          +1
    update_before   -1   Delta's update_preimage
    update_after    +1   Delta's update_postimage
    delete          -1

The claimed file names the versions (`ChangeGroup`). It holds no records, so it is claimed,
recognised and moved like any dropped file. The folder of the table is the source's, never the
file's.

    {"table": "39716b38-...", "first": 5, "last": 12, "partitions": ["day"]}
    {"table": "39716b38-...", "snapshot": 4, "partitions": []}

`changed_files` says which rows of which files changed in a version:

    files of changes        if the version has some, only these: each row names its change
    removed, added          otherwise: the rows were deleted, or inserted
    the same file in both   only the rows in which its two deletion vectors differ

Files that were only rewritten (`dataChange: false`, as by OPTIMIZE) hold no change. Deletions come
before insertions. The table is written by others: paths that lead out of its folder are refused,
and what the protocol leaves open is refused, not guessed. Each data file is read and checked as a
dropped Parquet file is. Wrong rows are counted over all files, from 1.

Source: Delta protocol, "Change Data Files", "Reader Requirements for Change Data Feed".
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.engine.delta.actions import (
    Action,
    AddFile,
    ChangeFile,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
)
from cbp.engine.delta.deletion_vectors import read_vector, rows_of, vector_path
from cbp.engine.delta.log import DeltaLog
from cbp.engine.storage.files import LocalFiles
from cbp.errors import CbpError, FileLostError, NotFoundError
from cbp.model.flow.schema import DataType, Field, Schema
from cbp.model.flow.signed_changes import DELETE, INSERT, SIGNS, UPDATE_AFTER, UPDATE_BEFORE
from cbp.model.source.options import DeltaOptions, ValueRules
from controller.ingest.formats.bad_lines import BadLines, Reading
from controller.ingest.formats.columns import ColumnBuilder
from controller.ingest.formats.file_bytes import ClaimedContent
from controller.ingest.formats.parquet import read_parquet
from controller.ingest.rejection import FileRejectedError

BYTES_MAX = 1 << 16
_NAME = re.compile(r"(?:versions-\d{20}|snapshot)-(\d{20})\.json", re.ASCII)


def is_group_name(name: str) -> bool:
    """Return whether a file may be a `ChangeGroup`, by its name."""
    return _NAME.fullmatch(name) is not None


def last_version(name: str) -> int:
    """Return the last version of a group, by the name of its file."""
    match = _NAME.fullmatch(name)
    assert match, name
    return int(match[1])


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """The part of a table for one increment: the changes of versions `first` to `last`.

    For a `snapshot`, all rows of version `last` are read instead, each as an insert.
    """

    table: str
    first: int
    last: int
    partitions: tuple[str, ...] = ()
    snapshot: bool = False

    @property
    def name(self) -> str:
        """The name of the file."""
        if self.snapshot:
            return f"snapshot-{self.last:020d}.json"
        return f"versions-{self.first:020d}-{self.last:020d}.json"

    @property
    def words(self) -> str:
        """A description for people."""
        if self.snapshot:
            return f"the rows of version {self.last}"
        if self.first == self.last:
            return f"the changes of version {self.last}"
        return f"the changes of versions {self.first} to {self.last}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        versions = (
            {"snapshot": self.last} if self.snapshot else {"first": self.first, "last": self.last}
        )
        return {"table": self.table, **versions, "partitions": list(self.partitions)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ChangeGroup:
        """Read the output of `to_json`; raises `KeyError`, `TypeError` or `ValueError`."""
        snapshot = "snapshot" in value
        first, last = (value["snapshot" if snapshot else name] for name in ("first", "last"))
        table, partitions = value["table"], value["partitions"]
        texts = [table, *partitions]
        if not all(type(number) is int for number in (first, last)) or not 0 <= first <= last:
            message = f"expected version numbers, got {first!r} and {last!r}"
            raise ValueError(message)
        if type(partitions) is not list or not all(type(text) is str for text in texts):
            message = "a table's id and columns must be strings"
            raise TypeError(message)
        return cls(table, first, last, tuple(partitions), snapshot)

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        return json.dumps(self.to_json()).encode() + b"\n"

    @classmethod
    def decoded(cls, data: bytes) -> ChangeGroup:
        """Read the bytes of a file; raises `ValueError` if they are not such a file."""
        try:
            return cls.from_json(json.loads(data))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(str(error)) from error


_READABLE = frozenset(
    {
        "columnMapping",  # unless it is in use
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
LOG = "_delta_log"
UNKNOWN = -1


def has_change_feed(metadata: Metadata) -> bool:
    """Return whether writers of the table record changes."""
    return metadata.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"


def unsupported(metadata: Metadata, protocol: Protocol | None) -> str:
    """Return the unreadable features of a table; `""` if there are none."""
    if metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        return "column mapping"
    features = () if protocol is None else protocol.reader_features
    return ", ".join(sorted({*features} - _READABLE))


@dataclass(slots=True)
class ChangedRows:
    """Wanted rows of one file: all of one type (`change`), or each of its own (`""`).

    `size` and `rows` describe the file in the log; `UNKNOWN` if the log lacks them.
    """

    path: str
    partition: Mapping[str, str | None]
    size: int
    rows: int
    change: str
    dead: BitMap64 | None = None
    only: BitMap64 | None = None
    read: int = 0
    taken: int = 0

    def keep(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return the wanted rows of a batch that begins with row `first` of the file."""
        self.read += batch.num_rows
        if self.dead is not None or self.only is not None:
            rows = BitMap64()
            rows.add_range(first, first + batch.num_rows)
            if self.only is not None:
                rows &= self.only
            if self.dead is not None:
                rows -= self.dead
            if len(rows) < batch.num_rows:
                batch = batch.take(pa.array(rows_of(rows) - first))
        self.taken += batch.num_rows
        return batch

    def check_counts(self, size: int) -> None:
        """Compare the file, once it was read, with its entry in the log; raises `delta_damaged`."""
        for what, has, said in (("bytes", size, self.size), ("rows", self.read, self.rows)):
            if said not in (has, UNKNOWN):
                message = f"the file has {has} {what}, but the table's log says {said}"
                raise FileRejectedError("delta_damaged", message)


def changed_files(table: str, group: ChangeGroup) -> Iterator[ChangedRows]:
    """Yield the files of a group of versions, in order; raises a `delta_...` rule or `OSError`."""
    log = DeltaLog(table, LocalFiles())
    if group.snapshot:
        with _rejected(table):
            snapshot = log.snapshot(group.last)
        _require_table(snapshot.metadata, group)
        for file in snapshot.live.values():
            yield _rows(table, group, file, INSERT)
        return
    for version in range(group.first, group.last + 1):
        with _rejected(table):
            actions = log.entry(version)
        for action in actions:
            if isinstance(action, Metadata):
                _require_table(action, group)
        yield from _of_version(table, group, actions)


def _of_version(table: str, group: ChangeGroup, actions: Sequence[Action]) -> Iterator[ChangedRows]:
    changes = [one for one in actions if isinstance(one, ChangeFile)]
    if changes:
        for change in changes:
            yield _rows(table, group, change, "")
        return
    removed = {a.path: a for a in actions if isinstance(a, RemoveFile) and a.data_change}
    added = {a.path: a for a in actions if isinstance(a, AddFile) and a.data_change}
    for path, remove in removed.items():
        if path not in added:
            yield _rows(table, group, remove, DELETE)
            continue
        before, after = _vector(table, remove), _vector(table, added[path])
        if deleted := (after or BitMap64()) - (before or BitMap64()):
            yield _rows(table, group, added[path], DELETE, deleted)
        if restored := (before or BitMap64()) - (after or BitMap64()):
            yield _rows(table, group, added[path], INSERT, restored)
    for path, add in added.items():
        if path not in removed:
            yield _rows(table, group, add, INSERT)


def _rows(
    table: str,
    group: ChangeGroup,
    file: AddFile | RemoveFile | ChangeFile,
    change: str,
    only: BitMap64 | None = None,
) -> ChangedRows:
    if missing := [name for name in group.partitions if name not in file.partition_values]:
        message = f"the log has no value of partition column {missing[0]!r} for {file.path}"
        raise FileRejectedError("delta_unsupported", message)
    path = _inside(table, unquote(file.path))
    dead = None if only is not None or isinstance(file, ChangeFile) else _vector(table, file)
    rows = file.rows if isinstance(file, AddFile) else UNKNOWN
    size = file.size or UNKNOWN  # optional for a removed file
    return ChangedRows(path, file.partition_values, size, rows, change, dead, only)


def _vector(table: str, file: AddFile | RemoveFile) -> BitMap64 | None:
    vector: DeletionVector | None = file.deletion_vector
    if vector is None:
        return None
    with _rejected(table):
        if (path := vector_path(vector)) is not None:
            _inside(table, path)
        return read_vector(table, vector)


def _inside(table: str, path: str) -> str:
    """Return the path of a file that the log names; raises if it is outside the table's folder."""
    place = os.path.realpath(os.path.join(table, path))
    if not Path(place).is_relative_to(table):
        message = f"{path} is outside the table's folder; such files are not read"
        raise FileRejectedError("delta_unsupported", message)
    return place


def _require_table(metadata: Metadata, group: ChangeGroup) -> None:
    if metadata.id != group.table:
        message = (
            f"{group.words} now belong to a different table ({json.dumps(metadata.id)}). Discard "
            "this file, and read the new table through a source with another name"
        )
        raise FileRejectedError(rule="delta_table_replaced", message=message)


@contextmanager
def _rejected(table: str) -> Iterator[None]:
    """Turn errors of reading a table into rejections; `OSError` if the table is missing."""
    try:
        yield
    except FileRejectedError:
        raise
    except (NotFoundError, FileLostError) as error:
        raise gone(table, error.message) from error
    except CbpError as error:
        raise FileRejectedError("delta_damaged", error.message) from error


def gone(table: str, what: str) -> FileRejectedError:
    """Return the rejection of a missing file; raises `OSError` if the whole table is missing."""
    if not os.path.isdir(f"{table}/{LOG}"):
        raise FileNotFoundError(errno.ENOENT, "the table is missing", table)
    message = (
        f"{what}: VACUUM or the clean-up of the table's log removed it before the source read it. "
        "Restore it and readmit this file unchanged. Or discard this file, and read the table "
        "through a source with another name, which begins with all rows"
    )
    return FileRejectedError("delta_version_gone", message)


CHANGE, IS_CHANGE = "_change_type", "__is_cdc"
"""Columns with the type of each change, which Spark also leaves in ordinary data files."""

_NAMES = {
    "insert": INSERT,
    "update_preimage": UPDATE_BEFORE,
    "update_postimage": UPDATE_AFTER,
    "delete": DELETE,
}


def read_changes(content: ClaimedContent, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the changed rows with the source's schema, in the order of the table's versions."""
    data = content.read(BYTES_MAX)
    content.finish()
    try:
        group = ChangeGroup.decoded(data)
    except ValueError as error:
        message = (
            "this source reads its records from a Delta table, not from dropped files; drop files "
            "into another source"
        )
        raise FileRejectedError("format_mismatch", message, cause=str(error)[:200]) from error
    reader = _Reader(content, reading)
    for rows in changed_files(reading.options.delta.table, group):
        yield from reader.batches(rows, group)


class _Reader:
    def __init__(self, content: ClaimedContent, reading: Reading) -> None:
        self._content, self._reading, self._options = content, reading, reading.options
        self._schema, self._target, self._line = reading.schema, arrow_schema(reading.schema), 0

    def batches(self, rows: ChangedRows, group: ChangeGroup) -> Iterator[pa.RecordBatch]:
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
                    replace(self._reading, schema=schema),
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
        made: dict[str, pa.Scalar] = {}
        for name in group.partitions:
            if name not in self._schema.names:
                if not self._options.rules.ignore_unknown:
                    message = f"the table's partition column {name!r} is not in the source's schema"
                    raise FileRejectedError("column_unknown", message, column=name)
                self._reading.notes.extra_columns([name])
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

    Made at the first use, not at import: to make them, Arrow imports pandas unless the reader
    process has hidden it by then (`reader_process`).
    """
    added = [name for name, sign in SIGNS.items() if sign > 0]
    return pa.array(added), pa.array([*_NAMES]), pa.array([*_NAMES.values()])


def _renamed(types: pa.Array) -> pa.Array:
    _, theirs, ours = _arrays()
    places = pc.index_in(types, theirs)
    if places.null_count:
        strange = pc.filter(types, places.is_null())[0].as_py()
        message = f"the change data feed has a change of unknown type {str(strange)[:50]!r}"
        raise FileRejectedError("delta_damaged", message)
    return ours.take(places)
