"""The metadata store: what the service knows besides the tables; one interface.

The store is an index over the intention logs and the source logs, which lie beside
the tables and are the truth. Every method is one transaction: it happened as a
whole once it returned, and not at all if it raised. Methods may be called from
several threads. Times are aware and in UTC; ids are opaque text.

One conformance suite holds for every implementation (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from cbp.model.connector import Connector
from cbp.model.framing import Framing
from cbp.model.generation import Generation
from cbp.model.increment import Increment
from cbp.model.intention import Intention, RunStatus
from cbp.model.lease import Lease
from cbp.model.position import Position
from cbp.model.punctuation import Punctuation
from controller.store.records import (
    ClaimRecord,
    ClaimStatus,
    DataflowRecord,
    Desired,
    IncrementRecord,
    Page,
    RunRecord,
    StageRecord,
)

__all__ = [
    "ClaimRecord",
    "ClaimStatus",
    "DataflowRecord",
    "Desired",
    "IncrementRecord",
    "Page",
    "RunRecord",
    "StageRecord",
    "Store",
]


class Store(Protocol):
    """See the module header."""

    def close(self) -> None:
        """Release connections."""
        ...

    def ping(self) -> None:
        """Raise `OperatingError` when the store cannot be used."""
        ...

    # who leads

    @property
    def shared(self) -> bool:
        """Whether other processes may use the same database, so that the lease decides."""
        ...

    def lease(self) -> tuple[Lease, int]:
        """Return the lease, and the database's time in milliseconds since 1970."""
        ...

    def take_lease(self, holder: str, address: str, *, milliseconds: int) -> Lease | None:
        """Take the lease if it is free by the database's clock; see `Lease.taken`.

        Waits for writers under the epoch before to end; from then on those are refused.

        Returns:
            The lease as it now is, or `None` while another one holds it.
        """
        ...

    def renew_lease(self, epoch: int, *, milliseconds: int) -> bool:
        """Give the lease new time, also when it ran out; `False`: its epoch is another one."""
        ...

    def release_lease(self, epoch: int) -> None:
        """Free the lease at once; does nothing when its epoch is another one."""
        ...

    def fence(self, epoch: int | None) -> None:
        """Let this object write only while `epoch` is the lease's; `None` lifts that.

        A method that writes then raises `LeaseLostError` when another one leads: what it
        wanted has not happened and never will.
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
            stages: Stage to its wiring (input name to flow name).
            framed: The (stage, input) pairs that frame their flow: what arrives there waits
                until `frame` has taken it.

        Raises:
            AlreadyExistsError: If the name is taken.
        """
        ...

    def dataflows(self) -> list[DataflowRecord]:
        """Return every dataflow, by name."""
        ...

    def dataflow(self, name: str) -> DataflowRecord:
        """Return one dataflow; raises `NotFoundError`."""
        ...

    def set_desired(self, name: str, desired: Desired) -> None:
        """Record what the operator wants; `running` also clears failures of its stages.

        It also lifts the pauses of stages that stopped by themselves.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a dataflow and everything known of it; its tables stay.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        ...

    # arrivals

    def add_claim(self, claim: ClaimRecord) -> ClaimRecord:
        """Record the intention to claim a file; gives it the source's next `sequence`."""
        ...

    def update_claim(self, claim: ClaimRecord) -> None:
        """Replace a claim by id (status, sha256, reason)."""
        ...

    def known_claims(self, ids: Sequence[str]) -> set[str]:
        """Return which of these ids, some hundred at most, are those of claims."""
        ...

    def open_claims(self, dataflow: str, source: str) -> list[ClaimRecord]:
        """Return claims in status `claiming` or `claimed`, by sequence."""
        ...

    def claims(
        self,
        dataflow: str,
        source: str | None = None,
        *,
        status: ClaimStatus | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ClaimRecord]:
        """List claims, newest first."""
        ...

    def accepted_claim(self, dataflow: str, source: str, sha256: str) -> ClaimRecord | None:
        """Return the accepted claim with this content, if any."""
        ...

    def accept(self, claim: ClaimRecord, record: IncrementRecord) -> None:
        """Store a source's increment, enqueue it at every consumer, settle the claim.

        Does nothing when this (flow, index) is stored already (redo after a crash).
        A claim that the store does not know (it was lost) is inserted.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If this (flow, index) is stored with other content, or the
                increment before it is not.
        """
        ...

    def next_index(self, dataflow: str, flow: str) -> int:
        """Return the index that the next increment of a flow gets."""
        ...

    # queues and runs

    def stages(self, dataflow: str) -> list[StageRecord]:
        """Return the stages of a dataflow, by name."""
        ...

    def epochs(self) -> dict[str, int]:
        """Return how many epochs every dataflow has committed, over all its stages."""
        ...

    def connectors(self, dataflow: str) -> dict[str, dict[str, Connector]]:
        """Return stage -> input -> connector, inputs without increments included."""
        ...

    def position(self, dataflow: str) -> Position:
        """Return where a dataflow stands between two commits; raises `NotFoundError`."""
        ...

    def restore(self, position: Position, *, at: datetime) -> None:
        """Bring a dataflow forward to a position; what arrived at sources since stays queued.

        For a store that lost what the position knows. Does nothing when no stage is
        behind it.

        Args:
            position: Where the dataflow stood once.
            at: Time that increments get which the store does not know.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If its stages or inputs are others, or some are ahead of it.
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
        at: datetime,
    ) -> None:
        """Bring a dataflow to a new version: its stages, inputs and queues are those told.

        What arrived at sources since the position is queued behind it. Increments stay
        known, also of flows that are gone; runs of stages that are gone do not.

        Args:
            record: With the new version and document; what else it says is left alone.
            stages: As of `register`.
            framed: As of `register`.
            position: Where the new version begins; has every stage and input of `stages`.
            fresh: Stages whose pauses are lifted.
            at: Time that increments and stages get which the store does not know.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        ...

    def rewind(self, generation: Generation, *, at: datetime) -> None:
        """Take a dataflow to where a generation began, whether that lies behind or ahead.

        Increments of stages that were undone are forgotten, failures and pauses of stages
        too; what arrived at sources since the position stays queued. Does nothing when this
        or a later generation is stored already.

        Args:
            generation: That was begun.
            at: Time that increments get which the store does not know.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If its stages or inputs are others.
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
        """Replace an arrived output increment, or a punctuation, by the frames that it ended.

        Args:
            dataflow: Its name.
            stage: Of the dataflow.
            input_: A framed input of the stage.
            index: Of the output increment; the oldest that arrived there. `None`: the
                oldest punctuation that is not applied there.
            framing: Where the framing stands behind it.
            frames: In order; they join the end of the queue.

        Raises:
            NotFoundError: If there is no such stage.
            InvariantError: If it does not wait there, or not in this order.
        """
        ...

    # punctuations

    def punctuate(self, dataflow: str, punctuation: Punctuation) -> None:
        """Record a punctuation, and let it wait at every framed input that it is for.

        Does nothing when one of this number is recorded already (redo after a crash).

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If the one before it is missing.
        """
        ...

    def next_punctuation(self, dataflow: str) -> int:
        """Return the number that the next punctuation gets; raises `NotFoundError`."""
        ...

    def punctuation(self, dataflow: str, key: str) -> Punctuation | None:
        """Return the punctuation that was asked for with this key, if any."""
        ...

    def punctuations(
        self, dataflow: str, *, cursor: str | None = None, limit: int = 100
    ) -> Page[Punctuation]:
        """List punctuations, newest first."""
        ...

    def intend(self, run: RunRecord) -> None:
        """Record a run as INTENDED and set its stage's `waiting_since`.

        Raises:
            InvariantError: If the stage's next epoch is another one: the decision was stale.
        """
        ...

    def commit(self, intention: Intention, *, finished_at: datetime) -> None:
        """Move the connectors, store the outputs, enqueue them, advance the epoch.

        An empty output is not enqueued inside a cycle (`cbp.model.graph`): it would go
        round for ever. One transaction. Does nothing when the stage's epoch is already past this
        intention (redo). The run becomes COMMITTED with the intention's figures; one
        that the store does not know (it was lost) is inserted.

        Raises:
            NotFoundError: If there is no such stage.
            InvariantError: If an epoch before this one is missing, if it takes an
                increment that does not wait, or writes one that is stored otherwise; or it
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
    ) -> None:
        """Record a failed try: FAILED, one more failure; paused when `pause` says why.

        Does nothing when the run has failed already; leaves the stage alone when
        another run committed the epoch.

        Raises:
            NotFoundError: If there is no such run.
            InvariantError: If the run is committed.
        """
        ...

    def pause_stage(
        self, dataflow: str, stage: str, because: str, error: Mapping[str, Any] | None = None
    ) -> None:
        """Stop a stage, with the reason shown to the operator, and the error if one did it."""
        ...

    def intended_runs(self) -> list[RunRecord]:
        """Return every run in status INTENDED (there should be one a stage at most)."""
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
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[RunRecord]:
        """List runs, newest first."""
        ...

    def increments(
        self,
        dataflow: str,
        flow: str | None = None,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[IncrementRecord]:
        """List increments, newest first."""
        ...

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        """Return one increment; raises `NotFoundError`."""
        ...

    def oldest_increments(self, dataflow: str, flow: str, *, limit: int) -> list[IncrementRecord]:
        """Return the oldest increments of a flow that are known, ascending by index."""
        ...

    def forget_increments(self, dataflow: str, flow: str, *, below: int) -> int:
        """Remove increments of a flow below an index, at most some thousand; return how many.

        Those that wait in a queue stay, and the newest one: it tells the next index.
        """
        ...

    def forget_runs(self, dataflow: str, stage: str, *, below: int) -> int:
        """Remove runs of epochs below this one, at most some thousand; return how many.

        Those that are under way stay.
        """
        ...
