"""Notes of sinks: the progress of each, in the folder of its dataflow.

    <tables>/<dataflow>/_sinks/<sink>-<identity>.json

A note is the truth about its sink, as the database may be lost. It is written after each increment
that was published, so after a crash it can be one increment behind its target. Targets notice this:
they publish an increment of an index and generation only once. A note stays when its sink is taken
out of the document, so the sink continues when it comes back.

Guaranteed: a note is complete, and its folder is never made again after the dataflow was deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files, local_path
from cbp.errors import NotFoundError, OperatingError, format_unknown
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.flow.generation import SinkPosition
from controller.sinks.errors import target_errors

FOLDER = "_sinks"
FORMAT = 1
_IDENTITY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class SinkNote:
    """The progress of a sink.

    Attributes:
        token: Random; identifies this life of the sink in its target. A target with another token
            was filled by another life of a dataflow, whose increments have the same numbers.
        first: The first increment that it published, or will publish.
        life: For a view: the first increment of the life of its changes that the target shows.
        since: For a view: the version of the dataflow in which that life began; 0 for its first.
        claimed: Whether the target is this sink's.
        version: For a Delta table: the version that the sink wrote last; -1 if none.
        replacement: For a Delta table: part of the name of its transactions. A mirror gets another
            value each time it is replaced as a whole; at first it is `""`.
    """

    token: str
    first: int
    generation: int
    next: int
    life: int = 0
    since: int = 0
    claimed: bool = False
    version: int = -1
    replacement: str = ""

    @property
    def position(self) -> SinkPosition:
        """The position up to which the sink has published its flow."""
        return SinkPosition(self.generation, self.next)

    @classmethod
    def from_json(cls, value: Any) -> SinkNote:
        """Read the output of `SinkNotes.save`."""
        if (found := value.pop("format")) != FORMAT:
            raise format_unknown("note of a sink", found, FORMAT)
        return cls(**value)


def identity_of(dataflow: str, sink: SinkNode) -> str:
    """Return the identity of a sink, which changes with its name, flow or target."""
    parts = [dataflow, sink.name, sink.to, sink.flow, sink.view, sink.path.rstrip("/"), sink.url]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_IDENTITY_DIGITS]


@dataclass(frozen=True, slots=True)
class SinkNotes:
    """Reads and writes the notes of sinks."""

    files: Files
    faults: Faults

    def make_folder(self, folder: str) -> None:
        """Make the folder of a dataflow's notes; the caller keeps the dataflow from deletion."""
        self.files.make_dirs(f"{folder}/{FOLDER}")

    def load(self, folder: str, sink: str, identity: str) -> SinkNote | None:
        """Return the note of a sink, or `None` if it has none; raises `FileDamagedError`."""
        try:
            return read_record(self.files, _path(folder, sink, identity), SinkNote.from_json)
        except NotFoundError:
            return None

    def save(self, folder: str, sink: str, identity: str, note: SinkNote) -> None:
        """Replace a note durably; raises `OperatingError`, also if the dataflow was deleted."""
        path = local_path(_path(folder, sink, identity))
        value = {"format": FORMAT, **asdict(note)}
        data = digested(json.dumps(value, separators=(",", ":")).encode(), path)
        parent, name = os.path.split(path)
        draft = os.path.join(parent, f".{name}.{uuid.uuid4().hex}.tmp")
        if not os.path.isdir(parent):
            message = f"{parent} is missing: the dataflow was deleted, or its folder was moved"
            raise OperatingError(message, path=parent)
        with target_errors(path):
            try:
                with open(draft, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self.faults("sink_note.before")
                os.rename(draft, path)
            finally:
                if os.path.lexists(draft):
                    os.unlink(draft)
        self.files.sync_dir(parent)
        self.faults("sink_note.after")


def _path(folder: str, sink: str, identity: str) -> str:
    return f"{folder}/{FOLDER}/{sink}-{identity}.json"
