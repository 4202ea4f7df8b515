"""Reads claimed files: checks every record, and writes the parts of one increment.

    whole        a single file, or all files of a manifest: every file, of any size, has an outcome,
                 and there are parts only if all are sound. Records are written as they are read
    otherwise    many small files: a file's records are gathered in memory, and join the increment
                 only once the whole file was checked. A refused file is in no part, and the batch
                 continues. Another failure (too large for memory, a failed device, an unexpected
                 error) ends the batch before that file, which the caller then reads alone

Guaranteed: the outcomes are those of the first files, in order; none if the first file has to be
read alone. A reader that returns has written every part completely, under a temporary name. If it
raises, `PartNames.discard` removes what it left. No part is visible or durable before the intake
syncs it and gives it its name.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from cbp.engine.columnar.key_index import GroupKey
from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import SourceNode
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.formats.bad_lines import Notes
from controller.ingest.formats.file_bytes import ClaimedContent, ignore_progress, never
from controller.ingest.formats.format_readers import read_batches
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.increment_parts import PartWriter, WrittenPart
from controller.ingest.reader.source_suggestion import suggest_columns
from controller.ingest.rejection import FileRejectedError, unforeseen

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """One file to read; `file` is the name under which it was dropped."""

    path: str
    size: int
    claim: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Files to read, at least one, and the place of their increment; can be sent to a process.

    Attributes:
        source: With the options that readers need (`SourcePlace.as_read`).
        seconds: After this time no other file is begun, so that slow files delay no other source.
        draft: Whether its output is only compared with an earlier file and removed.
    """

    files: tuple[ClaimedFile, ...]
    source: SourceNode
    folder: str
    index: int
    limits: IngestLimits
    seconds: float = math.inf
    whole: bool = True
    keys: tuple[GroupKey, ...] = ()
    draft: bool = False

    @property
    def path(self) -> str:
        """The first file, for messages."""
        return self.files[0].path

    def writer(self, claim: str) -> PartWriter:
        """Return the writer of the increment's parts, named after a claim."""
        return PartWriter(
            self.folder,
            index=self.index,
            claim=claim,
            schema=self.source.schema,
            limits=self.limits,
            keys=self.keys,
            draft=self.draft,
        )


@dataclass(frozen=True, slots=True)
class SoundFile:
    """A file that can be accepted: its number of records, its SHA-256 in hex, and remarks."""

    records: int
    sha256: str
    notes: Mapping[str, Any]


FileOutcome = SoundFile | FileRejectedError
Write = Callable[[Iterable[pa.RecordBatch]], object]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading the first files.

    `claim` is the id of the claim that names the parts; `""` if there are none.
    """

    claim: str
    parts: tuple[WrittenPart, ...]
    outcomes: tuple[FileOutcome, ...]


@dataclass(frozen=True, slots=True)
class StuckReader:
    """A reader that has made no progress for some time."""

    path: str
    file: str
    source: str
    silent_seconds: float
    ends_in_seconds: float

    @property
    def words(self) -> str:
        """Description for an operator."""
        return (
            f"the process that reads {self.file!r} has made no progress for "
            f"{self.silent_seconds:.0f} s: the disk does not answer, or the process was stopped. "
            f"In {self.ends_in_seconds:.0f} s the service ends the process and reads the file "
            "again. Until then other files of the source wait"
        )


class FileReader(Protocol):
    """Reads files; called by several threads at once.

    Reading a file may take any amount of time and memory. So a service reads in a process that it
    can end (`reader_pool`), and a simulation reads in its own thread (`read_files`).
    """

    def __call__(
        self,
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        """Read the first files, as many as possible; all if they are read `whole`. Blocks.

        Once `hurried` returns true, no other file is begun; it is not called if files are read
        `whole`. Raises `IntakeStoppedError` once `stopping` returned true; `OSError` if the device
        failed, or is full.
        """
        ...


class _LargeError(Exception):
    """A file has more records than a batch may hold in memory."""


def read_files(
    request: ReadRequest,
    stopping: Callable[[], bool] = never,
    hurried: Callable[[], bool] = never,
    *,
    worked: Callable[[int], object] = ignore_progress,
    begun: Callable[[int], object] = ignore_progress,
) -> ReadResult:
    """Read files in this thread; `FileReader` lists the errors."""
    if request.whole:
        return _read_whole(request, stopping, worked, begun)
    outcomes, claim = list[FileOutcome](), ""
    writer: PartWriter | None = None
    try:
        for position, file in enumerate(request.files):
            if position and hurried():
                break
            begun(position)
            try:
                batches, sound = _gathered(request, file, stopping, worked)
            except FileRejectedError as error:
                outcomes.append(_refused(error, request, file))
                continue
            except IntakeStoppedError:
                raise
            except Exception:
                break  # read by itself, the file gets its own outcome
            if writer is None:
                claim = file.claim
                writer = request.writer(claim)
            writer.write(batches)
            outcomes.append(sound)
        parts = () if writer is None else writer.finish()
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    return ReadResult(claim, parts, tuple(outcomes))


def _read_whole(
    request: ReadRequest,
    stopping: Callable[[], bool],
    worked: Callable[[int], object],
    begun: Callable[[int], object],
) -> ReadResult:
    """Read all files; the parts are there only if every file is sound."""
    outcomes, refused = list[FileOutcome](), False
    claim = request.files[0].claim
    writer = request.writer(claim)
    try:
        for position, file in enumerate(request.files):
            begun(position)
            # After a refused file the others are only checked, so that all mistakes are reported.
            write: Write = list if refused else writer.write
            try:
                outcomes.append(_read(write, request, file, stopping, worked))
                continue
            except FileRejectedError as error:
                outcomes.append(_refused(error, request, file))
            except (CbpError, OSError, MemoryError):
                raise
            except Exception as error:  # whatever failed, this file is refused; see `unforeseen`
                _log.exception("reading %s of source %s failed", file.path, request.source.name)
                outcomes.append(unforeseen(error))
            refused = True
        if refused:
            writer.discard()
            return ReadResult("", (), tuple(outcomes))
        return ReadResult(claim, writer.finish(), tuple(outcomes))
    except BaseException:
        writer.discard()
        raise


def _refused(
    error: FileRejectedError, request: ReadRequest, file: ClaimedFile
) -> FileRejectedError:
    """Return the outcome of a file; new columns are proposed with the types that it suggests."""
    if error.rule == "column_unknown":
        columns = suggest_columns(Path(file.path), request.source)
        error = error.proposing([f"{one.name} {one.type}" for one in columns], request.source.name)
    # A new error: the tracebacks of the old one and its causes would keep the records in memory.
    return FileRejectedError(**error.arguments())


def _gathered(
    request: ReadRequest,
    file: ClaimedFile,
    stopping: Callable[[], bool],
    worked: Callable[[int], object],
) -> tuple[list[pa.RecordBatch], SoundFile]:
    """Read a file into memory; raises `_LargeError` if it has more than a row group."""
    gathered, size = list[pa.RecordBatch](), 0

    def gather(batches: Iterable[pa.RecordBatch]) -> None:
        nonlocal size
        for batch in batches:
            gathered.append(batch)
            size += batch.nbytes
        if size > request.limits.row_group_bytes:
            raise _LargeError

    sound = _read(gather, request, file, stopping, worked)
    return gathered, sound


def _read(
    write: Write,
    request: ReadRequest,
    file: ClaimedFile,
    stopping: Callable[[], bool],
    worked: Callable[[int], object],
) -> SoundFile:
    """Read a file; its batches are written one by one, before the whole file was checked."""
    notes, records = Notes(), 0
    with ClaimedContent(file.path, request.limits, stopping, worked) as content:
        if content.size != file.size:
            message = (
                f"the file had {file.size} bytes when it was claimed, but has {content.size} now; "
                "write files under a name that ends in .part, and rename them when complete"
            )
            raise FileRejectedError("file_changed", message)
        for batch in read_batches(content, request.source, request.limits, notes, file=file.file):
            # Asked between batches too: Parquet and highly compressed files cause few reads.
            content.go_on(batch.nbytes)
            write((batch,))
            records += batch.num_rows
        sha256 = content.finish()
    return SoundFile(records, sha256, notes.to_json())
