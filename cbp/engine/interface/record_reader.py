"""Role of an engine: to read the records of a stage's tables, as published or as of a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from cbp.model.dataflow.dataflow import StageNode

__all__ = ["Page", "Place", "RecordReader", "TableVersions"]

Place = tuple[int, int]
"""Where a page of a table begins; `(0, 0)` is the first record."""

Page = tuple[list[dict[str, Any]], Place | None]
"""Records, and the place of the next page; `None` if there are no more."""


class TableVersions(Protocol):
    """Reads one stage's tables as of any version that is kept.

    Raises:
        VersionGoneError: By every method, if the version's files were collected.
        VersionUnreadableError: By the methods that read a state, if the version was written before
            its stage was changed.
    """

    def look_up(self, state: str, key: Mapping[str, Any], version: int) -> list[dict[str, Any]]:
        """Return the records of one key of a state; empty when there is none."""
        ...

    def state_page(self, state: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of a state from `start` on, in any fixed order."""
        ...

    def output_page(self, output: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of an output from `start` on, in the flow's order."""
        ...


class RecordReader(Protocol):
    """Reads records of states and outputs; writes nothing."""

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key; empty when there is none."""
        ...

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; any order within a bucket."""
        ...

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        """Return a reader of a stage's tables as of any version that is kept."""
        ...
