"""Reads many small claimed files into the parts of one increment.

A file's records are gathered in memory and join the increment only once the whole file was
checked. So a file that is rejected leaves nothing behind, and the others go on.

    sound       its records follow those of the file before it
    refused     its records are in no part; the batch goes on
    anything else: too large for memory, a failed device, an error that nobody foresaw
                the batch ends before it; the caller reads this file by itself, which decides

Guaranteed: the outcomes are those of the first files, in order; none if the first file has to be
read by itself. As with one file, no part is visible or durable before the intake syncs and names
it.

The files of a manifest are read `whole`: there is an outcome for every file, of whatever size, and
there are parts only if every file is sound. So their records need not be gathered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import SourceNode
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.formats.content import ClaimedContent, ignore_progress, never
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.record_batches import read_batches
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import IncrementRequest, require_size
from controller.ingest.reader.increment_parts import PartWriter, WrittenPart
from controller.ingest.rejection import FileRejectedError, unforeseen

__all__ = [
    "BatchFile",
    "BatchRead",
    "BatchReader",
    "BatchRequest",
    "RefusedFile",
    "SoundFile",
    "read_batch",
]


@dataclass(frozen=True, slots=True)
class BatchFile:
    """One file to read.

    Attributes:
        path: The claimed copy.
        size: Its bytes when it was claimed.
        claim: Id of its claim.
        file: The name under which it was dropped.
    """

    path: str
    size: int
    claim: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest(IncrementRequest):
    """Files to read for one increment.

    Attributes:
        files: At least one, in the order of their records.
        seconds: After this time no other file is begun, so that slow files delay no other source.
        whole: Whether the files are taken in together or not at all.
    """

    files: tuple[BatchFile, ...]
    seconds: float = math.inf
    whole: bool = False

    @property
    def path(self) -> str:
        """The first file, for messages."""
        return self.files[0].path


@dataclass(frozen=True, slots=True)
class SoundFile:
    """A file that can be accepted: its number of records, its SHA-256 in hex, and remarks."""

    records: int
    sha256: str
    notes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that was rejected: the arguments of the `FileRejectedError`."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BatchRead:
    """What was read of the first files of a batch.

    Attributes:
        claim: Id of the claim that names the parts; `""` if there are none.
        parts: Hold the records of all sound files, in order.
        outcomes: One for each file that was read.
    """

    claim: str
    parts: tuple[WrittenPart, ...]
    outcomes: tuple[SoundFile | RefusedFile, ...]


class BatchReader(Protocol):
    """Reads batches; called by several threads at once."""

    def __call__(self, request: BatchRequest, stopping: Callable[[], bool] = never) -> BatchRead:
        """Read the first files of a batch, as many as possible; blocks.

        Raises:
            IntakeStoppedError: `stopping` returned true.
            OSError: The device of the increments failed, or is full.
        """
        ...


class _LargeError(Exception):
    """A file has more records than a batch may hold in memory."""


def read_batch(
    request: BatchRequest,
    stopping: Callable[[], bool] = never,
    *,
    worked: Callable[[int], object] = ignore_progress,
    begun: Callable[[int], object] = ignore_progress,
    late: Callable[[], bool] = never,
) -> BatchRead:
    """Read a batch in this thread; `BatchReader` lists the errors.

    Args:
        request: What to read.
        stopping: Returns whether to stop.
        worked: Called with the number of bytes read or decoded since its last call.
        begun: Called with the position of each file before it is read.
        late: Returns whether to begin no other file; this thread knows no time.
    """
    if request.whole:
        return _read_whole(request, stopping, worked, begun)
    source, outcomes = request.node, list[SoundFile | RefusedFile]()
    writer: PartWriter | None = None
    claim = ""
    try:
        for position, file in enumerate(request.files):
            if position and late():
                break
            begun(position)
            try:
                batches, sound = _read_one(file, source, request.limits, stopping, worked)
            except FileRejectedError as error:
                outcomes.append(RefusedFile(error.arguments()))
                continue
            except IntakeStoppedError:
                raise
            except Exception:
                break  # read by itself, the file gets its own outcome; see the module header
            if writer is None:
                claim = file.claim
                writer = request.writer(claim)
            writer.gather(batches)
            outcomes.append(sound)
        parts = () if writer is None else writer.finish()
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    return BatchRead(claim, parts, tuple(outcomes))


def _read_whole(
    request: BatchRequest,
    stopping: Callable[[], bool],
    worked: Callable[[int], object],
    begun: Callable[[int], object],
) -> BatchRead:
    """Read all files; the parts are there only if every file is sound."""
    source, outcomes = request.node, list[SoundFile | RefusedFile]()
    claim = request.files[0].claim
    writer = request.writer(claim)
    try:
        for position, file in enumerate(request.files):
            begun(position)
            # Behind a refused file the others are only checked, so that all mistakes are reported.
            refused = any(isinstance(one, RefusedFile) for one in outcomes)
            write = _pass_over if refused else writer.gather
            try:
                outcomes.append(_read_into(write, file, source, request.limits, stopping, worked))
            except FileRejectedError as error:
                outcomes.append(RefusedFile(error.arguments()))
            except (CbpError, OSError, MemoryError):
                raise
            except Exception as error:  # whatever failed, this file is refused; see `unforeseen`
                outcomes.append(RefusedFile(unforeseen(error).arguments()))
        if any(isinstance(one, RefusedFile) for one in outcomes):
            writer.discard()
            return BatchRead("", (), tuple(outcomes))
        return BatchRead(claim, writer.finish(), tuple(outcomes))
    except BaseException:
        writer.discard()
        raise


def _pass_over(_batches: Iterable[pa.RecordBatch]) -> None:
    """Write nothing."""


def _read_one(
    file: BatchFile,
    source: SourceNode,
    limits: IngestLimits,
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
        if size > limits.row_group_bytes:
            raise _LargeError

    sound = _read_into(gather, file, source, limits, stopping, worked)
    return gathered, sound


def _read_into(
    write: Callable[[Iterable[pa.RecordBatch]], object],
    file: BatchFile,
    source: SourceNode,
    limits: IngestLimits,
    stopping: Callable[[], bool],
    worked: Callable[[int], object],
) -> SoundFile:
    """Read a file; its batches are written one by one, before the whole of it was checked."""
    notes, records = Notes(), 0
    with ClaimedContent(file.path, limits, stopping, worked) as content:
        require_size(content, file.size)
        for batch in read_batches(content, source, limits, notes, file=file.file):
            content.go_on(batch.nbytes)
            write((batch,))
            records += batch.num_rows
        sha256 = content.finish()
    return SoundFile(records, sha256, notes.to_json())
