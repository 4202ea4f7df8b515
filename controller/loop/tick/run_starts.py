"""Starts a run that was decided: makes its record and its plan, and hands them to the `Runner`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from cbp.engine.interface.runs import RunPlan, RunPreparer, looked_up_tables
from cbp.engine.run.framing import increments_of
from cbp.model.run.intention import Intention, RunStatus
from cbp.model.schedule.parallel_runs import Places
from cbp.model.schedule.scheduler import StageView, Start
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.redo import Recovery
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.runs.planned_run import PlannedRun, RecordedRun
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.runner import Runner
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store


@dataclass(kw_only=True, eq=False)
class RunStarts(DataflowPart):
    """Makes records and plans of runs, and hands them to the runner."""

    recovery: Recovery
    publisher: Publisher
    runner: Runner
    ids: RunIds
    preparer: RunPreparer
    places: Places
    dropped_files: DroppedFiles

    def start(
        self, start: Start, record: DataflowRecord, stage: StageRecord, view: StageView
    ) -> None:
        """Start a run; a run that is already recorded is finished, not repeated."""
        node, *fused = self.catalog.units(record)[stage.stage].members
        recorded = self.recovery.read(record, stage.stage, stage.epoch)
        if recorded is not None:
            # The store lost this epoch, or does not have it yet. Its run is done: never repeat it.
            self.runner.redo(RecordedRun(record, node, recorded))
            return
        last, now = self._last_try(stage), self.clock()
        if node.translator.is_logged and last is not None and not view.by_author:
            start = _as_before(start, stage, last)
        run = RunRecord(
            id=self.ids.new_id(),
            dataflow=record.name,
            stage=stage.stage,
            epoch=start.epoch,
            attempt=1 if last is None else last.attempt + 1,
            status=RunStatus.INTENDED,
            read=dict(start.decision.read),
            remove=dict(start.decision.remove),
            started_at=now,
        )
        before = self.publisher.before(record, stage.stage, start.epoch)
        inputs = {name: start.decision.increments(view.connectors[name]) for name in node.wiring}
        plan = RunPlan(
            record.folder,
            record.name,
            node,
            start.epoch,
            run.id,
            inputs,
            tuple(fused),
            before,
            own_messages=self.catalog.compiled(record).own_messages(),
            slots_max=self.places.share(self.preparer.limits().slots) if view.gave_way else None,
            time_ms=self.publisher.next_ms(record.name, int(now.timestamp() * 1000)),
            due_ms=stage.due_ms,
            lookups=looked_up_tables(
                self.catalog.compiled(record),
                record.folder,
                (node, *fused),
                unpublished=partial(self._unpublished, record),
            ),
        )
        if node.sets_aside or node.translator.framed:
            read = [
                one
                for input_ in node.translator.inputs
                for increment in inputs.get(input_.name, ())
                for one in increments_of(increment, input_)
            ]
            origins = self.dropped_files.origins(record.name, read)
            plan = replace(plan, origins=origins)
        self.runner.start(PlannedRun(record, stage, view, start, run, plan))

    def _unpublished(self, record: DataflowRecord, writer: str) -> tuple[Intention, ...]:
        """Return the records that the tables of a stage may not show yet."""
        units = self.catalog.units(record)
        leader = next(name for name, unit in units.items() if writer in unit.names)
        epoch = next(s.epoch for s in self.store.stages(record.name) if s.stage == leader)
        return self.publisher.before(record, leader, epoch)

    def _last_try(self, stage: StageRecord) -> RunRecord | None:
        last = self.store.runs(stage.dataflow, stage=stage.stage, limit=1).items
        return last[0] if last and last[0].epoch == stage.epoch else None


def _as_before(start: Start, stage: StageRecord, last: RunRecord) -> Start:
    """Let a run of a loop read the input of its last attempt, and continue where that ended.

    The next run reads what arrived since, as if the attempt had not failed.
    """
    if last.error is None or start.decision.memo != stage.memo:
        return start
    return replace(start, decision=start.decision.as_before(last.read, last.remove))


_TIME_DIGITS = 12
"""Milliseconds since 1970 in hexadecimal; 12 digits last 8000 years."""


@dataclass
class RunIds:
    """Makes ids that sort by time, even across restarts; safe to use from several threads."""

    store: Store
    clock: Callable[[], datetime]
    random_hex: Callable[[int], str]
    _last_id_ms: int = field(init=False, default=0)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def new_id(self) -> str:
        """Return an id that sorts by time, also within a millisecond.

        It sorts after the ids of the previous process, even if the clock was set back, since
        attempts and failures are counted in this order.
        """
        with self._lock:
            if not self._last_id_ms:
                newest = self.store.runs(limit=1).items
                self._last_id_ms = int(newest[0].id[:_TIME_DIGITS], 16) if newest else 0
            self._last_id_ms = max(int(self.clock().timestamp() * 1000), self._last_id_ms + 1)
            return f"{self._last_id_ms:0{_TIME_DIGITS}x}{self.random_hex(4)}"
