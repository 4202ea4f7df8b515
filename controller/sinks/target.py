"""Targets of sinks: the operations of each, and the increments that it gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from cbp.model.flow.generation import Generation
from controller.sinks.notes import SinkNote


@dataclass(frozen=True, slots=True)
class Shipment:
    """One increment that a sink publishes.

    Attributes:
        index: Its index; for the flow of a stage, the epoch.
        created_at: When it arrived; `None` if no longer known.
    """

    flow: str
    generation: int
    index: int
    records: int
    created_at: datetime | None = None


class Target(Protocol):
    """The target to which a sink publishes; used by one thread at a time.

    Raises:
        OperatingError: By every method, a leaf of `controller.sinks.errors` or `DiskFullError`.
    """

    def claim(self, note: SinkNote) -> SinkNote:
        """Take the target into use, or check that it is this sink's; return the note to keep."""
        ...

    def publish(
        self, note: SinkNote, shipment: Shipment, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Publish an increment with records, durably and exactly once, even if called again.

        Args:
            batches: Its records; not read if it is already published.

        Returns:
            The note, with the facts that the target must remember.
        """
        ...

    def stale(self, note: SinkNote, generations: Sequence[Generation]) -> list[str]:
        """Return the names of increments that were undone since the note's generation."""
        ...

    def withdraw(self, note: SinkNote, generations: Sequence[Generation], first: int) -> SinkNote:
        """Take back the increments that `stale` names, from `first` on; idempotent."""
        ...
