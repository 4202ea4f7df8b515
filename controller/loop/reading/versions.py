"""The versions of a dataflow: their documents, when they took over, and what they changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controller.loop.records.description_log import Description, Descriptions
from controller.store.base import DataflowRecord

__all__ = ["VersionEntry", "read_versions"]


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One version.

    Attributes:
        at: When it took over; aware, in UTC.
        previous: The document before it; `None` if it is the first.
        anew: Stages that it changed, or whose state it let begin again.
    """

    version: int
    at: datetime
    document: Mapping[str, Any]
    previous: Mapping[str, Any] | None
    anew: tuple[str, ...]


def read_versions(
    descriptions: Descriptions, record: DataflowRecord, *, below: int, limit: int
) -> Iterator[VersionEntry]:
    """Yield up to `limit` versions with numbers below `below`, newest first.

    Raises:
        FileLostError: If the description of one is gone.
        InvariantError: If one cannot be read.
    """
    newest = min(below - 1, record.version)
    later: Description | None = None
    for version in range(newest, max(0, newest - limit), -1):
        one = later if later is not None else descriptions.version(record, version)
        later = descriptions.version(record, version - 1) if version > 1 else None
        begun = one.begin
        at = record.created_at if begun is None else datetime.fromtimestamp(begun.at_ms / 1000, UTC)
        anew = () if begun is None else begun.anew
        yield VersionEntry(version, at, one.document, later.document if later else None, anew)
