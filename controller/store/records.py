"""Records that the metadata store keeps, as plain values without a database.

Guaranteed: a record is frozen. Times are aware and in UTC; ids are opaque text. A field that
a later version added has a default.
Absent on purpose: the store's methods (`base`), and the mapping to rows (`schema.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from cbp.model.flow.increment import Increment
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.priority import NORMAL, Priority

Desired = Literal["running", "paused"]
DataflowDesired = Literal["running", "paused", "draining", "drained"]
"""`draining`: takes in no more files, and processes its waiting input; then it is `drained`."""

T = TypeVar("T")

EventKind = Literal[
    "stream.began",
    "dataflow.registered",
    "dataflow.changed",
    "dataflow.paused",
    "dataflow.resumed",
    "dataflow.draining",
    "dataflow.drained",
    "dataflow.deleted",
    "dataflow.rolled_back",
    "dataflow.restored",
    "degraded.began",
    "degraded.ended",
    "stage.paused",
    "stage.resumed",
    "stage.prioritized",
    "stage.stopped",
    "stage.waiting",
    "run.started",
    "run.ended",
    "run.failed",
    "state.corrected",
    "file.arrived",
    "file.claimed",
    "file.duplicate",
    "file.quarantined",
    "file.withdrawn",
    "file.readmitted",
    "file.discarded",
    "increment.arrived",
    "increment.applied",
    "increment.framed",
    "flow.closed",
    "verification.progress",
    "leader.changed",
]

ClaimStatus = Literal[
    "claiming",
    "claimed",
    "accepted",
    "duplicate",
    "quarantined",
    "withdrawn",
    "readmitted",
    "discarded",
]


PAUSED_BY_HAND = "is paused by the operator"
"""The pause reason of a stage that an operator paused; with any other reason it stopped itself."""


def has_stopped(paused_because: str) -> bool:
    """Return whether this reason of a pause means that the stage stopped by itself."""
    return paused_because not in ("", PAUSED_BY_HAND)


@dataclass(frozen=True, slots=True)
class DataflowRecord:
    """A registered dataflow.

    Attributes:
        desired: The state that the operator wants, which the loop then reaches.
        generation: The generation of its epochs (`cbp.model.flow.generation`).
    """

    name: str
    version: int
    document: Mapping[str, Any]
    folder: str
    desired: DataflowDesired
    created_at: datetime
    generation: int = 0

    @property
    def is_paused(self) -> bool:
        """Whether no runs start."""
        return self.desired in ("paused", "drained")

    @property
    def takes_in(self) -> bool:
        """Whether files are taken in."""
        return self.desired in ("running", "paused")


@dataclass(frozen=True, slots=True)
class StageRecord:
    """Run-time state of one stage.

    Attributes:
        epoch: Number of its next run.
        failures: Failed attempts of that run, in a row.
        retry_at: Time of the next attempt; `None` means at once.
        paused_because: Why it is paused; `""` if it is not.
        error: The error that paused it, as returned by `CbpError.as_dict`.
        waiting_since: When its last run started, or when it was registered.
        turns: Epochs in a row that read nothing from outside its cycle; 0 if it is on no cycle.
        priority: Set by an operator; also kept beside the tables.
        due_ms: A time before which none of its timers is due, in milliseconds since 1970; 0 if
            unknown, `None` if no timer is pending.
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
    priority: Priority = NORMAL
    due_ms: int | None = None

    @property
    def is_paused(self) -> bool:
        """Whether an operator paused it; only `resume` of the stage or its dataflow ends that."""
        return self.paused_because == PAUSED_BY_HAND

    @property
    def has_stopped(self) -> bool:
        """Whether it stopped by itself: a failure or a cancelled run paused it."""
        return has_stopped(self.paused_because)


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
    """An increment; its origin is files (names, SHA-256, bytes), or the run of a stage."""

    dataflow: str
    increment: Increment
    created_at: datetime
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_names(self) -> str:
        """The first file, and the number of other files; `""` for an increment of a stage."""
        names = self.origin.get("files") or [""]
        more = int(self.origin.get("file_count", 1)) - 1
        return f"{names[0]} and {more} more" if more else str(names[0])


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A file that was found in a drop folder; see `controller.ingest` for the protocol.

    Attributes:
        id: Unique, `[a-z0-9]+`; names the claimed copy.
        sequence: Order of the claims of one source, from 0.
        path: Original name, as evidence; never used to open anything after the claim.
        status: `withdrawn`: it was accepted, and a roll-back dropped its increment.
            `readmitted`, `discarded`: it was in quarantine, and an operator has decided.
        sha256: Hex digest of the content; `""` until it was read.
        index: Index of its increment; `None` until it is accepted.
        reason: Why a file is quarantined: `{"code", "message", "file", "line"}`.
        key: The Idempotency-Key of its upload; `""` if there is none.
        same_as: The earlier file with this content or name: `{"by", "claim", "file", "index"}`; see
            `controller.ingest.repeated_files`.
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
    """What becomes of a file if it is valid for its source, and which earlier file it repeats.

    In `same_as`, `by` is `name_and_content`, `content` or `name`, and `index` is absent until the
    earlier file is accepted.
    """

    outcome: Literal["accepted", "duplicate", "quarantined"]
    same_as: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The result of an upload.

    Attributes:
        repeated: Whether an earlier upload had the same key; `claim` is then that upload's.
        same_request: Whether name and content are those of that upload. If not, the key was used
            for another request, and nothing was done.
    """

    claim: ClaimRecord
    repeated: bool = False
    same_request: bool = True

    @property
    def answer(self) -> ClaimRecord:
        """The claim as the first answer showed it, without later changes."""
        if not self.repeated or (self.claim.same_as or {}).get("at_once"):
            return self.claim
        return replace(self.claim, status="claimed", index=None, reason=None)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; `cursor` gets the next page, `None` at the end."""

    items: Sequence[T]
    cursor: str | None = None


class EventCursor(NamedTuple):
    """A place in the stream of events: after one event.

    Another database can have an event with the same number, but not also with the same time.
    """

    number: int
    at_ms: int

    def __str__(self) -> str:
        """Return the text that clients keep: `<number>-<time>`."""
        return f"{self.number}-{self.at_ms}"

    @classmethod
    def parse(cls, text: str) -> EventCursor | None:
        """Return the cursor in a text that a client sent; `None` if it has another form."""
        number, _, at_ms = text.partition("-")
        both = (number, at_ms)
        if not all(0 < len(one) <= _DIGITS_MAX and _is_number(one) for one in both):
            return None
        return cls(int(number), int(at_ms))


_DIGITS_MAX = 18  # fits a BIGINT


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that changed, for clients to read again; carries no data of records.

    Attributes:
        dataflow: `""` if the change concerns no dataflow.
        stage: The stage that leads the run; `""` if there is none.
        subject: The id of the changed run, claim, increment (`flow/index`) and so on.
        count: Number of such changes together; `subject` names the last one.
    """

    kind: EventKind
    dataflow: str = ""
    stage: str = ""
    flow: str = ""
    subject: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event as it is stored; ids rise in the order of the commits."""

    id: int
    at_ms: int
    event: Event

    @property
    def cursor(self) -> EventCursor:
        """The place after this event."""
        return EventCursor(self.id, self.at_ms)

    @property
    def at(self) -> datetime:
        """When it happened."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class VerificationRecord:
    """A verification that has ended.

    Its id is never used again. Its result is a JSON value that is opaque to the store.
    """

    id: str
    dataflow: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """The progress of a sink, and the choices of an operator.

    Attributes:
        identity: Identifies its target; with another identity it is another sink.
        generation, next: See `cbp.model.flow.generation`.
        choice: What to do with undone increments: `rewrite`, `keep`, or `""`.
        standing: Figures and the last error, as JSON values that are opaque to the store.
        end: The index after the flow's newest increment; filled in by the store.
        waits_since: When the increment `next` arrived; `None` if none waits; filled in by the
            store.
    """

    dataflow: str
    sink: str
    identity: str
    flow: str
    generation: int
    next: int
    desired: Desired = "running"
    choice: str = ""
    standing: Mapping[str, Any] = field(default_factory=dict)
    end: int = 0
    waits_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class StageGauge:
    """The figures of a stage that metrics show; see `StageRecord`."""

    dataflow: str
    stage: str
    epoch: int
    failures: int
    paused_because: str

    @property
    def has_stopped(self) -> bool:
        """See `StageRecord.has_stopped`."""
        return has_stopped(self.paused_because)


@dataclass(frozen=True, slots=True)
class QueueGauge:
    """The increments that wait at one input.

    Attributes:
        oldest_at: Arrival of the oldest increment that no run has read; `None` if there is none, or
            the input is framed.
    """

    dataflow: str
    stage: str
    input: str
    increments: int = 0
    records: int = 0
    bytes: int = 0
    oldest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GaugeRows:
    """The figures of all dataflows, except those whose rows cannot be read (`unreadable`)."""

    stages: tuple[StageGauge, ...]
    queues: tuple[QueueGauge, ...]
    unreadable: frozenset[str] = frozenset()

    def oldest_waiting(self) -> dict[str, datetime]:
        """Return dataflow -> arrival of its oldest increment that a stage has not read, if any."""
        oldest: dict[str, datetime] = {}
        for queue in self.queues:
            if queue.oldest_at is not None:
                before = oldest.get(queue.dataflow, queue.oldest_at)
                oldest[queue.dataflow] = min(queue.oldest_at, before)
        return oldest
