"""The interface of the metadata store: everything the service knows besides the tables.

The store is an index over the intention logs and the source logs, which lie beside the tables and
are the truth. Every method is one transaction: if it returns, it has happened as a whole; if it
raises, it has not happened. Methods may be called from several threads. Times are aware and in
UTC; ids are opaque text.

Every implementation passes one conformance suite (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import Framing
from cbp.model.flow.generation import Generation
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from cbp.model.flow.punctuation import Punctuation
from cbp.model.run.intention import Intention, RunStatus
from cbp.model.schedule.lease import Lease
from cbp.model.schedule.priority import Priority
from controller.store.access import AccessStore
from controller.store.claim_log import ClaimLog
from controller.store.event_log import EventLog
from controller.store.records import (
    PAUSED_BY_HAND,
    ClaimRecord,
    ClaimStatus,
    DataflowDesired,
    DataflowRecord,
    Desired,
    Event,
    EventCursor,
    EventKind,
    EventRecord,
    GaugeRows,
    IncrementRecord,
    Judged,
    Page,
    QueueGauge,
    RunRecord,
    StageGauge,
    StageRecord,
    Uploaded,
    VerificationRecord,
)
from controller.store.sink_log import SinkLog
from controller.store.verification_log import VerificationLog

__all__ = [
    "PAUSED_BY_HAND",
    "ClaimRecord",
    "ClaimStatus",
    "DataflowDesired",
    "DataflowRecord",
    "Desired",
    "Event",
    "EventCursor",
    "EventKind",
    "EventRecord",
    "GaugeRows",
    "IncrementRecord",
    "Judged",
    "Page",
    "QueueGauge",
    "RunRecord",
    "StageGauge",
    "StageRecord",
    "Store",
    "Uploaded",
    "VerificationRecord",
]


class Store(AccessStore, ClaimLog, EventLog, SinkLog, VerificationLog, Protocol):
    """See the module header; `AccessStore` has tokens, sessions and the audit log."""

    def close(self) -> None:
        """Release connections."""
        ...

    def ping(self) -> None:
        """Raise `OperatingError` if the store cannot be used."""
        ...

    # leadership

    @property
    def shared(self) -> bool:
        """Whether other processes may use the same database; then the lease decides who leads."""
        ...

    def lease(self) -> tuple[Lease, int]:
        """Return the lease, and the database's time in milliseconds since 1970."""
        ...

    def take_lease(self, holder: str, address: str, *, milliseconds: int) -> Lease | None:
        """Take the lease if it is free by the database's clock; see `Lease.take`.

        Waits for writers of the previous epoch to end; later writes of that epoch are refused.

        Returns:
            The lease as it is now, or `None` while another instance holds it.
        """
        ...

    def renew_lease(self, epoch: int, *, milliseconds: int) -> bool:
        """Extend the lease, even if it has expired; `False` if it now has another epoch."""
        ...

    def release_lease(self, epoch: int) -> None:
        """Free the lease at once; does nothing if it now has another epoch."""
        ...

    def fence(self, epoch: int | None) -> None:
        """Let this object write only while `epoch` is the lease's; `None` lifts the fence.

        A fenced write then raises `LeaseLostError` if another instance leads; it has not
        happened and never will.
        """
        ...

    # dataflows

    def register(
        self,
        record: DataflowRecord,
        stages: Mapping[str, Mapping[str, str]],
        framed: Collection[tuple[str, str]] = (),
    ) -> None:
        """Add a dataflow with its stages and empty connectors.

        Args:
            record: The dataflow; its stages begin to wait at `created_at`.
            stages: Stage -> its wiring (input name -> flow name).
            framed: The (stage, input) pairs that frame their flow; what arrives there waits
                until `frame` takes it.

        Raises:
            AlreadyExistsError: If the name is taken.
        """
        ...

    def dataflows(self) -> list[DataflowRecord]:
        """Return every dataflow, by name."""
        ...

    def revisions(self) -> dict[str, int]:
        """Return dataflow -> its revision, by name, with one statement.

        A revision is another number after each transaction that changed the dataflow, its stages,
        queues, claims, sinks or runs, also after one of another instance. What was read after its
        revision is current while the revision stays. A dataflow that was deleted and registered
        again has another one, too. What is forgotten because of its age revises nothing.
        """
        ...

    def dataflow(self, name: str) -> DataflowRecord:
        """Return one dataflow; raises `NotFoundError`."""
        ...

    def set_desired(
        self, name: str, desired: DataflowDesired, *, instead_of: DataflowDesired | None = None
    ) -> None:
        """Record the desired state of a dataflow.

        `running` also clears the failures of its stages, and lifts their pauses.

        Args:
            name: The dataflow.
            desired: What is wanted from now on.
            instead_of: Change nothing if something else was wanted until now.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        ...

    def set_priorities(self, dataflow: str, priorities: Mapping[str, Priority]) -> None:
        """Set the priorities of all stages: normal if left out; raises `NotFoundError`."""
        ...

    def delete(self, name: str) -> None:
        """Remove a dataflow and all that is known of it, not its tables; raises `NotFoundError`."""
        ...

    # arrivals; their claims are in `ClaimLog`

    def accept(self, claim: ClaimRecord, record: IncrementRecord) -> None:
        """Store a source's increment, enqueue it at every consumer, settle the claim.

        Does nothing if this (flow, index) is already stored (redo after a crash). A claim
        that the store has lost is inserted.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If this (flow, index) is stored with other content, or the
                previous increment is missing.
        """
        ...

    def accept_all(self, arrivals: Sequence[tuple[ClaimRecord, IncrementRecord]]) -> None:
        """Like `accept`, for increments (>= 1) of one source, in order, all or none.

        Those that are already stored are left as they are. An increment of several files comes
        once with each of their claims.
        """
        ...

    def next_index(self, dataflow: str, flow: str) -> int:
        """Return the index for the next increment of a flow."""
        ...

    # queues and runs

    def stages(self, dataflow: str) -> list[StageRecord]:
        """Return the stages of a dataflow, by name."""
        ...

    def all_stages(self) -> list[StageRecord]:
        """Return the stages of all dataflows, by dataflow and name, with one statement.

        A row that cannot be read fails all of it; `stages` then names the dataflow that has it.
        """
        ...

    def epochs(self) -> dict[str, int]:
        """Return dataflow -> how many epochs it has committed, over all its stages."""
        ...

    def connectors(self, dataflow: str) -> dict[str, dict[str, Connector]]:
        """Return stage -> input -> connector, including inputs without increments."""
        ...

    def position(self, dataflow: str) -> Position:
        """Return the position of a dataflow between two commits; raises `NotFoundError`."""
        ...

    def restore(self, position: Position, *, at: datetime) -> None:
        """Bring a dataflow forward to a position; later arrivals at sources stay queued.

        For a store that lost what the position knows. Does nothing if no stage is behind the
        position.

        Args:
            position: A former position of the dataflow.
            at: Arrival time for increments that the store does not know.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If it has other stages or inputs, or some are ahead of the position.
        """
        ...

    def change(
        self,
        record: DataflowRecord,
        stages: Mapping[str, Mapping[str, str]],
        framed: Collection[tuple[str, str]] = (),
        *,
        position: Position,
        fresh: Collection[str] = (),
        priorities: Mapping[str, Priority] = MappingProxyType({}),
        at: datetime,
    ) -> None:
        """Bring a dataflow to a new version, with exactly these stages, inputs and queues.

        What arrived at sources since the position is queued behind it. Increments of removed
        flows stay known; runs of removed stages do not.

        Args:
            record: Carries the new version and document; other fields are ignored.
            stages: As in `register`.
            framed: As in `register`.
            position: Where the new version begins; has every stage and input of `stages`.
            fresh: Stages that go on if an error paused them. Who paused a stage resumes it.
            priorities: Those of stages that the store does not know; others keep theirs.
            at: Time for increments and stages that the store does not know.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        ...

    def rewind(
        self,
        generation: Generation,
        *,
        at: datetime,
        dropped: Mapping[str, Sequence[range]] = MappingProxyType({}),
    ) -> None:
        """Move a dataflow to where a generation began, whether that is behind or ahead.

        Undone increments of stages are forgotten, and so are failures and pauses of stages.
        What arrived at sources since the position stays queued. Does nothing if this or a later
        generation is already stored.

        Args:
            generation: The generation that begins.
            at: Arrival time for increments that the store does not know.
            dropped: As in `withdraw`.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If it has other stages or inputs.
        """
        ...

    def withdraw(self, dataflow: str, dropped: Mapping[str, Sequence[range]]) -> None:
        """Mark the claims whose increments roll-backs dropped, and unmark all others.

        Args:
            dataflow: The name of the dataflow.
            dropped: Source -> the indexes of all dropped increments, dropped for good or until
                a later roll-back; see `cbp.model.flow.generation.increments_dropped`.
        """
        ...

    def frame(
        self,
        dataflow: str,
        stage: str,
        input_: str,
        *,
        index: int | None,
        framing: Framing,
        frames: Sequence[Increment],
    ) -> None:
        """Replace an arrived output increment, or a punctuation, by the frames that end in it.

        Args:
            dataflow: The name of the dataflow.
            stage: The name of the stage.
            input_: A framed input of the stage.
            index: Index of the oldest output increment that arrived there. `None` means the
                oldest punctuation that is not applied there.
            framing: The framing after it.
            frames: In order; they are appended to the queue.

        Raises:
            NotFoundError: If there is no such stage.
            InvariantError: If it does not wait there, or is not the oldest.
        """
        ...

    # punctuations

    def punctuate(self, dataflow: str, punctuation: Punctuation) -> None:
        """Record a punctuation, and queue it at every framed input that it is for.

        Does nothing if this number is already recorded (redo after a crash).

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If the previous punctuation is missing.
        """
        ...

    def next_punctuation(self, dataflow: str) -> int:
        """Return the number for the next punctuation; raises `NotFoundError`."""
        ...

    def punctuation(self, dataflow: str, key: str) -> Punctuation | None:
        """Return the punctuation with this idempotency key, if there is one."""
        ...

    def punctuations(
        self, dataflow: str, *, cursor: str | None = None, limit: int = 100
    ) -> Page[Punctuation]:
        """List punctuations, newest first."""
        ...

    def intend(self, run: RunRecord) -> None:
        """Record a run as INTENDED and set its stage's `waiting_since`.

        Raises:
            InvariantError: If the stage has another next epoch: the decision was stale.
        """
        ...

    def commit(self, intention: Intention, *, finished_at: datetime) -> None:
        """Move the connectors, store the outputs, enqueue them, advance the epoch.

        All in one transaction. An empty output is not enqueued inside a cycle
        (`cbp.model.graph.cycles`): it would go round for ever. Does nothing if the stage's
        epoch is already past this intention (redo). The run becomes COMMITTED with the
        intention's figures; a run that the store has lost is inserted.

        Raises:
            NotFoundError: If there is no such stage.
            InvariantError: If a previous epoch is missing; if the intention takes an increment
                that does not wait, or writes one that is stored with other content; or if it
                is of another generation.
        """
        ...

    def fail(
        self,
        run: str,
        error: Mapping[str, Any],
        *,
        finished_at: datetime,
        retry_at: datetime | None,
        pause: str = "",
        figures: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Record a failed try: FAILED, one more failure; pause the stage if `pause` has a reason.

        Does nothing if the run has already failed. Leaves the stage alone if another run
        committed the epoch. `figures` say how far the try came.

        Raises:
            NotFoundError: If there is no such run.
            InvariantError: If the run is committed.
        """
        ...

    def pause_stage(
        self, dataflow: str, stage: str, because: str, error: Mapping[str, Any] | None = None
    ) -> None:
        """Pause a stage, with the reason, and the error that caused it if any.

        A stage that an operator paused (`PAUSED_BY_HAND`) stays so; the error is noted.
        """
        ...

    def retry_stage(self, dataflow: str, stage: str) -> None:
        """Let a stage that stopped try once more; end the rest after a failed try.

        Raises:
            NotFoundError: If there is no such stage.
            StagePausedError: If an operator paused it.
        """
        ...

    def resume_stage(self, dataflow: str, stage: str) -> None:
        """Let a stage run again, whatever paused it, and forget its failures.

        Raises:
            NotFoundError: If there is no such stage.
        """
        ...

    def intended_runs(self) -> list[RunRecord]:
        """Return every run in status INTENDED (normally at most one per stage)."""
        ...

    def run(self, run_id: str) -> RunRecord:
        """Return one run; raises `NotFoundError`."""
        ...

    def runs(
        self,
        dataflow: str | None = None,
        *,
        stage: str | None = None,
        status: RunStatus | None = None,
        epoch: int | None = None,
        error_code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[RunRecord]:
        """List runs, newest first; every filter that is given holds for each of them.

        Args:
            dataflow, stage, status, epoch: What the runs must have.
            error_code: The code of the error that ended them.
            since, until: They began at this time or later, and before that time; in UTC.
            cursor: The cursor of the previous page.
            limit: Maximum number of runs of the page (>= 1).

        Raises:
            CursorInvalidError: If the cursor is not from this listing.
        """
        ...

    def committed_runs(
        self, dataflow: str, stage: str, *, since: datetime, limit: int
    ) -> list[RunRecord]:
        """Return the oldest committed runs of a stage that started at a time or later, in order."""
        ...

    def increments(
        self,
        dataflow: str,
        flow: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[IncrementRecord]:
        """List increments that the store knows, the latest arrivals first.

        Args:
            dataflow: The dataflow.
            flow: Only those of this flow.
            since, until: Only those that arrived at or after, and before, these times.
            cursor: The cursor of the previous page.
            limit: Maximum number of increments of the page (>= 1).

        Raises:
            CursorInvalidError: If the cursor is not from this listing.
        """
        ...

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        """Return one increment; raises `NotFoundError`."""
        ...

    def arrival_times(
        self, keys: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], datetime]:
        """Return when the store was given increments, by (dataflow, flow, index).

        Increments that it does not know, or does not know any more, are left out.
        """
        ...

    def origins(
        self, dataflow: str, keys: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], Mapping[str, Any]]:
        """Return the origins of increments of a dataflow, by (flow, index).

        Increments that it does not know, or does not know any more, are left out.
        """
        ...

    def oldest_increments(
        self, dataflow: str, flow: str, *, first: int = 0, limit: int | None = None
    ) -> list[IncrementRecord]:
        """Return the oldest increments of a flow that the store knows, ascending by index.

        Args:
            dataflow: The dataflow.
            flow: The flow.
            first: The first index of interest.
            limit: Maximum number of increments; `None` means all.
        """
        ...

    def forget_increments(self, dataflow: str, flow: str, *, below: int) -> int:
        """Remove increments of a flow below an index, at most some thousand; return how many.

        Increments that wait in a queue stay. So does the newest one: it gives the next index.
        """
        ...

    def forget_runs(self, dataflow: str, stage: str, *, below: int) -> int:
        """Remove runs of epochs below this one, at most some thousand; return how many.

        Runs under way stay.
        """
        ...

    # figures of all dataflows

    def gauges(self) -> GaugeRows:
        """Return what stages and queues of all dataflows show, with a fixed number of statements.

        The cost grows with the increments that wait.
        """
        ...

    def quarantined(self) -> Mapping[tuple[str, str], int]:
        """Return (dataflow, source) -> files in quarantine; reads no other claims."""
        ...

    def quarantined_of(self, dataflow: str, sources: Iterable[str]) -> Mapping[str, int]:
        """Return source -> files in quarantine; reads no other claims.

        A source without such files is left out.
        """
        ...
