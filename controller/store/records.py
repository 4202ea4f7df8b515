"""What the metadata store keeps, as plain values; they know no database.

Guaranteed: a record is frozen. Times are aware and in UTC; ids are opaque text. A field that
a later version added has a default.
Absent on purpose: what may be asked of a store (`base`), and how values become rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from cbp.model.increment import Increment
from cbp.model.intention import RunStatus

__all__ = [
    "ClaimRecord",
    "ClaimStatus",
    "DataflowRecord",
    "Desired",
    "IncrementRecord",
    "Page",
    "RunRecord",
    "StageRecord",
]

Desired = Literal["running", "paused"]
T = TypeVar("T")

ClaimStatus = Literal["claiming", "claimed", "accepted", "duplicate", "quarantined"]


@dataclass(frozen=True, slots=True)
class DataflowRecord:
    """A registered dataflow.

    Attributes:
        document: What was registered, as JSON values.
        folder: Where its tables lie.
        desired: What the operator wants; the loop brings it about.
        generation: By which its epochs count (`cbp.model.generation`).
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
        retry_at: When it is tried again; `None`: at once.
        paused_because: Why it stopped by itself; `""`: it did not.
        error: The coded error that stopped it, as `CbpError.as_dict` gives it.
        waiting_since: When it last started, or when it was registered.
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
        read, remove: Input to increment indexes, as decided.
        figures: See `cbp.engine.base.PreparedRun`; empty until prepared.
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
        origin: Of a source's increment: original file names, SHA-256, bytes; of a stage's: its run.
    """

    dataflow: str
    increment: Increment
    created_at: datetime
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A file that was met in a drop folder; see `controller.ingest` for the protocol.

    Attributes:
        id: Unique, `[a-z0-9]+`; names the claimed copy.
        sequence: Order of the claims of one source, from 0.
        path: Original name, as evidence; never used to open anything after the claim.
        sha256: Hex digest of the content; `""` until it was read.
        index: Index of the increment it became; `None` until accepted.
        reason: Of a quarantined file: `{"code", "message", "file", "line"}`.
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


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a listing; `cursor` gets the next part, `None` at the end."""

    items: Sequence[T]
    cursor: str | None = None
