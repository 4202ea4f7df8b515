"""One tick: load -> decide (pure) -> start runs -> remember why the rest waits.

Only a tick starts runs, and one tick at a time; a run ends on its own thread and
wakes the next tick. What a tick knows is loaded anew each time.

Guaranteed: a dataflow that cannot be compiled any more stops only itself, and every
stage that does not start has its reason (tests/controller/test_loop.py).
Absent on purpose: threads and timers; whoever calls `tick` has them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from cbp.engine.base import RunPlan
from cbp.errors import CbpError, DataflowBusyError, LogConflictError
from cbp.model.connector import Connector
from cbp.model.dataflow import StageNode
from cbp.model.fusion import PhysicalStage
from cbp.model.intention import RunStatus
from cbp.model.places import Places, Taken
from cbp.model.schedule import Schedule, StageView, Start, decide
from cbp.model.waiting import Wait
from controller.loop.answers import Answers
from controller.loop.catalog import Catalog
from controller.loop.frames import Framer
from controller.loop.recovery import Recovery
from controller.loop.runs import Job, Runs, StageId
from controller.loop.starving import Starving
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

__all__ = ["PAUSED_BY_HAND", "Ticker"]

PAUSED_BY_HAND = "is paused by the operator"

# Milliseconds since 1970 in hexadecimal, good for 8000 years.
TIME_DIGITS = 12

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the store says of one dataflow."""

    record: DataflowRecord
    stages: Sequence[StageRecord]
    connectors: Mapping[str, Mapping[str, Connector]]

    @classmethod
    def of(cls, record: DataflowRecord, store: Store) -> _Loaded:
        """Ask the store; the stages first: what one has read is in no queue that is older."""
        return cls(record, store.stages(record.name), store.connectors(record.name))


class Ticker:
    """Decides what runs, and starts it.

    Attributes:
        lock: Held during a tick; holding it keeps runs from being started.
        deleting: Dataflows that start no runs any more.
        held: Dataflows that start no runs for now, to the reason.
        waits: Stage to why it did not start at the last tick.
        stopping: No run is started any more.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Callable[[], datetime],
        catalog: Catalog,
        runs: Runs,
        recovery: Recovery,
        framer: Framer,
        answers: Answers,
        places: Places,
        starving: Starving,
        random_hex: Callable[[int], str],
    ) -> None:
        self.lock = threading.Lock()
        self.deleting: set[str] = set()
        self.held: dict[str, str] = {}
        self.waits: dict[StageId, Wait] = {}
        self.stopping = False
        self._store, self._clock, self._catalog = store, clock, catalog
        self._runs, self._recovery, self._framer = runs, recovery, framer
        self._answers = answers
        self._places, self._starving, self._random_hex = places, starving, random_hex
        self._last_id_ms = 0

    def hold(self, dataflow: str, because: str) -> None:
        """Let a dataflow start no runs until it is released.

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
        """Let a dataflow run, but by no tick that has seen it as it was before."""
        with self.lock:
            del self.held[dataflow]

    def tick(self) -> Schedule:
        """Look at all queues, start what can run, and remember why the rest waits."""
        with self.lock:
            self._runs.keep_time()
            if self._runs.deposed or self.stopping:
                reason = self._runs.deposed or "the service stops"
                self.waits = {
                    (record.name, stage.stage): Wait("stopped", reason, stage.waiting_since)
                    for record in self._store.dataflows()
                    for stage in self._store.stages(record.name)
                }
                return Schedule((), self.waits)
            self._framer.keep_time()
            self._answers.keep_time()
            self._finish_parked()
            self._recovery.settle()
            # Taken before loading: a run that ends meanwhile then counts as running once more,
            # and never as a stage that is free with a queue from before its end.
            busy = self._starving.told(self._runs.taken())
            records = self._store.dataflows()
            self._publish(records, {name for name, _ in busy})
            return self._decide_and_start(records, busy)

    def _decide_and_start(
        self, records: Sequence[DataflowRecord], busy: Mapping[StageId, Taken]
    ) -> Schedule:
        views: dict[StageId, tuple[DataflowRecord, StageRecord, StageView]] = {}
        broken: dict[StageId, Wait] = {}
        loaded = [_Loaded.of(record, self._store) for record in records]
        for found in self._framed(loaded):
            record = found.record
            try:
                self._catalog.require_same(record)
                units = self._catalog.units(record)
            except CbpError as error:
                for stage in found.stages:
                    wait = Wait("stopped", error.message, stage.waiting_since, error=error)
                    broken[record.name, stage.stage] = wait
                continue
            for stage in found.stages:
                connectors = found.connectors.get(stage.stage, {})
                view = self._view(record, units[stage.stage], stage, connectors, busy)
                views[record.name, stage.stage] = record, stage, view
        now = self._clock()
        answered = self._answers.given(
            (view, (record.version, record.generation))
            for record, _, view in views.values()
            if view.may_start(now)
        )
        schedule = decide(
            (answered.get(key, view) for key, (_, _, view) in views.items()),
            now=now,
            places=self._places,
        )
        waits = {**schedule.waits, **broken}
        for (dataflow, stage_name), failure in schedule.failed.items():
            # A Runnable is deterministic: it would fail at every tick until it is mended.
            told = failure.as_dict()
            _log.warning("runnable.failed", dataflow=dataflow, error=told)
            self._store.pause_stage(dataflow, stage_name, failure.message, told)
        if schedule.gives_way is not None:
            work, to = schedule.gives_way
            self._runs.give_way(work.run, to)
        started = []
        for start in schedule.starts:
            try:
                self._start(start, *views[start.dataflow, start.stage])
                started.append(start)
            except CbpError as error:
                _log.error("run.not_started", error=error.as_dict(), dataflow=start.dataflow)
                since = views[start.dataflow, start.stage][1].waiting_since
                wait = Wait("stopped", error.message, since, error=error)
                waits[start.dataflow, start.stage] = wait
        for key, circling in schedule.circling.items():
            known = waits.get(key, Wait("running", "", views[key][1].waiting_since))
            words = "; ".join(part for part in (known.words, circling.message) if part)
            waits[key] = replace(known, words=words, error=known.error or circling)
        self.waits = waits
        return Schedule(tuple(started), waits, gives_way=schedule.gives_way)

    def _framed(self, loaded: Sequence[_Loaded]) -> Iterator[_Loaded]:
        """Let what arrived be framed, but at stopped stages; yield what is known then."""
        waiting: list[tuple[DataflowRecord, StageNode]] = []
        for found in loaded:
            waiting += self._to_frame(found)
        self._framer.start(waiting)
        moved = {record.name for record, _ in waiting}
        for found in loaded:
            name = found.record.name
            yield _Loaded.of(found.record, self._store) if name in moved else found

    def _to_frame(self, found: _Loaded) -> Iterator[tuple[DataflowRecord, StageNode]]:
        """Yield the stages of a dataflow at which something waits to be framed."""
        try:
            self._catalog.require_same(found.record)
            units = self._catalog.units(found.record)
        except CbpError:
            return  # its stages say why
        if found.record.name in self.deleting or found.record.name in self.held:
            return
        for stage in found.stages:
            node = units[stage.stage].leader
            if not node.translator.framed or stage.paused_because:
                continue
            connectors = found.connectors[stage.stage]
            try:
                idle = self._framer.close_idle(found.record, node, connectors)
            except LogConflictError as error:
                self._runs.depose(error.message)
                return
            if idle or self._framer.waits(found.record, node, connectors):
                yield found.record, node

    def _view(
        self,
        record: DataflowRecord,
        unit: PhysicalStage,
        stage: StageRecord,
        connectors: Mapping[str, Connector],
        busy: Mapping[StageId, Taken],
    ) -> StageView:
        node, key = unit.leader, (record.name, stage.stage)
        because = stage.paused_because
        if record.name in self.deleting:
            because = "is being deleted"
        elif record.name in self.held:
            because = self.held[record.name]
        elif (parked := self._runs.parked().get(key)) is not None:
            because = parked.reason
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
            stopped=bool(stage.paused_because) and stage.paused_because != PAUSED_BY_HAND,
            retry_at=stage.retry_at,
            gave_way=0 if because or key in busy else self._runs.gave_way(stage),
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
            # The store lost this epoch, or has not seen it yet: it is done, never done twice.
            self._runs.redo(record, node, recorded)
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
            self._runs.publisher.before(record, stage.stage, start.epoch),
            own_messages=self._catalog.compiled(record).own_messages(),
            slots_max=self._places.share(self._runs.slots()) if view.gave_way else None,
        )
        dropped = start.decision.dropped(view.connectors)
        memo, gave_way = start.decision.memo, view.gave_way
        frames = start.decision.frames(view.connectors)
        self._runs.start(Job(record, node, stage, run, plan, memo, dropped, gave_way, frames))

    def _attempt(self, stage: StageRecord) -> int:
        last = self._store.runs(stage.dataflow, stage=stage.stage, limit=1).items
        return last[0].attempt + 1 if last and last[0].epoch == stage.epoch else 1

    def _publish(self, records: Sequence[DataflowRecord], busy: Collection[str]) -> None:
        """Publish what waited long enough, and what dataflows finished before they paused."""
        for record in records:
            at_once = record.desired == "paused" and record.name not in busy
            if record.name not in self.deleting and record.name not in self.held:
                self._runs.start_publishing(record, at_once=at_once)

    def _finish_parked(self) -> None:
        """Try again to finish what is due; a stage that paused waits for the operator."""
        now = self._clock()
        for (name, stage_name), parked in self._runs.parked().items():
            if (name, stage_name) in self._runs.busy():
                continue
            if name in self.deleting or name in self.held:
                continue
            if parked.retry_at is not None and now < parked.retry_at:
                continue
            stage = next(s for s in self._store.stages(name) if s.stage == stage_name)
            if not stage.paused_because:
                self._runs.redo(parked.record, parked.node, parked.intention)

    def new_id(self) -> str:
        """Return an id that sorts by time, also within a millisecond.

        It sorts behind the ids of the process before, even if the clock was set back:
        attempts and failures are counted in this order.
        """
        if not self._last_id_ms:
            newest = self._store.runs(limit=1).items
            self._last_id_ms = int(newest[0].id[:TIME_DIGITS], 16) if newest else 0
        self._last_id_ms = max(int(self._clock().timestamp() * 1000), self._last_id_ms + 1)
        return f"{self._last_id_ms:0{TIME_DIGITS}x}{self._random_hex(4)}"
