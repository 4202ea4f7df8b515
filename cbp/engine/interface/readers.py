"""Roles of an engine that only read: records, increments, versions, and whole tables to compare.

Records are read as published or as of a version; increments also after their files were merged or
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import pyarrow as pa

from cbp.engine.columnar.values import Row
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Segment
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from cbp.model.flow.skew import BucketSize
from cbp.model.flow.snapshot import TableVersion
from cbp.model.run.intention import Intention, TableChange
from cbp.model.verification import Comparison

Place = tuple[int, int]
"""Where a page of a table begins; `(0, 0)` is the first record."""

Page = tuple[list[dict[str, Any]], Place | None]
"""Records, and the place of the next page; `None` if there are no more."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One version of a state's table that changed the records of a key.

    It published the epochs `first_epoch` to `epoch`, usually one, at `at_ms`, in milliseconds since
    1970. `before` and `after` are empty when there were no records.
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

    `ends` is `begin` if the table's first version was reached; `not_kept` if earlier versions were
    collected, or written before the stage was changed; `more` if there are versions before
    `behind`.
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

    def state_page(self, state: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of a state from `start` on, in any fixed order."""

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

        Versions that did not touch the bucket of the key cost one log entry each. Only versions
        before `behind` are read (`None`: all), and only records with the values of `among` count.
        Fewer than `limit` (> 0) are returned, with `more`, if the call reaches its limit of
        reading.
        """

    def output_page(self, output: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of an output from `start` on, in the flow's order."""


class RecordReader(Protocol):
    """Reads records of states and outputs; writes nothing."""

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key; empty when there is none."""

    def state_size(self, folder: str, node: StageNode, state: str) -> Mapping[int, BucketSize]:
        """Return bucket -> its size as published, from the table's log; reads no record."""

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; any order within a bucket."""

    def set_aside(self, folder: str, node: StageNode) -> list[dict[str, Any]]:
        """Return the records that a stage has set aside, in order, with `SET_ASIDE`'s columns."""

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        """Return a reader of a stage's tables as of any version that is kept."""


class IncrementReader(Protocol):
    """Reads increments; writes nothing."""

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return at most `limit` records of increments, in order, starting at `offset`."""

    def batches(
        self, folder: str, increment: Increment, schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield all records of an increment in order, as columns of the flow's schema.

        Memory holds one batch. Raises `IncrementDamagedError` if the number of records differs, and
        `FileLostError` if a file is missing and its table does not have the records either.
        """

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        """Rebuild an old increment of a stage's flow from its table, after the store was lost.

        It can be read like the one that was recorded, but has no path of its own.

        Raises:
            NotFoundError: The flow belongs to a source: only its log knows its increments.
            IncrementCollectedError: Retention removed the increment from its table.
        """

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments of a stage's flow with the files that hold them now.

        If compaction replaced them, these are slices of merged files. An increment is returned
        unchanged if these do not hold as many records as it has.
        """

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        """Return the first increment of `stage.output` that retention has left in the table."""

    def frame(
        self,
        folder: str,
        stage: str,
        spec: InputSpec,
        increment: Increment,
        memo: Any,
        set_aside_max: int | None = None,
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment for one framed input; only reads.

        Returns its segments in order (`cbp.model.flow.framing`), and the memo after it. The input's
        `frame_by` is called once per record, in order. Records on which it fails get no key, and
        are set aside, up to `set_aside_max`, as in `StageNode`; `None` means that any failure is an
        error.

        Raises:
            AuthorCodeError: The author's function failed, or returned no framing key.
            SetAsideFullError: The function failed on more records than can be set aside.
            IncrementDamagedError: A file is missing or has a different number of rows.
        """


class TableHistory(Protocol):
    """Finds versions of a stage's tables; reads only their logs."""

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> Mapping[str, TableVersion]:
        """Return the newest versions of a stage's tables, now or as of an in-commit time.

        `NotFoundError` if a table has no readable version that is old enough.
        """

    def shown_by(self, folder: str, node: StageNode, state: str, version: int) -> int | None:
        """Return the last epoch that a version of a state shows, or -1; `None` if it is gone."""

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> Mapping[str, TableVersion]:
        """Return, per table of a stage, the oldest version that shows an epoch.

        Tables that do not show the epoch are left out. The version belongs to the generation in
        which the epoch was recorded. A table that the epoch did not change shows the epoch only
        in a later version, with a later epoch. If the version was collected, the oldest version
        that can still be read is returned instead; see its `epoch`.
        """


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of one version of a table; two with equally many parts are compared by part.

    `rows` is an upper bound. `part(number, epochs)` yields a part's records in batches; with
    `epochs`, each record starts with its epoch.
    """

    rows: int
    parts: int
    part: Callable[[int, bool], Iterator[list[Row]]]


class VerificationReader(Protocol):
    """Reads whole tables for a verification; changes none of them."""

    def take_over(
        self, folder: str, tables: Mapping[str, int], records: Sequence[Intention], into: str
    ) -> tuple[TableChange, ...]:
        """Copy the records of state tables, as of versions, to a recomputation's folder.

        `records`, intentions of their stage, oldest first, are applied to them. Returns the changes
        that give the recomputation's empty tables the same records. `NotFoundError` if a version or
        file no longer exists.
        """

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> Contents:
        """Return the records of one table as of a version; `None` means the newest.

        `NotFoundError` if the version can no longer be read.
        """
