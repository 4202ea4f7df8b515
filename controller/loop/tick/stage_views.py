"""Views of stages, from the store's data and the work under way; the scheduler decides by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cbp.errors import CbpError, DefinitionError
from cbp.model.flow.connector import Connector
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.schedule.parallel_runs import ActiveRun
from cbp.model.schedule.scheduler import StageView
from cbp.model.schedule.timers import due_at
from cbp.model.schedule.waiting import Wait
from controller.loop.leadership.terms import Terms
from controller.loop.records.compiled_dataflows import Catalog
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.retry_policy import Failures
from controller.loop.runs.run_commit import ParkedRuns
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord, StageRecord, Store


@dataclass(frozen=True, slots=True)
class LoadedDataflow:
    """The store's data about one dataflow."""

    record: DataflowRecord
    stages: Sequence[StageRecord]
    connectors: Mapping[str, Mapping[str, Connector]]

    @classmethod
    def of(cls, record: DataflowRecord, store: Store) -> LoadedDataflow:
        """Load from the store; stages first, so that no queue is older than its stage's record."""
        return cls(record, store.stages(record.name), store.connectors(record.name))


@dataclass(frozen=True, slots=True)
class ViewedStage:
    """A stage's view for the decision, and the records that it was made from."""

    record: DataflowRecord
    stage: StageRecord
    view: StageView


def stopped_wait(stage: StageRecord, error: CbpError) -> Wait:
    """Return the wait of a stage that cannot start because of an error."""
    return Wait("stopped", error.message, stage.waiting_since, error=error)


@dataclass
class StageViews:
    """Makes the views of one dataflow's stages; pure except for adoptions by the catalog."""

    catalog: Catalog
    terms: Terms
    parked: ParkedRuns
    failures: Failures
    holds: Holds

    def of(
        self, loaded: LoadedDataflow, busy: Mapping[StageId, ActiveRun], broken: dict[StageId, Wait]
    ) -> dict[StageId, ViewedStage]:
        """Return the views of a dataflow's stages; add stages without a view to `broken`."""
        record = loaded.record
        try:
            drifted = self.catalog.drifted(record)
            self.catalog.adopt(record, staged=self.terms.folder)
            units = self.catalog.units(record)
        except CbpError as error:
            if error.retryable:
                raise
            for stage in loaded.stages:
                broken[record.name, stage.stage] = stopped_wait(stage, error)
            return {}
        views = {}
        for stage in loaded.stages:
            if stage.stage in drifted:
                broken[record.name, stage.stage] = stopped_wait(stage, drifted[stage.stage])
                continue
            connectors = loaded.connectors.get(stage.stage, {})
            view = self._view(record, units[stage.stage], stage, connectors, busy)
            views[record.name, stage.stage] = ViewedStage(record, stage, view)
        return views

    def never_run(self, views: Mapping[StageId, ViewedStage]) -> dict[StageId, Wait]:
        """Return the waits of stages that wait for themselves; only a correction can run one."""
        records = {viewed.record.name: viewed.record for viewed in views.values()}
        return {
            (name, stage): stopped_wait(views[name, stage].stage, DefinitionError(mistake))
            for name, record in records.items()
            for stage, mistake in self.catalog.never_run(record).items()
            if (name, stage) in views and views[name, stage].stage.epoch == 0
        }

    def _view(
        self,
        record: DataflowRecord,
        unit: PhysicalStage,
        stage: StageRecord,
        connectors: Mapping[str, Connector],
        busy: Mapping[StageId, ActiveRun],
    ) -> StageView:
        node, key = unit.leader, (record.name, stage.stage)
        because, finishing = stage.paused_because, False
        if held := self.holds.because(record.name):
            because = held
        elif (parked := self.parked.all().get(key)) is not None:
            because, finishing = parked.reason, parked.rest is not None
        elif record.is_paused:
            because = because or f"the dataflow is {record.desired}"
        return StageView(
            dataflow=record.name,
            stage=stage.stage,
            epoch=stage.epoch,
            connectors=connectors,
            waiting_since=stage.waiting_since,
            running=key in busy,
            work=busy.get(key),
            active=not because,
            paused_because=because,
            finishing=finishing,
            stopped=stage.has_stopped,
            retry_at=self.failures.not_before(stage),
            failed_because=self.failures.because(stage) if stage.retry_at else "",
            gave_way=0 if because or key in busy else self.failures.gave_way(stage),
            memo=stage.memo,
            runnable=node.runnable,
            wiring=node.wiring,
            members=unit.names,
            function=f"{node.translator.name}.translate",
            place=node.translator.place,
            limits={
                f"{member.name}.{output}": limit
                for member in unit.members
                for output, limit in member.limits.items()
            },
            turns=stage.turns,
            priority=stage.priority,
            due_at=due_at(stage.due_ms)
            if any(member.translator.timers for member in unit.members)
            else None,
        )
