"""Role of an engine: to read the records of a stage's tables, as published or as of a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.skew import BucketSize

Place = tuple[int, int]
"""Where a page of a table begins; `(0, 0)` is the first record."""

Page = tuple[list[dict[str, Any]], Place | None]
"""Records, and the place of the next page; `None` if there are no more."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One version of a state's table that changed the records of a key.

    Attributes:
        first_epoch, epoch: The epochs that the version published; usually one.
        generation: The generation of these epochs.
        at_ms: The version's in-commit timestamp, milliseconds since 1970.
        before, after: The records of the key; empty when there were none.
    """

    version: int
    first_epoch: int
    epoch: int
    generation: int
    at_ms: int
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Changes of a key, newest first.

    Attributes:
        ends: `begin`: the table's first version was reached. `not_kept`: what came before was
            collected, or was written before the stage was changed. `more`: there are more
            versions; read on with `behind`.
        behind: With `more`, the version to read on behind; else 0.
    """

    changes: tuple[KeyChange, ...]
    ends: Literal["begin", "not_kept", "more"]
    behind: int = 0


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

    def key_changes(
        self,
        state: str,
        key: Mapping[str, Any],
        *,
        behind: int | None,
        limit: int,
        among: Mapping[str, Any] = MappingProxyType({}),
    ) -> KeyChanges:
        """Return the versions that changed the records of one key, newest first.

        Versions that did not touch the bucket of the key cost one log entry each.

        Args:
            key: As for `look_up`.
            behind: Only versions before this one; `None` means from the newest.
            limit: Maximal number of changes (> 0). Fewer are returned with `more` when the call
                has read as much as one call may.
            among: Values of further columns; only the key's records that have them count.
        """
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

    def state_size(self, folder: str, node: StageNode, state: str) -> Mapping[int, BucketSize]:
        """Return bucket -> its size as published, from the table's log; reads no record."""
        ...

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; any order within a bucket."""
        ...

    def set_aside(self, folder: str, node: StageNode) -> list[dict[str, Any]]:
        """Return what a stage has set aside, as published, in the order of its records.

        The columns are those of `cbp.model.dataflow.set_aside.SET_ASIDE`.
        """
        ...

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        """Return a reader of a stage's tables as of any version that is kept."""
        ...
