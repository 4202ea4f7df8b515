"""Roll-back: a dataflow stands again where it stood, tables and connectors together.

    plan      the cut; the position there, by redoing records in a scratch store up to it;
              what every table showed there                                       (reads)
    commit    the generation is put: one small file, the commit point
    finish    every table by one entry of difference; the store in one transaction (redo)

A crash before the commit point leaves everything as it was, a crash behind it is finished
by recovery before anything else. Inputs that were read behind the cut stand in the queues
again, and so do those that arrived since, unless they are dropped.

Invariants (tests/controller/test_rollback.py): rolled back and run on, a dataflow gives what
it gave before, epoch by epoch; a crash at any failpoint ends before or after.
Absent on purpose: removal of what was undone; it stays readable in the tables' history.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

import structlog

from cbp.engine.base import Engine
from cbp.engine.files import Files
from cbp.engine.intentions import IntentionLog
from cbp.engine.rewind import TableRewind, Target
from cbp.errors import NotFoundError, OperatingError, RollbackImpossibleError
from cbp.model.connector import Connector
from cbp.model.generation import Generation
from cbp.model.increment import Increment
from cbp.model.intention import Intention
from cbp.model.position import Position, StagePosition
from cbp.model.rollback import Cut, find_cut, parse_goal
from controller.loop.catalog import Catalog
from controller.loop.description import Descriptions
from controller.loop.runs import Runs
from controller.store import open_store
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, Store

__all__ = ["RollbackPlan", "Rollbacks"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a roll-back does; shown before it is done.

    Attributes:
        generation: That it begins; holds the position and the epochs that are undone.
        cut: Where it goes.
        records_undone: Emitted by epochs that are undone.
        queued: `stage.input` to the increments that wait there then.
        tables: Table folder to what changes.
    """

    generation: Generation
    cut: Cut
    records_undone: int
    queued: Mapping[str, int]
    tables: Mapping[str, TableRewind]


class Rollbacks:
    """Plans roll-backs and carries them out; the caller sees to it that nothing runs."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        files: Files,
        catalog: Catalog,
        runs: Runs,
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._engine, self._files = store, engine, files
        self._catalog, self._runs, self._clock = catalog, runs, clock
        self._descriptions = Descriptions(files)

    def plan(
        self,
        record: DataflowRecord,
        to: str,
        *,
        who: str,
        why: str,
        drop_later: bool,
        request: str = "",
    ) -> RollbackPlan:
        """Find out what a roll-back would do; changes nothing that anybody sees.

        Args:
            record: The dataflow.
            to: See `cbp.model.rollback`.
            who: Who asks for it.
            why: The reason given.
            drop_later: Do not queue again what arrived at sources behind the cut.
            request: Names the request.

        Raises:
            DefinitionError: Rule `rollback_target_invalid`.
            NotFoundError: If `to` names a stage that there is not.
            RollbackImpossibleError: If what it needs is no longer kept.
        """
        log = self._runs.log(record.folder)
        cut = self._cut(record, log, to)
        arrivals = self._arrivals(record, cut, everything=not drop_later)
        position = self._position(record, log, cut, arrivals)
        dropped: dict[str, int] = {}
        if drop_later:
            position, dropped = self._without_later(record, position)
        self._require_queued(record, position)
        epochs = {stage.stage: stage.epoch for stage in self._store.stages(record.name)}
        now_ms = int(self._clock().timestamp() * 1000)
        generation = Generation(
            number=log.generation + 1,
            position=position,
            undone=epochs,
            prepared_ms=self._runs.publisher.next_ms(record.name, now_ms),
            who=who,
            why=why,
            dropped=dropped,
            request=request,
        )
        undone = [i for s, n in epochs.items() for i in _records(log, s, cut.epochs[s], n)]
        return RollbackPlan(
            generation=generation,
            cut=cut,
            records_undone=sum(o.records for i in undone for o in i.outputs.values()),
            queued={
                f"{name}.{input_}": len(connector.queue)
                for name, stage in position.stages.items()
                for input_, connector in stage.connectors.items()
            },
            tables=self._tables(record, generation, dry_run=True),
        )

    def carry_out(self, record: DataflowRecord, plan: RollbackPlan) -> None:
        """Do what a plan says; nothing of the dataflow runs, and everything is published.

        Raises:
            LogConflictError: If another controller did something meanwhile.
            OperatingError: If it could not be finished: recovery, or `finish`, goes on.
        """
        with self._runs.publisher.lock(record.name):
            if any(self._runs.publisher.unpublished(record.name).values()):
                message = f"{record.name!r} has runs that cannot be published; see its stages"
                raise OperatingError(message, dataflow=record.name)
            self._runs.log(record.folder).put_generation(plan.generation)
            self.finish(record)

    def finish(self, record: DataflowRecord) -> bool:
        """Carry out the newest roll-back if the store has not seen it; tell whether it had not."""
        log = self._runs.log(record.folder)
        if log.generation <= record.generation:
            return False
        generation = log.generations[-1]
        self._tables(record, generation, dry_run=False)
        self._store.rewind(generation, at=self._clock())
        self._runs.forget(record.name, since_ms=generation.prepared_ms)
        epochs = {name: stage.epoch for name, stage in generation.position.stages.items()}
        _log.info(
            "dataflow.rolled_back",
            dataflow=record.name,
            generation=generation.number,
            epochs=epochs,
            undone=dict(generation.undone),
            who=generation.who,
            why=generation.why,
        )
        return True

    def _cut(self, record: DataflowRecord, log: IntentionLog, to: str) -> Cut:
        goal = parse_goal(to)
        if goal.stage:
            leader = self._catalog.leader(record.name, goal.stage)
            goal = replace(goal, stage=leader)
        spans = {}
        for stage in self._store.stages(record.name):
            oldest = log.oldest(stage.stage)
            spans[stage.stage] = range(stage.epoch if oldest is None else oldest, stage.epoch)

        @cache
        def time_of(stage: str, epoch: int) -> int:
            return _records(log, stage, epoch, epoch + 1)[0].prepared_ms

        cut = find_cut(goal, spans, time_of)
        if cut is None:
            kept = {stage: span.start for stage, span in spans.items()}
            why = f"its records begin at epochs {kept}"
            raise RollbackImpossibleError(record.name, why, oldest=kept)
        begins, _ = self._descriptions.begins(record)
        if any(cut.epochs[stage] < epoch for stage, epoch in begins.items()):
            why = f"version {record.version} of it began at epochs {dict(begins)}"
            raise RollbackImpossibleError(record.name, why, oldest=dict(begins))
        return cut

    def _arrivals(
        self, record: DataflowRecord, cut: Cut, *, everything: bool
    ) -> dict[str, list[IncrementRecord]]:
        """Return what arrived at the sources, as far as the store knows, oldest first."""
        found: dict[str, list[IncrementRecord]] = {}
        at = datetime.fromtimestamp(cut.at_ms / 1000, UTC)
        for source in self._catalog.compiled(record).sources:
            arrived: list[IncrementRecord] = []
            for index in reversed(range(self._store.next_index(record.name, source))):
                try:
                    arrived.append(self._store.increment(record.name, source, index))
                except NotFoundError:
                    break  # the store begins here; whether it is enough, the redo tells
            found[source] = [one for one in reversed(arrived) if everything or one.created_at <= at]
        return found

    def _position(
        self,
        record: DataflowRecord,
        log: IntentionLog,
        cut: Cut,
        arrivals: Mapping[str, Sequence[IncrementRecord]],
    ) -> Position:
        """Return where the dataflow stood at a cut, with these arrivals in its queues.

        A store of its own redoes the records up to there, as recovery does: there is one
        definition of what a record does to the queues.
        """
        units = self._catalog.units(record)
        if any(unit.leader.translator.framed for unit in units.values()):
            why = "a stage frames its input, and positions do not hold where a framing stands"
            raise RollbackImpossibleError(record.name, why)
        wiring = {name: dict(unit.leader.wiring) for name, unit in units.items()}
        base = _base(self._origin(record, wiring), log, cut)
        if base is None:
            why = "no position before it is kept for its stages"
            raise RollbackImpossibleError(record.name, why)
        redo = [
            intention
            for stage, epoch in cut.epochs.items()
            for intention in _records(log, stage, base.stages[stage].epoch, epoch)
        ]
        redo.sort(key=lambda intention: intention.prepared_ms)
        generation = redo[0].generation if redo else 0
        with (
            tempfile.TemporaryDirectory(prefix="cbp-rollback-") as folder,
            closing(open_store(f"sqlite:///{folder}/scratch.db")) as scratch,
        ):
            scratch.register(replace(record, generation=generation), wiring)
            scratch.change(record, wiring, position=base, at=self._clock())
            for source, arrived in arrivals.items():
                due = scratch.next_index(record.name, source)
                for one in arrived:
                    if one.increment.index >= due:
                        claim = scratch.add_claim(_claim(record.name, one))
                        scratch.accept(replace(claim, status="accepted"), one)
            for intention in redo:
                scratch.commit(intention, finished_at=self._clock())
            return scratch.position(record.name)

    def _origin(self, record: DataflowRecord, wiring: Mapping[str, Mapping[str, str]]) -> Position:
        """Return where the record's version began."""
        begin = self._descriptions.of(record).begin
        if begin is not None:
            return begin.position
        stages = {
            name: StagePosition(0, None, {i: Connector(i) for i in inputs})
            for name, inputs in wiring.items()
        }
        return Position(record.name, stages, ())

    def _without_later(
        self, record: DataflowRecord, position: Position
    ) -> tuple[Position, dict[str, int]]:
        """Return the position as if what arrived later had been taken from the queues."""
        newest = {increment.flow: increment for increment in position.newest}
        dropped = {}
        for source in self._catalog.compiled(record).sources:
            end = self._store.next_index(record.name, source)
            known = newest[source].index + 1 if source in newest else 0
            if end > known:
                newest[source] = self._store.increment(record.name, source, end - 1).increment
                dropped[source] = end - known
        return replace(position, newest=tuple(newest[flow] for flow in sorted(newest))), dropped

    def _require_queued(self, record: DataflowRecord, position: Position) -> None:
        """Refuse a position whose queues name files that are gone."""
        for name, stage in position.stages.items():
            for connector in stage.connectors.values():
                for increment in connector.held:
                    for file in increment.files:
                        if not self._files.exists(f"{record.folder}/{file.path}"):
                            why = f"increment {increment.name}, which {name!r} read, is gone"
                            raise RollbackImpossibleError(record.name, why, file=file.path)

    def _tables(
        self, record: DataflowRecord, generation: Generation, *, dry_run: bool
    ) -> dict[str, TableRewind]:
        log = self._runs.log(record.folder)
        done: dict[str, TableRewind] = {}
        for leader, unit in self._catalog.units(record).items():
            stop = generation.start(leader)
            target = Target(record.name, stop - 1, generation.number, generation.prepared_ms)
            for node in unit.members:
                done |= self._engine.rewind(
                    record.folder,
                    node,
                    target,
                    records=_RecordsOf(log, leader, stop),
                    dry_run=dry_run,
                )
        return done


@dataclass(frozen=True, slots=True)
class _RecordsOf:
    """The records of a stage behind an epoch, up to `stop`."""

    log: IntentionLog
    stage: str
    stop: int

    def __call__(self, epoch: int) -> list[Intention]:
        return _records(self.log, self.stage, epoch + 1, self.stop)


def _records(log: IntentionLog, stage: str, start: int, stop: int) -> list[Intention]:
    """Return records by their epochs.

    Raises:
        RollbackImpossibleError: If one is gone.
    """
    found = []
    for epoch in range(start, stop):
        intention = log.read(stage, epoch)
        if intention is None:
            why = f"the record of epoch {epoch} of stage {stage!r} is gone"
            raise RollbackImpossibleError(stage, why, epoch=epoch)
        found.append(intention)
    return found


def _base(origin: Position, log: IntentionLog, cut: Cut) -> Position | None:
    """Return the newest position before a cut from which every record is there."""
    for position in reversed([origin, *log.positions()]):
        if position.version == origin.version and all(
            stage.epoch <= cut.epochs[name]
            and (stage.epoch == cut.epochs[name] or (log.oldest(name) or 0) <= stage.epoch)
            for name, stage in position.stages.items()
        ):
            return position
    return None


def _claim(dataflow: str, arrived: IncrementRecord) -> ClaimRecord:
    increment: Increment = arrived.increment
    return ClaimRecord(
        id=f"{increment.flow}{increment.index}",
        dataflow=dataflow,
        source=increment.flow,
        sequence=increment.index,
        path="",
        bytes=0,
        status="claiming",
        created_at=arrived.created_at,
        index=increment.index,
    )
