"""A planned run: what was decided, and what the engine is to do. The life of a run begins here.

    Start          the decision of a tick: stage, epoch, what to read and remove   model.schedule
      |  `RunStarts` gives it an id, and finds what it reads
    PlannedRun     the decision, its `RunRecord` (INTENDED) and its `RunPlan`      this module
      |  `Runner` lets the engine do the plan in a thread
    PreparedRun    files that nobody sees yet; after a failure the decision is
      |            taken again                                                     engine.interface
      |  `Runner` makes one record of plan and files; putting it is the commit point
    Intention      what the run read, removed, wrote: the truth from here on       model.run
      |  `Finisher` puts it, publishes what is due and commits; what fails there
      |  is `Parked` and finished later, never done again
    Publication    the intentions that tables show at one time                     model.run

Each value holds or names the one before it, and no field is decided twice. While a run is under
way, `Work` (`in_flight`) is what may be cancelled of it; the scheduler sees that as `ActiveRun`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cbp.engine.interface.runs import RunPlan
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.framing import FrameNote
from cbp.model.flow.increment import Increment
from cbp.model.schedule.scheduler import StageView, Start
from controller.loop.runs.in_flight import StageId
from controller.store.base import DataflowRecord, RunRecord, StageRecord


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that is to be started.

    Attributes:
        stage: The stage as it was when the run was decided.
        view: The same, as the decision saw it.
        start: The decision.
        run: Its record, as the store has it.
        plan: What the engine is to do.
    """

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

    @property
    def memo(self) -> Any:
        """The Runnable's new memo."""
        return self.start.decision.memo

    def dropped(self) -> tuple[Increment, ...]:
        """Return the increments that this run removes although no run ever read them."""
        return self.start.decision.dropped(self.view.connectors)

    def frames(self) -> Mapping[str, tuple[FrameNote, ...]]:
        """Return, by input, the notes on the frames that the run reads."""
        return self.start.decision.frames(self.view.connectors)

    def code(self) -> str:
        """Return the functions that the run calls, each with its file and line."""
        specs = [node.translator for node in (self.plan.node, *self.plan.fused)]
        return ", ".join(f"{spec.name}.translate ({spec.place})" for spec in specs)
