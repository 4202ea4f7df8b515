"""Targets of sinks: the operations of each, and the increments that it gets."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.model.flow.generation import Generation
from controller.sinks.errors import SinkForeignError, SinkTargetError
from controller.sinks.notes import SinkNote

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Shipment:
    """One increment that a sink publishes; `created_at` is `None` if no longer known."""

    flow: str
    generation: int
    index: int
    records: int
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Target(ABC):
    """Where a sink publishes; used by one thread at a time.

    Every method raises a leaf of `controller.sinks.errors`, or `DiskFullError`.
    """

    dataflow: str
    sink: str
    faults: Faults

    @abstractmethod
    def claim(self, note: SinkNote) -> SinkNote:
        """Take the target into use, or check that it is this sink's; return the note to keep."""

    @abstractmethod
    def publish(
        self, note: SinkNote, shipment: Shipment, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Publish an increment with records, durably and exactly once, even if called again.

        The batches are not read if it is already published. The returned note has the facts that
        the target must remember.
        """

    def stale(self, note: SinkNote, generations: Sequence[Generation]) -> list[str]:
        """Return the names of increments that were undone since the note's generation."""
        return []

    def withdraw(self, note: SinkNote, generations: Sequence[Generation], first: int) -> SinkNote:
        """Take back the increments that `stale` names, from `first` on; idempotent."""
        return note


@dataclass(frozen=True, slots=True)
class FolderTarget(Target):
    """A target in an absolute folder, which was checked; the allowed `root` above it must exist."""

    flow: str
    folder: str
    root: str
    schema: pa.Schema
    files: Files

    def require_root(self) -> None:
        """Raise `SinkTargetError` if the allowed folder is missing."""
        if not os.path.isdir(self.root):
            why = "the folder is missing; mount or create it, and the sink continues automatically"
            raise SinkTargetError(self.root, why)

    def require_empty(self, ours: str) -> None:
        """Raise `SinkForeignError` if the folder has anything beside `ours`."""
        names = self.files.list_names(self.folder)
        if {*names} - {ours}:
            why = (
                f"the folder holds {', '.join(names[:_SHOWN])}, but a sink must begin with an "
                "empty folder"
            )
            raise SinkForeignError(self.folder, why)
