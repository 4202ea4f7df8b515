"""Which files of a Delta table hold the changes of a version, and which of their rows.

    files of changes        a version that has some: only these, and their rows say what they are
    removed, added          else: rows that were deleted, and rows that were inserted
    the same file in both   only what its two deletion vectors differ by

Files that only were rewritten (`dataChange: false`, as by OPTIMIZE) hold no change. Deletions come
before insertions. The table is written by others: paths that lead out of its folder are refused,
and what the protocol leaves open is refused, not guessed.

Source: Delta protocol, "Change Data Files", "Reader Requirements for Change Data Feed".
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyroaring import BitMap64

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
from cbp.model.flow.changes import DELETE, INSERT
from controller.ingest.formats.change_group import ChangeGroup
from controller.ingest.rejection import FileRejectedError

__all__ = ["ChangedRows", "changed_files", "gone", "has_change_feed", "unsupported"]

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
    """Return what of a table cannot be read; `""` if all can."""
    if metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        return "column mapping"
    features = () if protocol is None else protocol.reader_features
    return ", ".join(sorted({*features} - _READABLE))


@dataclass(slots=True)
class ChangedRows:
    """Rows of one file.

    Attributes:
        path: Absolute.
        partition: Values of the partition columns, as text.
        size, rows: Bytes and rows of the file, as the log says; `UNKNOWN` if it does not.
        change: What became of all the rows; `""` if each row says it.
        dead: Rows that are left out.
        only: If set, no other rows are taken.
        read, taken: How many rows `keep` was given, and has returned.
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
        """Compare the file, all of which was read, with what the log says of it.

        Args:
            size: Its bytes.

        Raises:
            FileRejectedError: `delta_damaged`.
        """
        for what, has, said in (("bytes", size, self.size), ("rows", self.read, self.rows)):
            if said not in (has, UNKNOWN):
                message = f"the file has {has} {what}, the table's log says {said}"
                raise FileRejectedError(rule="delta_damaged", message=message)


def changed_files(table: str, group: ChangeGroup) -> Iterator[ChangedRows]:
    """Yield the files of a group of versions, in order.

    Args:
        table: The table's folder, without links.
        group: What is read.

    Raises:
        FileRejectedError: `delta_version_gone`, `delta_table_replaced`, `delta_unsupported` or
            `delta_damaged`.
        OSError: The table cannot be reached now.
    """
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
        message = f"the log says no value of {missing[0]!r} for {file.path}"
        raise FileRejectedError(rule="delta_unsupported", message=message)
    path = _inside(table, unquote(file.path))
    dead = None if only is not None or isinstance(file, ChangeFile) else _vector(table, file)
    rows = file.rows if isinstance(file, AddFile) else UNKNOWN
    size = file.size or UNKNOWN  # that a removed file has one is optional
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
    """Return the place of a file that the log names; it is in the table's folder.

    Raises:
        FileRejectedError: `delta_unsupported`.
    """
    place = os.path.realpath(os.path.join(table, path))
    if not Path(place).is_relative_to(table):
        message = f"{path} is outside of the table's folder; such files are not read"
        raise FileRejectedError(rule="delta_unsupported", message=message)
    return place


def _require_table(metadata: Metadata, group: ChangeGroup) -> None:
    if metadata.id != group.table:
        message = (
            f"{group.words} are those of another table by now ({json.dumps(metadata.id)}); discard "
            "this file, and take the new table in as a source with another name"
        )
        raise FileRejectedError(rule="delta_table_replaced", message=message)


@contextmanager
def _rejected(table: str) -> Iterator[None]:
    """Turn errors of reading a table into rejections.

    Raises:
        OSError: The table is away as a whole: perhaps its disk is not mounted.
    """
    try:
        yield
    except FileRejectedError:
        raise
    except (NotFoundError, FileLostError) as error:
        raise gone(table, error.message) from error
    except CbpError as error:
        raise FileRejectedError(rule="delta_damaged", message=error.message) from error


def gone(table: str, what: str) -> FileRejectedError:
    """Return the rejection where a file of a table is gone.

    Raises:
        OSError: The table is away as a whole.
    """
    if not os.path.isdir(f"{table}/{LOG}"):
        raise FileNotFoundError(errno.ENOENT, "the table is not there", table)
    message = (
        f"{what}: VACUUM or the clean-up of the table's log removed it before it was read. Put it "
        "back and admit this file as it is; or discard it, and take the table in anew as a source "
        "with another name, which begins with all its rows"
    )
    return FileRejectedError(rule="delta_version_gone", message=message)
