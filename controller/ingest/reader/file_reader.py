"""Reads one claimed file: checks every record and writes the parts of its increment.

Reading a file may take any time and memory. So `FileReader` is an interface with two
implementations: a service reads in a process that it can end (`reader_pool`), and a simulation
reads in its own thread (`read_file`).

Guaranteed: a reader that returns has written every part completely, under a temporary name. If it
raises, `PartNames.discard` removes what it left. No part is visible or durable before the intake
syncs it and gives it its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from cbp.model.dataflow.bad_records import QUARANTINE_FILE, BadRecords
from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.flow.schema import Schema
from controller.ingest.folder.source_place import claimed_of
from controller.ingest.formats.content import ClaimedContent, ignore_progress, never
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.record_batches import read_batches
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.increment_parts import PartWriter, WrittenPart
from controller.ingest.rejection import FileRejectedError

__all__ = [
    "FileRead",
    "FileReader",
    "IncrementRequest",
    "ReadRequest",
    "StuckReader",
    "read_file",
    "require_size",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementRequest:
    """Whose files are read, and where their increment is written; can be sent to a process.

    Attributes:
        source: Name of the source.
        format, schema, options, on_bad_records: As the source declares them.
        folder: The source's folder of increments; a local path.
        index: Index of the increment.
    """

    source: str
    format: str
    schema: Schema
    options: Mapping[str, str]
    folder: str
    index: int
    limits: IngestLimits
    on_bad_records: BadRecords = QUARANTINE_FILE

    @property
    def node(self) -> SourceNode:
        """The source, as far as a reader needs it."""
        return SourceNode(
            self.source,
            self.schema,
            self.format,
            self.options,
            on_bad_records=self.on_bad_records,
        )

    def writer(self, claim: str) -> PartWriter:
        """Return the writer of the increment's parts, which a claim names."""
        return PartWriter(
            self.folder, index=self.index, claim=claim, schema=self.schema, limits=self.limits
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest(IncrementRequest):
    """One file to read.

    Attributes:
        path: The claimed copy.
        size: Its bytes when it was claimed.
        claim: Names the parts.
        file: The name under which it was dropped.
    """

    path: str
    size: int
    claim: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class FileRead:
    """What was read: the parts, the content's SHA-256 in hex, and remarks as JSON values."""

    parts: tuple[WrittenPart, ...]
    sha256: str
    notes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StuckReader:
    """A reader that has neither computed nor read for some time.

    Attributes:
        path: The claimed copy, or the first one of a batch.
        source: Name of its source.
        silent_seconds: Since when.
        ends_in_seconds: When it is killed.
    """

    path: str
    source: str
    silent_seconds: float
    ends_in_seconds: float

    @property
    def words(self) -> str:
        """Description for an operator."""
        name = claimed_of(os.path.basename(self.path))[1] or os.path.basename(self.path)
        return (
            f"the process that reads {name!r} has neither computed nor read for "
            f"{self.silent_seconds:.0f} s: its device hangs, or the process was stopped. It is "
            f"ended in {self.ends_in_seconds:.0f} s, and the file is read again; other files of "
            "the source wait"
        )


class FileReader(Protocol):
    """Reads files; called by several threads at once."""

    def __call__(self, request: ReadRequest, stopping: Callable[[], bool] = never) -> FileRead:
        """Read one file; blocks.

        Raises:
            FileRejectedError: The file is not what its source declares, or costs too much.
            IntakeStoppedError: `stopping` returned true.
            OSError: The device failed, or is full.
        """
        ...


def read_file(
    request: ReadRequest,
    stopping: Callable[[], bool] = never,
    *,
    worked: Callable[[int], object] = ignore_progress,
) -> FileRead:
    """Read one file in this thread; `FileReader` lists the errors.

    Args:
        request: What to read.
        stopping: Returns whether to stop.
        worked: Called with the number of bytes read or decoded since its last call.
    """
    notes = Notes()
    writer = request.writer(request.claim)
    try:
        with ClaimedContent(request.path, request.limits, stopping, worked) as content:
            require_size(content, request.size)
            batches = read_batches(content, request.node, request.limits, notes, file=request.file)
            writer.write(_until_stopped(batches, content))
            end = content.finish()
        return FileRead(writer.finish(), end, notes.to_json())
    except Exception:
        writer.discard()
        raise


def require_size(content: ClaimedContent, size: int) -> None:
    """Raise `file_changed` unless a file has the size that it had when it was claimed."""
    if content.size != size:
        message = (
            f"had {size} bytes when it was claimed, now {content.size}; write it "
            "under a name that ends in .part and rename it when it is complete"
        )
        raise FileRejectedError(rule="file_changed", message=message)


def _until_stopped(
    batches: Iterator[pa.RecordBatch], content: ClaimedContent
) -> Iterator[pa.RecordBatch]:
    """Check for a stop between batches too: Parquet and highly compressed files cause few reads."""
    for batch in batches:
        content.go_on(batch.nbytes)
        yield batch
