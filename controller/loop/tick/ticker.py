"""One tick: load -> decide (pure) -> start runs -> remember why the other stages wait.

Only a tick starts runs, and there is one tick at a time. A run ends on its own thread and
wakes the next tick. A tick loads the dataflows that have changed, and leaves out those that rest
(`kept_dataflows`).

Guaranteed: a dataflow that no longer compiles, or in which anything else fails, stops only
itself; every stage that does not start has a reason (tests/controller/loop/test_loop.py,
test_isolation.py).
Absent on purpose: threads and timers; the caller of `tick` has them.

`Drains` ends a drain. A resume meanwhile takes precedence, and a drain does not end during a
listing (tests/controller/loop/tick/test_drains.py). Not guaranteed: that nothing comes after the
end of a drain. An upload that had begun before, or a timer that becomes due, waits for the resume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog

from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.schedule.idle_until import FOR_EVER, rests_until
from cbp.model.schedule.left_to_do import left_to_do
from cbp.model.schedule.parallel_runs import ActiveRun, Places
from cbp.model.schedule.scheduler import Schedule, Start, decide
from cbp.model.schedule.waiting import Wait
from controller.loop.author.framing import FRAMED, Framer
from controller.loop.author.runnables import RunnableAnswers
from controller.loop.leadership.terms import CurrentTerm
from controller.loop.records.compiled_dataflows import Catalog
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.redo import Recovery
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.in_flight import InFlight, StageId, Starving
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.planned_run import RecordedRun
from controller.loop.runs.run_commit import PUBLISHED, ParkedRuns, RunCommit
from controller.loop.runs.runner import Runner
from controller.loop.runs.time_limit import TimeLimit
from controller.loop.tick.holds import Holds
from controller.loop.tick.kept_dataflows import KeptDataflows
from controller.loop.tick.run_starts import RunStarts
from controller.loop.tick.stage_views import LoadedDataflow, StageViews, ViewedStage, stopped_wait
from controller.store.base import DataflowRecord, Store

ASKED, FINISHED = "checked for results to publish", "updated with a recorded run"

Waits = Mapping[StageId, Wait]


@dataclass(kw_only=True, eq=False)
class UnfinishedRuns(DataflowPart):
    """Publishes and finishes recorded runs at every tick, while other runs continue."""

    in_flight: InFlight
    parked: ParkedRuns
    run_commit: RunCommit
    runner: Runner
    isolation: Isolation
    holds: Holds

    def publish(
        self, records: Callable[[Collection[str]], Sequence[DataflowRecord]], busy: Collection[str]
    ) -> None:
        """Publish due runs, and at once the finished runs of a paused or drained dataflow."""
        failed = (one.dataflow for one in self.isolation.troubles() if one.doing == ASKED)
        for record in records({*self.run_commit.publisher.unpublished_dataflows(), *failed}):
            at_once = record.desired != "running" and record.name not in busy
            rests = self.isolation.resting(record.name, PUBLISHED) is not None
            if not rests and not self.holds.because(record.name):
                publish = partial(self.run_commit.start_publishing, record, at_once=at_once)
                self.isolation.attempt(record.name, ASKED, publish)

    def finish_parked(self) -> None:
        """Try again to finish parked runs; runs of a paused stage wait for the operator."""
        now = self.clock()
        for (name, stage_name), parked in self.parked.all().items():
            if (name, stage_name) in self.in_flight.busy() or self.holds.because(name):
                continue
            if parked.rest is None or not parked.rest.lasts(now):
                self.isolation.attempt(name, FINISHED, partial(self._redo, parked.run))

    def _redo(self, run: RecordedRun) -> None:
        stages = self.store.stages(run.record.name)
        stage = next(stage for stage in stages if stage.stage == run.node.name)
        if not stage.paused_because:
            self.runner.redo(run)


@dataclass
class InputFraming:
    """Starts the framing of a tick."""

    catalog: Catalog
    framer: Framer
    isolation: Isolation
    holds: Holds

    def start(self, loaded: Sequence[LoadedDataflow]) -> set[str]:
        """Begin framing, except at stopped stages; return the dataflows with input to frame."""
        waiting: list[tuple[DataflowRecord, StageNode]] = []
        for one in loaded:
            look = partial(self._to_frame, one)
            waiting += self.isolation.attempt(one.record.name, FRAMED, look) or ()
        self.framer.start(waiting)
        return {record.name for record, _ in waiting}

    def next_close(self, loaded: LoadedDataflow) -> datetime:
        """Return when idle time will close a frame of a dataflow, if nothing arrives."""
        units = self.catalog.units(loaded.record)
        return min(
            (
                self.framer.next_close(
                    loaded.record, units[stage.stage].leader, loaded.connectors[stage.stage]
                )
                for stage in loaded.stages
                if units[stage.stage].leader.translator.framed
            ),
            default=FOR_EVER,
        )

    def _to_frame(self, loaded: LoadedDataflow) -> list[tuple[DataflowRecord, StageNode]]:
        if self.holds.because(loaded.record.name):
            return []
        try:
            drifted = self.catalog.drifted(loaded.record)
            units = self.catalog.units(loaded.record)
        except CbpError:
            return []  # its stages say why
        waiting = []
        for stage in loaded.stages:
            node = units[stage.stage].leader
            if not node.translator.framed or stage.paused_because or stage.stage in drifted:
                continue
            connectors = loaded.connectors[stage.stage]
            idle = self.framer.close_idle(loaded.record, node, connectors)
            if idle or self.framer.waits(loaded.record, node, connectors):
                waiting.append((loaded.record, node))
        return waiting


@dataclass(kw_only=True, eq=False)
class Drains(DataflowPart):
    """Ends the drains of dataflows without remaining work."""

    in_flight: InFlight
    parked: ParkedRuns
    exclusion: DataflowLocks
    wake: Callable[[], object]

    def end(self, record: DataflowRecord) -> None:
        """Note that a draining dataflow is drained, if no work is left; never waits."""
        # Not during a listing of its folders, which reads the record under this lock.
        with self.exclusion.attempt(record.name, "is drained") as free:
            if not free or self._is_left(record):
                return
            self.store.set_desired(record.name, "drained", instead_of="draining")
        _log.info("dataflow.drained", dataflow=record.name)
        self.wake()

    def _is_left(self, record: DataflowRecord) -> bool:
        name = record.name
        if any(self.store.open_claims(name, one) for one in record.document.get("sources", ())):
            return True
        units = self.catalog.units(record)
        rules = {leader: unit.leader.runnable for leader, unit in units.items()}
        under_way = {*self.in_flight.busy(), *self.parked.all()}
        stages = {stage for dataflow, stage in under_way if dataflow == name and stage}
        return bool(left_to_do(rules, self.store.position(name), stages))


@dataclass
class Decisions:
    """Decides about the stages of some dataflows."""

    store: Store
    isolation: Isolation
    answers: RunnableAnswers
    places: Places
    turns_max: int

    def decide(
        self, views: Mapping[StageId, ViewedStage], now: datetime, dataflows: Collection[str]
    ) -> Schedule:
        """Return the runs to start, and why other stages wait."""
        chosen = {key: one for key, one in views.items() if key[0] in dataflows}
        answered = self.answers.given(
            (one.view, (one.record.version, one.record.generation))
            for one in chosen.values()
            if one.view.may_start(now)
        )
        chosen_views = (answered.get(key, one.view) for key, one in chosen.items())
        return decide(chosen_views, now=now, places=self.places, turns_max=self.turns_max)

    def stop_failed(self, schedule: Schedule) -> None:
        """Pause the stages whose Runnable failed; otherwise it would fail again at every tick."""
        for (dataflow, stage), failure in schedule.failed.items():
            details = failure.as_dict()
            _log.warning("runnable.failed", dataflow=dataflow, error=details)
            stop = partial(self.store.pause_stage, dataflow, stage, failure.message, details)
            self.isolation.attempt(dataflow, "paused after an error in its code", stop)


LOOKED_AT, DECIDED = "examined for runs to start", "scheduled"

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class Ticker:
    """Decides which runs start, and starts them.

    Attributes:
        waits: Stage -> why it did not start when its dataflow was last examined.
        looked: Dataflow -> its waits, for those that the last tick examined; a removed dataflow
            has none.
        epochs: Returns dataflow -> how many epochs it has committed.
    """

    clock: Callable[[], datetime]
    term: CurrentTerm
    in_flight: InFlight
    isolation: Isolation
    holds: Holds
    time_limit: TimeLimit
    unfinished: UnfinishedRuns
    recovery: Recovery
    starving: Starving
    kept: KeptDataflows
    framing: InputFraming
    views: StageViews
    decisions: Decisions
    starts: RunStarts
    drains: Drains

    def __post_init__(self) -> None:
        self.looked: Mapping[str, Waits] = {}
        self.stopping, self._stopped_by = False, ""
        self.waits, self.epochs = self.kept.waits, self.kept.epochs

    def begin(self) -> None:
        """Begin a term as leader: forget everything from before."""
        self.kept.forget()

    def tick(self) -> Schedule:
        """Check all queues, start runs that can start, and remember why the others wait."""
        with self.holds.lock:
            self.time_limit.keep()
            if reason := self.term.deposed or ("the service is stopping" if self.stopping else ""):
                self._say(reason)
                return Schedule((), self.waits)
            self._stopped_by = ""
            self.framing.framer.keep_time()
            self.decisions.answers.keep_time()
            self.unfinished.finish_parked()
            self.recovery.settle()
            # Read before loading: a run that ends in between then counts as running for one more
            # tick. In the other order its stage could look free, with a queue from before its end.
            busy = self.starving.mark(
                self.in_flight.active_runs(), asked_to_end=self.in_flight.asked_to_end
            )
            changed = self.kept.refresh()
            working = {name for name, _ in busy}
            self.unfinished.publish(self.kept.records, working)
            unsettled = working | self._unsettled()
            names = self.kept.awake(unsettled)
            schedule = self._decide_and_start(names, busy, unsettled)
            self.looked = {name: self.waits.of(name) for name in changed.union(names)}
            for record in self.kept.records(names):
                if record.desired == "draining":
                    self._apart(record, "drained", partial(self.drains.end, record))
            return schedule

    def _unsettled(self) -> set[str]:
        """Return the dataflows with a trouble, a parked run or a hold; each tick examines them."""
        troubled = {trouble.dataflow for trouble in self.isolation.troubles()}
        return troubled | {name for name, _ in self.unfinished.parked.all()} | self.holds.all()

    def _say(self, reason: str) -> None:
        self.looked = {}
        changed = self.kept.refresh()
        names = changed if reason == self._stopped_by else self.kept.names()
        for one in self.kept.loaded(names):
            waits = {
                (one.record.name, stage.stage): Wait("stopped", reason, stage.waiting_since)
                for stage in one.stages
            }
            self.kept.note(one.record.name, waits, None)
        self._stopped_by = reason

    def _decide_and_start(
        self, names: Sequence[str], busy: Mapping[StageId, ActiveRun], unsettled: Collection[str]
    ) -> Schedule:
        views: dict[StageId, ViewedStage] = {}
        broken: dict[StageId, Wait] = {}
        loaded_now, moved = self.kept.loaded(names), set[str]()
        for loaded in self._framed(loaded_now, moved):
            look = partial(self.views.of, loaded, busy, broken)
            for key, viewed in (self._apart(loaded.record, LOOKED_AT, look) or {}).items():
                views[key] = viewed
        now = self.clock()
        choose = partial(self.decisions.decide, views, now)
        schedule = self.isolation.together((name for name, _ in views), DECIDED, choose)
        waits = {**schedule.waits, **broken}
        for key, never in self.views.never_run(views).items():
            if key in waits and waits[key].kind == "input":
                waits[key] = never
        self.decisions.stop_failed(schedule)
        if schedule.gives_way is not None:
            work, to = schedule.gives_way
            self.in_flight.give_way(work.run, to)
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
        waits |= self._in_trouble(self.kept.records(names), waits)
        self._note(names, loaded_now, views, waits, moved.union(unsettled))
        return Schedule(tuple(started), self.waits, gives_way=schedule.gives_way)

    def _note(
        self,
        names: Sequence[str],
        loaded: Sequence[LoadedDataflow],
        views: Mapping[StageId, ViewedStage],
        waits: Waits,
        go_on: Collection[str],
    ) -> None:
        """Keep the waits of dataflows, and how long they are valid; busy stages have no wait."""
        by_name: dict[str, dict[StageId, Wait]] = {name: {} for name in names}
        for key, wait in waits.items():
            by_name[key[0]][key] = wait
        ends: dict[str, datetime | None] = {}
        for one in loaded:
            name = one.record.name
            mine = [views.get((name, stage.stage)) for stage in one.stages]
            whole = [viewed.view for viewed in mine if viewed is not None]
            goes_on = name in go_on or one.record.desired == "draining" or len(whole) < len(mine)
            end = None if goes_on else rests_until(whole, by_name[name])
            ends[name] = None if end is None else min(end, self.framing.next_close(one))
        for name, mine_waits in by_name.items():
            self.kept.note(name, mine_waits, ends.get(name))

    def _apart(self, record: DataflowRecord, doing: str, work: Callable[[], _T]) -> _T | None:
        return self.isolation.attempt(record.name, doing, work)

    def _begin(self, start: Start, viewed: ViewedStage, waits: dict[StageId, Wait]) -> bool:
        """Start a run and return whether it started; if not, note the reason in `waits`."""
        try:
            self.starts.start(start, viewed.record, viewed.stage, viewed.view)
        except CbpError as error:
            if error.retryable:  # an unreachable database stops nothing: the isolation tries again
                raise
            _log.error("run.not_started", error=error.as_dict(), dataflow=start.dataflow)
            waits[start.dataflow, start.stage] = stopped_wait(viewed.stage, error)
            return False
        return True

    def _in_trouble(self, records: Sequence[DataflowRecord], waits: Waits) -> dict[StageId, Wait]:
        """Return the waits of stages whose dataflow has an unexpected failure."""
        troubled = {trouble.dataflow: trouble for trouble in self.isolation.troubles()}
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

    def _framed(
        self, loaded: Sequence[LoadedDataflow], moved: set[str]
    ) -> Iterator[LoadedDataflow]:
        """Frame arrivals, and add to `moved`; yield the data loaded afterwards."""
        moved.update(self.framing.start(loaded))
        for one in loaded:
            again = self.kept.load(one.record) if one.record.name in moved else one
            if again is not None:
                yield again
