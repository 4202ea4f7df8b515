"""The life of a run: planned, prepared, recorded, published; each value holds the one before it.

    Start          the decision of a tick: stage, epoch, what to read and remove   model.schedule
      |  `RunStarts` gives it an id, and finds what it reads
    PlannedRun     the decision, its `RunRecord` (INTENDED) and its `RunPlan`      this module
      |  `Runner` lets the engine do the plan in a thread
    PreparedRun    files that nobody sees yet; if preparing fails, the epoch is
      |            decided again                                                   engine.interface
      |  `PlannedRun.recorded` makes one record of plan and files
    RecordedRun    its `Intention`, the truth from here on; putting it is the
      |            commit point                                                    this module
      |  `RunCommit` puts it, publishes what is due and commits; a run that fails
      |  there is a `ParkedRun`: it is finished later, never prepared again
    Publication    the intentions that tables show at one time                     model.run

No field is decided twice. After a crash, a run is a `RecordedRun` again, from its log. While a run
is under way, `Work` (`in_flight`) is the handle that cancels it; the scheduler sees that as
`ActiveRun`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.increment import Increment
from cbp.model.run.intention import Intention
from cbp.model.schedule.backoff import Rest
from cbp.model.schedule.scheduler import StageView, Start
from controller.loop.runs.in_flight import StageId
from controller.store.base import DataflowRecord, RunRecord, StageRecord


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run to start: the decision, the dataflow and the stage as they were then, and the plan."""

    record: DataflowRecord
    stage: StageRecord
    view: StageView
    start: Start
    run: RunRecord
    plan: RunPlan

    @property
    def id(self) -> StageId:
        """The dataflow and the stage."""
        return self.record.name, self.node.name

    @property
    def node(self) -> StageNode:
        """The stage that leads."""
        return self.plan.node

    def code(self) -> str:
        """Return the functions that the run calls, each with its file and line."""
        specs = [node.translator for node in (self.plan.node, *self.plan.fused)]
        return ", ".join(f"{spec.name}.translate ({spec.place})" for spec in specs)

    def recorded(
        self,
        prepared: PreparedRun,
        begins: Mapping[str, float],
        *,
        prepared_ms: int,
        unpublished_from: int,
        leader_epoch: int,
    ) -> RecordedRun:
        """Return the run with its intention, which the caller puts next."""
        decision, connectors = self.start.decision, self.view.connectors
        intention = Intention(
            dataflow=self.record.name,
            stage=self.node.name,
            epoch=self.run.epoch,
            run=self.run.id,
            prepared_ms=prepared_ms,
            read={name: tuple(indexes) for name, indexes in self.run.read.items()},
            remove={name: tuple(indexes) for name, indexes in self.run.remove.items()},
            outputs=prepared.outputs,
            changes=prepared.changes,
            dataflow_version=self.record.version,
            unpublished_from=unpublished_from,
            leader_epoch=leader_epoch,
            memo=decision.memo,
            figures={**prepared.figures, **_dropped(decision.dropped(connectors)), **begins},
            generation=self.record.generation,
            frames=decision.frames(connectors),
            codes={one.name: one.translator.code.text for one in (self.node, *self.plan.fused)},
            time_ms=self.plan.time_ms,
            due_ms=prepared.due_ms,
            lookups=prepared.lookups,
        )
        return RecordedRun(self.record, self.node, intention)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that can only be finished: its record is put already, or is the next thing put."""

    record: DataflowRecord
    node: StageNode
    intention: Intention

    @property
    def id(self) -> StageId:
        """The dataflow and the stage."""
        return self.record.name, self.node.name


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """A recorded run that could not be finished yet.

    Attributes:
        rest: The pause before the next attempt; `None` means not before the stage is resumed.
    """

    run: RecordedRun
    because: str
    tries: int
    rest: Rest | None

    @property
    def reason(self) -> str:
        """Why the stage waits, in words."""
        when = "" if self.rest is None else f" (next attempt at {self.rest.end:%H:%M:%S} UTC)"
        return f"could not finish epoch {self.run.intention.epoch}{when}: {self.because}"


def _dropped(increments: Sequence[Increment]) -> dict[str, float]:
    """Return the figures of increments that are removed unread; empty if there are none."""
    if not increments:
        return {}
    records = sum(increment.records for increment in increments)
    return {"increments_dropped": len(increments), "records_dropped": records}
