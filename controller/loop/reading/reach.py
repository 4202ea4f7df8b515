"""Reach: how far back an operator can go with the retained data of a dataflow.

A replacement or a retraction recomputes groups from all increments of a source, and a rebuild
recomputes all tables. None of them works once the first increment is gone. A roll-back needs
records, positions and versions of tables, and stays within one version. How far each can go is not
stored, but computed from what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controller.loop.records.dataflow_part import DataflowPart
from controller.store.base import DataflowRecord


@dataclass(frozen=True, slots=True)
class SourceReach:
    """The kept input of a source.

    Attributes:
        first_at: Arrival of the oldest kept increment; `None` if nothing has arrived.
    """

    source: str
    first: int
    first_at: datetime | None
    next_index: int

    @property
    def complete(self) -> bool:
        """Whether every increment that ever arrived is kept."""
        return self.first == 0


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back operations on a dataflow can go.

    Attributes:
        oldest_position: The oldest position to which a roll-back can go: the oldest kept one,
            or the one at which the present version began. `None` means the start of the first
            version.
    """

    sources: Sequence[SourceReach]
    oldest_position: int | None

    @property
    def incomplete(self) -> list[SourceReach]:
        """The sources whose first increment is no longer kept, which prevents a full rebuild."""
        return [one for one in self.sources if not one.complete]


def reach_of(record: DataflowRecord, parts: DataflowPart) -> Reach:
    """Return how far back operations can go; reads two rows of each source."""
    sources = []
    for source in parts.catalog.compiled(record).sources:
        oldest = parts.store.oldest_increments(record.name, source, limit=1)
        end = parts.store.next_index(record.name, source)
        first = oldest[0].increment.index if oldest else end
        sources.append(SourceReach(source, first, oldest[0].created_at if oldest else None, end))
    position = parts.open_log(record.folder).oldest_position()
    number = max(parts.catalog.first_position(record), 0 if position is None else position.number)
    return Reach(tuple(sources), number or None)
