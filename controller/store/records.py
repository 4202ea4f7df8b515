"""Records that the metadata store keeps, as plain values without a database.

Guaranteed: a record is frozen. Times are aware and in UTC; ids are opaque text. A field that
a later version added has a default.
Absent on purpose: the store's methods (`base`), and the mapping to rows (`rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from cbp.model.flow.increment import Increment
from cbp.model.run.intention import RunStatus

__all__ = [
    "ClaimRecord",
    "ClaimStatus",
    "DataflowRecord",
    "Desired",
    "IncrementRecord",
    "Judged",
    "Page",
    "RunRecord",
    "StageRecord",
    "Uploaded",
]

Desired = Literal["running", "paused"]
T = TypeVar("T")

ClaimStatus = Literal["claiming", "claimed", "accepted", "duplicate", "quarantined", "withdrawn"]


@dataclass(frozen=True, slots=True)
class DataflowRecord:
    """A registered dataflow.

    Attributes:
        document: What was registered, as JSON values.
        folder: The folder of its tables.
        desired: The state that the operator wants; the loop brings it about.
        generation: The generation of its epochs (`cbp.model.flow.generation`).
    """

    name: str
    version: int
    document: Mapping[str, Any]
    folder: str
    desired: Desired
    created_at: datetime
    generation: int = 0


@dataclass(frozen=True, slots=True)
class StageRecord:
    """Run-time state of one stage.

    Attributes:
        epoch: Number of its next run.
        failures: Failed tries of that run, in a row.
        retry_at: Time of the next try; `None`: at once.
        paused_because: Why it is paused; `""`: it is not.
        error: The coded error that paused it, as `CbpError.as_dict` gives it.
        waiting_since: When its last run started, or when it was registered.
        turns: Epochs in a row that read nothing from outside its cycle; 0 off a cycle.
    """

    dataflow: str
    stage: str
    epoch: int
    waiting_since: datetime
    memo: Any = None
    failures: int = 0
    retry_at: datetime | None = None
    paused_because: str = ""
    turns: int = 0
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One attempt to execute an epoch.

    Attributes:
        id: Unique, `[a-z0-9]+`; sorts by time of decision.
        attempt: From 1, per epoch.
        read, remove: Input -> increment indexes, as decided.
        figures: See `cbp.engine.interface.runs.PreparedRun`; empty until prepared.
        error: `{"error_code", "message", "details"}` of a failed run.
    """

    id: str
    dataflow: str
    stage: str
    epoch: int
    attempt: int
    status: RunStatus
    read: Mapping[str, Sequence[int]]
    remove: Mapping[str, Sequence[int]]
    started_at: datetime
    finished_at: datetime | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class IncrementRecord:
    """An increment with what is known about its arrival.

    Attributes:
        origin: For a source: original file names, SHA-256, bytes; for a stage: its run.
    """

    dataflow: str
    increment: Increment
    created_at: datetime
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A file that was found in a drop folder; see `controller.ingest` for the protocol.

    Attributes:
        id: Unique, `[a-z0-9]+`; names the claimed copy.
        sequence: Order of the claims of one source, from 0.
        path: Original name, as evidence; never used to open anything after the claim.
        status: `withdrawn`: it was accepted, and a roll-back dropped its increment.
        sha256: Hex digest of the content; `""` until it was read.
        index: Index of the increment it became; `None` until accepted.
        reason: Why a file is quarantined: `{"code", "message", "file", "line"}`.
        key: The Idempotency-Key of its upload; `""`: none.
        same_as: The earlier file with this content: `{"by", "claim", "file", "index"}`; see
            `controller.ingest.identity`.
    """

    id: str
    dataflow: str
    source: str
    sequence: int
    path: str
    bytes: int
    status: ClaimStatus
    created_at: datetime
    sha256: str = ""
    index: int | None = None
    reason: Mapping[str, Any] | None = None
    key: str = ""
    same_as: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a file repeats an earlier one; see `controller.ingest.identity`.

    Attributes:
        outcome: What becomes of the file if it is valid for its source.
        same_as: The earlier file: `{"by", "claim", "file", "index"}`, where `by` is
            `name_and_content` or `content`; `index` is absent until that file is accepted.
    """

    outcome: Literal["accepted", "duplicate", "quarantined"]
    same_as: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The result of an upload.

    Attributes:
        claim: The claim of its file.
        repeated: Whether the key is that of an earlier upload; then `claim` is that upload's.
        same_request: Whether name and content equal that upload's. If not, the key was used
            for something else, and nothing was done.
    """

    claim: ClaimRecord
    repeated: bool = False
    same_request: bool = True

    @property
    def answer(self) -> ClaimRecord:
        """The claim as the first answer showed it, whatever has become of it since."""
        if not self.repeated or (self.claim.same_as or {}).get("at_once"):
            return self.claim
        return replace(self.claim, status="claimed", index=None, reason=None)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; `cursor` gets the next page, `None` at the end."""

    items: Sequence[T]
    cursor: str | None = None
