"""A target of files: one Parquet or CSV file for each increment that has records.

    <folder>/_cbp_sink.json                                   whose folder it is
    <folder>/clicks.count.totals.000000000012-g0.parquet      increment 12, of generation 0

A name says what a file holds, and an increment never changes: a redo would write the same bytes
under the same name. A file gets its name only when it is complete and durable. The generation is in
the name because a roll-back numbers increments again: a reader that remembers names sees that the
file is another one.

Memory holds one batch of records.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from cbp.engine.storage.files import Exists
from cbp.model.dataflow.sinks import FILE_SUFFIXES
from cbp.model.flow.generation import Generation, first_of, home_of_increment
from controller.sinks.errors import SinkForeignError, SinkTargetError, target_errors
from controller.sinks.notes import SinkNote
from controller.sinks.target import FolderTarget, Shipment

MARKER = "_cbp_sink.json"
_ROWS = 10_000


def file_name(dataflow: str, to: str, shipment: Shipment) -> str:
    """Return the name of an increment's file, which has only names and numbers."""
    number = f"{shipment.index:012d}-g{shipment.generation}"
    return f"{dataflow}.{shipment.flow}.{number}{FILE_SUFFIXES[to]}"


def is_stale(
    flow: str, generation: int, index: int, known: int, generations: Sequence[Generation]
) -> bool:
    """Return whether a roll-back undid a published increment; pure.

    Roll-backs up to the generation `known` were taken into account, so their undone increments that
    an operator kept do not count again.
    """
    if "." not in flow:
        return False  # roll-backs keep what arrived at a source
    before = [one for one in generations if one.number <= known]
    was_true = home_of_increment(before, flow, index) == generation
    later = (one for one in generations if one.number > known)
    return was_true and any(first_of(one, flow) <= index for one in later)


@dataclass(frozen=True, slots=True)
class IncrementFiles(FolderTarget):
    """Publishes to a folder, in the format `to`: `parquet` or `csv`; see the module header."""

    to: str

    def claim(self, note: SinkNote) -> SinkNote:
        """Put the marker into an empty folder, or check it; see `Target.claim`."""
        marker = f"{self.folder}/{MARKER}"
        self.require_root()
        if not self.files.exists(marker):
            if note.claimed:
                why = f"the file {MARKER} is missing; restore it, or give the sink another path"
                raise SinkTargetError(self.folder, why)
            self.require_empty(MARKER)
        value = {"sink": f"{self.dataflow}/{self.sink}", "token": note.token}
        data = json.dumps(value).encode() + b"\n"
        if not note.claimed:
            result = self.files.put_if_absent(marker, data, what="sink_file")
            found = result.data if isinstance(result, Exists) else data
        else:
            found = self.files.read(marker)
        if found != data:
            why = f"the folder belongs to another sink, or a removed sink of this name ({MARKER})"
            raise SinkForeignError(self.folder, f"{why}; give the sink another path")
        return replace(note, claimed=True)

    def publish(
        self, note: SinkNote, shipment: Shipment, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Write the file of an increment, unless it exists already; see `Target.publish`."""
        name = file_name(self.dataflow, self.to, shipment)
        path = f"{self.folder}/{name}"
        draft = f"{self.folder}/.{name}.{uuid.uuid4().hex}.tmp"
        with target_errors(path):
            try:
                if os.path.lexists(path):  # written before a crash, which prevented the note
                    self._check(path, draft, batches)
                else:
                    self._write(draft, batches)
                    self.faults("sink_file.before")
                    os.rename(draft, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(draft)
        self.files.sync_dir(self.folder)
        self.faults("sink_file.after")
        return note

    def stale(self, note: SinkNote, generations: Sequence[Generation]) -> list[str]:
        """Return the names of files whose increments were undone; see `Target.stale`."""
        pattern = re.compile(
            rf"{re.escape(self.dataflow)}\.{re.escape(self.flow)}\.(\d{{12,}})-g(\d+)"
            rf"{re.escape(FILE_SUFFIXES[self.to])}",
            re.ASCII,
        )
        matches = (pattern.fullmatch(name) for name in self.files.list_names(self.folder))
        return [
            match[0]
            for match in matches
            if match
            and is_stale(self.flow, int(match[2]), int(match[1]), note.generation, generations)
        ]

    def withdraw(self, note: SinkNote, generations: Sequence[Generation], first: int) -> SinkNote:
        """Remove the files of increments that were undone; see `Target.withdraw`."""
        for name in self.stale(note, generations):
            self.files.remove(f"{self.folder}/{name}", what="sink_file")
        self.files.sync_dir(self.folder)
        return note

    def _check(self, path: str, draft: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Raise `SinkForeignError` unless a file is the increment's."""
        self._write(draft, batches)
        same = filecmp.cmp(path, draft, shallow=False)
        if not (same or (self.to == "parquet" and _same_records(path, draft))):
            why = "the file exists, but was not written by this sink; remove it"
            raise SinkForeignError(path, why)

    def _write(self, path: str, batches: Iterable[pa.RecordBatch]) -> None:
        with open(path, "xb") as file:
            with ExitStack() as stack:
                if self.to == "csv":
                    writer = stack.enter_context(pc.CSVWriter(file, self.schema))
                else:
                    columns = pq.ParquetWriter(file, self.schema, compression="zstd")
                    writer = stack.enter_context(columns)
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())


def _same_records(path: str, other: str) -> bool:
    """Return whether two Parquet files have the same records, perhaps of different writers."""
    try:
        with pq.ParquetFile(path) as one, pq.ParquetFile(other) as two:
            if one.metadata.num_rows != two.metadata.num_rows:
                return False
            batches = zip(one.iter_batches(_ROWS), two.iter_batches(_ROWS), strict=True)
            return all(left.equals(right) for left, right in batches)
    except (pa.ArrowException, OSError, ValueError):
        return False
