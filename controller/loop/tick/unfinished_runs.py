"""Work that earlier runs left: publications that are due, and runs that could not be finished."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from controller.loop.runs.finisher import PUBLISHED, Finisher, ParkedRuns
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.planned_run import RecordedRun
from controller.loop.runs.runner import Runner
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord, Store

ASKED = "asked what is due"


@dataclass
class UnfinishedRuns:
    """Publishes and finishes recorded runs at every tick, beside the running ones."""

    store: Store
    clock: Callable[[], datetime]
    in_flight: InFlight
    parked: ParkedRuns
    finisher: Finisher
    runner: Runner
    isolation: Isolation
    holds: Holds

    def parked_dataflows(self) -> set[str]:
        """Return the dataflows with a run that could not be finished."""
        return {name for name, _ in self.parked.all()}

    def publish(
        self,
        records: Callable[[Collection[str]], Sequence[DataflowRecord]],
        busy: Collection[str],
    ) -> None:
        """Publish due runs, and at once the finished runs of a paused or drained dataflow.

        Args:
            records: Returns the records of dataflows.
            busy: The dataflows with work under way.
        """
        failed = (one.dataflow for one in self.isolation.troubles() if one.doing == ASKED)
        for record in records({*self.finisher.unpublished(), *failed}):
            at_once = record.desired != "running" and record.name not in busy
            if self.holds.because(record.name):
                continue
            if self.isolation.resting(record.name, PUBLISHED) is None:
                publish = partial(self.finisher.start_publishing, record, at_once=at_once)
                self.isolation.attempt(record.name, ASKED, publish)

    def finish_parked(self) -> None:
        """Retry to finish parked runs; runs of a paused stage wait for the operator."""
        now = self.clock()
        for (name, stage_name), parked in self.parked.all().items():
            if (name, stage_name) in self.in_flight.busy():
                continue
            if self.holds.because(name):
                continue
            if parked.rest is None or not parked.rest.lasts(now):
                self.isolation.attempt(name, "finished", partial(self._redo, parked.run))

    def _redo(self, run: RecordedRun) -> None:
        stages = self.store.stages(run.record.name)
        stage = next(stage for stage in stages if stage.stage == run.node.name)
        if not stage.paused_because:
            self.runner.redo(run)
