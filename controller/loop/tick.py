"""One tick: load -> decide (pure) -> start runs -> remember why the other stages wait.

Only a tick starts runs, and there is one tick at a time. A run ends on its own thread and
wakes the next tick. Every tick loads its data anew.

Guaranteed: a dataflow that no longer compiles, or in which anything else fails, stops only
itself; every stage that does not start has a reason (tests/controller/test_loop.py,
test_isolation.py).
Absent on purpose: threads and timers; the caller of `tick` has them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog

from cbp.engine.interface.runs import RunPlan
from cbp.errors import CbpError, DataflowBusyError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.fusion import PhysicalStage
from cbp.model.flow.connector import Connector
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.scheduler import Schedule, StageView, Start, decide
from cbp.model.schedule.slots import ActiveRun, Places
from cbp.model.schedule.waiting import Wait
from controller.loop.author.framing import FRAMED, Framer
from controller.loop.author.runnables import Answers
from controller.loop.leadership.current_term import CurrentTerm
from controller.loop.leadership.terms import Terms
from controller.loop.records.catalog import Catalog
from controller.loop.recovery.redo import Recovery
from controller.loop.runs.failures import Failures
from controller.loop.runs.finisher import PUBLISHED, Finisher
from controller.loop.runs.in_flight import InFlight, StageId
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.parked import Parked, ParkedRuns
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.runner import Job, Runner
from controller.loop.runs.starvation import Starving
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

__all__ = ["PAUSED_BY_HAND", "Ticker"]

PAUSED_BY_HAND = "is paused by the operator"

# Milliseconds since 1970 in hexadecimal; 12 digits last 8000 years.
TIME_DIGITS = 12

LOOKED_AT, DECIDED = "looked at", "decided about"

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The store's data about one dataflow."""

    record: DataflowRecord
    stages: Sequence[StageRecord]
    connectors: Mapping[str, Mapping[str, Connector]]

    @classmethod
    def of(cls, record: DataflowRecord, store: Store) -> _Loaded:
        """Load from the store; stages first, so that no queue is older than its stage's record."""
        return cls(record, store.stages(record.name), store.connectors(record.name))


@dataclass(frozen=True, slots=True)
class _Viewed:
    """A stage's view for the decision, and the records that it was made from."""

    record: DataflowRecord
    stage: StageRecord
    view: StageView


class Ticker:
    """Decides what runs, and starts it.

    Args:
        slots: Returns how many tasks the engine runs at a time.
        turns_max: Epochs without new input after which a cycle is reported as not draining.

    Attributes:
        lock: Held during a tick; no run starts while it is held.
        deleting: Dataflows that are being deleted and start no more runs.
        held: Dataflows that start no runs for now, with the reason.
        waits: Stage -> why it did not start at the last tick.
        stopping: Whether the service stops; then no run starts any more.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Callable[[], datetime],
        catalog: Catalog,
        term: CurrentTerm,
        in_flight: InFlight,
        parked: ParkedRuns,
        failures: Failures,
        publisher: Publisher,
        finisher: Finisher,
        runner: Runner,
        slots: Callable[[], int],
        recovery: Recovery,
        framer: Framer,
        answers: Answers,
        places: Places,
        starving: Starving,
        terms: Terms,
        isolation: Isolation,
        random_hex: Callable[[int], str],
        turns_max: int,
    ) -> None:
        self.lock = threading.Lock()
        self.deleting: set[str] = set()
        self.held: dict[str, str] = {}
        self.waits: dict[StageId, Wait] = {}
        self.stopping = False
        self._store, self._clock, self._catalog = store, clock, catalog
        self._term, self._in_flight, self._parked = term, in_flight, parked
        self._failures, self._publisher = failures, publisher
        self._finisher, self._runner, self._slots = finisher, runner, slots
        self._recovery, self._framer = recovery, framer
        self._answers, self._terms = answers, terms
        self._isolation = isolation
        self._places, self._starving, self._random_hex = places, starving, random_hex
        self._last_id_ms, self._turns_max = 0, turns_max

    def hold(self, dataflow: str, because: str) -> None:
        """Start no runs of a dataflow until it is released.

        Raises:
            DataflowBusyError: If it is held already, or is being deleted.
        """
        with self.lock:
            self.require_free(dataflow)
            self.held[dataflow] = because

    def require_free(self, dataflow: str) -> None:
        """Raise `DataflowBusyError` for a dataflow that is held, or is being deleted."""
        because = self.held.get(dataflow, "")
        if dataflow in self.deleting:
            because = "is being deleted"
        if because:
            raise DataflowBusyError(dataflow, f"it {because}")

    def release(self, dataflow: str) -> None:
        """Let a dataflow run again; a tick under way, which saw its old condition, ends first."""
        with self.lock:
            del self.held[dataflow]

    def tick(self) -> Schedule:
        """Look at all queues, start what can run, and remember why the rest waits."""
        with self.lock:
            self._in_flight.keep_time()
            if self._term.deposed or self.stopping:
                reason = self._term.deposed or "the service stops"
                self.waits = {
                    (loaded.record.name, stage.stage): Wait("stopped", reason, stage.waiting_since)
                    for loaded in self._loaded(self._store.dataflows())
                    for stage in loaded.stages
                }
                return Schedule((), self.waits)
            self._framer.keep_time()
            self._answers.keep_time()
            self._finish_parked()
            self._recovery.settle()
            # Taken before loading: a run that ends in between then counts as running once more. The
            # other way round its stage could look free while its queue dates from before the end.
            busy = self._starving.mark(
                self._in_flight.active_runs(), asked_to_end=self._in_flight.asked_to_end
            )
            records = self._store.dataflows()
            self._publish(records, {name for name, _ in busy})
            return self._decide_and_start(records, busy)

    def _loaded(self, records: Sequence[DataflowRecord]) -> list[_Loaded]:
        """Load the dataflows from the store; leave out those that cannot be loaded."""
        candidates = (
            self._isolation.attempt(record.name, "loaded", partial(_Loaded.of, record, self._store))
            for record in records
        )
        return [one for one in candidates if one is not None]

    def _decide_and_start(
        self, records: Sequence[DataflowRecord], busy: Mapping[StageId, ActiveRun]
    ) -> Schedule:
        views: dict[StageId, _Viewed] = {}
        broken: dict[StageId, Wait] = {}
        for loaded in self._framed(self._loaded(records)):
            look = partial(self._views, loaded, busy, broken)
            for key, viewed in (self._apart(loaded.record, LOOKED_AT, look) or {}).items():
                views[key] = viewed
        now = self._clock()
        decide_ = partial(self._decided, views, now)
        schedule = self._isolation.together((name for name, _ in views), DECIDED, decide_)
        waits = {**schedule.waits, **broken}
        self._stop_failed(schedule)
        if schedule.gives_way is not None:
            work, to = schedule.gives_way
            self._in_flight.give_way(work.run, to)
        started = []
        for start in schedule.starts:
            viewed = views[start.dataflow, start.stage]
            begin = partial(self._begin, start, viewed, waits)
            if self._apart(viewed.record, "started", begin):
                started.append(start)
        for key, circling in schedule.circling.items():
            known = waits.get(key, Wait("running", "", views[key].stage.waiting_since))
            words = "; ".join(part for part in (known.words, circling.message) if part)
            waits[key] = replace(known, words=words, error=known.error or circling)
        self.waits = {**waits, **self._in_trouble(records, waits)}
        return Schedule(tuple(started), self.waits, gives_way=schedule.gives_way)

    def _apart(self, record: DataflowRecord, doing: str, work: Callable[[], _T]) -> _T | None:
        return self._isolation.attempt(record.name, doing, work)

    def _views(
        self, found: _Loaded, busy: Mapping[StageId, ActiveRun], broken: dict[StageId, Wait]
    ) -> dict[StageId, _Viewed]:
        """Return the views of a dataflow's stages; add stages that have none to `broken`."""
        record = found.record
        try:
            drifted = self._catalog.drifted(record)
            self._catalog.adopt(record, staged=self._terms.folder)
            units = self._catalog.units(record)
        except CbpError as error:
            if error.retryable:
                raise
            for stage in found.stages:
                broken[record.name, stage.stage] = _stopped(stage, error)
            return {}
        views = {}
        for stage in found.stages:
            if stage.stage in drifted:
                broken[record.name, stage.stage] = _stopped(stage, drifted[stage.stage])
                continue
            connectors = found.connectors.get(stage.stage, {})
            view = self._view(record, units[stage.stage], stage, connectors, busy)
            views[record.name, stage.stage] = _Viewed(record, stage, view)
        return views

    def _decided(
        self, views: Mapping[StageId, _Viewed], now: datetime, dataflows: Collection[str]
    ) -> Schedule:
        chosen = {key: one for key, one in views.items() if key[0] in dataflows}
        answered = self._answers.given(
            (one.view, (one.record.version, one.record.generation))
            for one in chosen.values()
            if one.view.may_start(now)
        )
        chosen_views = (answered.get(key, one.view) for key, one in chosen.items())
        return decide(chosen_views, now=now, places=self._places, turns_max=self._turns_max)

    def _stop_failed(self, schedule: Schedule) -> None:
        """Pause the stages whose Runnable failed; otherwise it would fail again at every tick."""
        for (dataflow, stage), failure in schedule.failed.items():
            details = failure.as_dict()
            _log.warning("runnable.failed", dataflow=dataflow, error=details)
            stop = partial(self._store.pause_stage, dataflow, stage, failure.message, details)
            self._isolation.attempt(dataflow, "stopped", stop)

    def _begin(self, start: Start, viewed: _Viewed, waits: dict[StageId, Wait]) -> bool:
        """Start a run and return whether it started; if not, note the reason in `waits`."""
        try:
            self._start(start, viewed.record, viewed.stage, viewed.view)
        except CbpError as error:
            if error.retryable:  # an unreachable database stops nothing: the isolation tries again
                raise
            _log.error("run.not_started", error=error.as_dict(), dataflow=start.dataflow)
            waits[start.dataflow, start.stage] = _stopped(viewed.stage, error)
            return False
        return True

    def _in_trouble(
        self, records: Sequence[DataflowRecord], waits: Mapping[StageId, Wait]
    ) -> dict[StageId, Wait]:
        """Return the waits of stages whose dataflow has an unexpected failure."""
        troubled = {trouble.dataflow: trouble for trouble in self._isolation.troubles()}
        waits_by_stage = {}
        for record in records:
            if (trouble := troubled.get(record.name)) is None:
                continue
            stages = record.document.get("stages", {})
            for stage in stages if isinstance(stages, Mapping) else ():
                known = waits.get((record.name, stage))
                if known is None or known.error is None:
                    wait = Wait("retry", trouble.words, trouble.since, error=trouble.error)
                    waits_by_stage[record.name, stage] = wait
        return waits_by_stage

    def _framed(self, loaded: Sequence[_Loaded]) -> Iterator[_Loaded]:
        """Frame what arrived, except at stopped stages; yield the data loaded afterwards."""
        waiting: list[tuple[DataflowRecord, StageNode]] = []
        for one in loaded:
            look = partial(self._to_frame, one)
            waiting += self._apart(one.record, FRAMED, look) or ()
        self._framer.start(waiting)
        moved = {record.name for record, _ in waiting}
        for one in loaded:
            if one.record.name in moved:
                yield from self._loaded([one.record])
            else:
                yield one

    def _to_frame(self, found: _Loaded) -> list[tuple[DataflowRecord, StageNode]]:
        """Return the stages of a dataflow that have something to frame."""
        if found.record.name in self.deleting or found.record.name in self.held:
            return []
        try:
            drifted = self._catalog.drifted(found.record)
            units = self._catalog.units(found.record)
        except CbpError:
            return []  # its stages say why
        waiting = []
        for stage in found.stages:
            node = units[stage.stage].leader
            if not node.translator.framed or stage.paused_because or stage.stage in drifted:
                continue
            connectors = found.connectors[stage.stage]
            idle = self._framer.close_idle(found.record, node, connectors)
            if idle or self._framer.waits(found.record, node, connectors):
                waiting.append((found.record, node))
        return waiting

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
        if record.name in self.deleting:
            because = "is being deleted"
        elif record.name in self.held:
            because = self.held[record.name]
        elif (parked := self._parked.all().get(key)) is not None:
            because, finishing = parked.reason, parked.rest is not None
        elif record.desired == "paused":
            because = because or "the dataflow is paused"
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
            stopped=bool(stage.paused_because) and stage.paused_because != PAUSED_BY_HAND,
            retry_at=self._failures.not_before(stage),
            gave_way=0 if because or key in busy else self._failures.gave_way(stage),
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
        )

    def _start(
        self, start: Start, record: DataflowRecord, stage: StageRecord, view: StageView
    ) -> None:
        node, *fused = self._catalog.units(record)[stage.stage].members
        recorded = self._recovery.read(record, stage.stage, stage.epoch)
        if recorded is not None:
            # The store lost this epoch, or has not seen it yet. It is done: never do it twice.
            self._runner.redo(record, node, recorded)
            return
        run = RunRecord(
            id=self.new_id(),
            dataflow=record.name,
            stage=stage.stage,
            epoch=start.epoch,
            attempt=self._attempt(stage),
            status=RunStatus.INTENDED,
            read=dict(start.decision.read),
            remove=dict(start.decision.remove),
            started_at=self._clock(),
        )
        inputs = {
            name: tuple(view.connectors[name].find(i) for i in start.decision.read.get(name, ()))
            for name in node.wiring
        }
        plan = RunPlan(
            record.folder,
            record.name,
            node,
            start.epoch,
            run.id,
            inputs,
            tuple(fused),
            self._publisher.before(record, stage.stage, start.epoch),
            own_messages=self._catalog.compiled(record).own_messages(),
            slots_max=self._places.share(self._slots()) if view.gave_way else None,
        )
        dropped = start.decision.dropped(view.connectors)
        memo, gave_way = start.decision.memo, view.gave_way
        frames = start.decision.frames(view.connectors)
        self._runner.start(Job(record, node, stage, run, plan, memo, dropped, gave_way, frames))

    def _attempt(self, stage: StageRecord) -> int:
        last = self._store.runs(stage.dataflow, stage=stage.stage, limit=1).items
        return last[0].attempt + 1 if last and last[0].epoch == stage.epoch else 1

    def _publish(self, records: Sequence[DataflowRecord], busy: Collection[str]) -> None:
        """Publish what is due, and what dataflows finished before they were paused."""
        for record in records:
            at_once = record.desired == "paused" and record.name not in busy
            if record.name in self.deleting or record.name in self.held:
                continue
            if self._isolation.resting(record.name, PUBLISHED) is None:
                publish = partial(self._finisher.start_publishing, record, at_once=at_once)
                self._apart(record, "asked what is due", publish)

    def _finish_parked(self) -> None:
        """Try again to finish parked runs; those of a paused stage wait for the operator."""
        now = self._clock()
        for (name, stage_name), parked in self._parked.all().items():
            if (name, stage_name) in self._in_flight.busy():
                continue
            if name in self.deleting or name in self.held:
                continue
            if parked.rest is None or not parked.rest.lasts(now):
                self._apart(parked.record, "finished", partial(self._redo, parked, stage_name))

    def _redo(self, parked: Parked, stage_name: str) -> None:
        stages = self._store.stages(parked.record.name)
        stage = next(stage for stage in stages if stage.stage == stage_name)
        if not stage.paused_because:
            self._runner.redo(parked.record, parked.node, parked.intention)

    def new_id(self) -> str:
        """Return an id that sorts by time, also within a millisecond.

        It sorts after the ids of the previous process, even if the clock was set back:
        attempts and failures are counted in this order.
        """
        if not self._last_id_ms:
            newest = self._store.runs(limit=1).items
            self._last_id_ms = int(newest[0].id[:TIME_DIGITS], 16) if newest else 0
        self._last_id_ms = max(int(self._clock().timestamp() * 1000), self._last_id_ms + 1)
        return f"{self._last_id_ms:0{TIME_DIGITS}x}{self._random_hex(4)}"


def _stopped(stage: StageRecord, error: CbpError) -> Wait:
    return Wait("stopped", error.message, stage.waiting_since, error=error)
