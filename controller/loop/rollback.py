"""Roll-back: a dataflow stands again where it stood, tables and connectors together.

    plan      the cut; the position there (`past.py`); what every table showed there  (reads)
    commit    the generation is put: one small file, the commit point
    finish    every table by one entry of difference; the store in one transaction (redo)

A crash before the commit point leaves everything as it was, a crash behind it is finished
by recovery before anything else. Inputs that were read behind the cut stand in the queues
again, and so do those that arrived since, unless they are dropped. So do closes of framed
flows, each between the same two increments; frames come again from both.

Invariants (tests/controller/test_rollback.py): rolled back and run on, a dataflow gives what
it gave before, epoch by epoch; a crash at any failpoint ends before or after.
Absent on purpose: removal of what was undone; it stays readable in the tables' history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

import structlog

from cbp.engine.base import Engine
from cbp.engine.files import Files
from cbp.engine.intentions import IntentionLog
from cbp.engine.rewind import TableRewind, Target
from cbp.errors import RollbackImpossibleError
from cbp.model.generation import Generation
from cbp.model.intention import Intention
from cbp.model.position import Position
from cbp.model.rollback import Cut, find_cut, parse_goal
from controller.loop.catalog import Catalog
from controller.loop.description import Descriptions
from controller.loop.frames import Framer
from controller.loop.past import Past, records_of
from controller.loop.punctuations import Punctuations
from controller.loop.runs import Runs
from controller.loop.terms import Terms
from controller.store.base import DataflowRecord, Store

__all__ = ["RollbackPlan", "Rollbacks"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a roll-back does; shown before it is done.

    Attributes:
        generation: That it begins; holds the position and the epochs that are undone.
        cut: Where it goes.
        records_undone: Emitted by epochs that are undone.
        queued: `stage.input` to the increments that wait there then, framed or not.
        closes_again: Closes behind the cut that stand where they stood.
        tables: Table folder to what changes.
    """

    generation: Generation
    cut: Cut
    records_undone: int
    queued: Mapping[str, int]
    closes_again: int
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
        framer: Framer,
        punctuations: Punctuations,
        terms: Terms,
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._engine, self._files, self._terms = store, engine, files, terms
        self._catalog, self._runs, self._clock = catalog, runs, clock
        self._framer, self._descriptions = framer, Descriptions(files)
        self._past = Past(store, engine, files, catalog, punctuations, self._descriptions, clock)

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
            drop_later: Do not queue again what arrived at sources behind the cut, nor close
                again what was closed there.
            request: Names the request.

        Raises:
            DefinitionError: Rule `rollback_target_invalid`.
            NotFoundError: If `to` names a stage that there is not.
            RollbackImpossibleError: If what it needs is no longer kept.
        """
        log = self._runs.log(record.folder)
        cut = self._cut(record, log, to)
        stood = self._past.stood(record, log, cut, everything=not drop_later)
        position = stood.position
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
            closes_dropped=stood.dropped,
            request=request,
        )
        undone = [i for s, n in epochs.items() for i in records_of(log, s, cut.epochs[s], n)]
        return RollbackPlan(
            generation=generation,
            cut=cut,
            records_undone=sum(o.records for i in undone for o in i.outputs.values()),
            queued={
                f"{name}.{input_}": len(connector.queue) + len(connector.arrived)
                for name, stage in position.stages.items()
                for input_, connector in stage.connectors.items()
            },
            closes_again=len(stood.again),
            tables=self._tables(record, generation, dry_run=True),
        )

    def carry_out(self, record: DataflowRecord, plan: RollbackPlan) -> None:
        """Do what a plan says; nothing of the dataflow runs, and everything is published.

        Raises:
            DataflowBusyError: If what is recorded cannot be finished now; nothing happened.
            LogConflictError: If another controller did something meanwhile, or leads now.
            OperatingError: If it could not be finished: recovery, or `finish`, goes on.
        """
        with self._runs.publisher.lock(record.name):
            self._runs.require_finished(record.name)
            log = self._runs.log(record.folder)
            log.put_generation(plan.generation, staged=self._terms.folder)
            self.finish(record)

    def finish(self, record: DataflowRecord) -> bool:
        """Carry out the newest roll-back if the store has not seen it; tell whether it had not."""
        log = self._runs.log(record.folder)
        if log.generation <= record.generation:
            return False
        generation = log.generations[-1]
        try:
            self._tables(record, generation, dry_run=False)
            self._framer.forget(record.name)  # what it looked at is not there any more
            self._store.rewind(generation, at=self._clock())
        finally:
            # Also where the store's answer was lost: then it is never finished again.
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
            return records_of(log, stage, epoch, epoch + 1)[0].prepared_ms

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
        """Return those that a table may lack which shows an epoch.

        It may show everything, and no epoch, where none has changed it.
        """
        newest = self.log.read(self.stage, self.stop - 1) if self.stop > epoch + 1 else None
        published = 0 if newest is None else newest.unpublished_from
        return records_of(self.log, self.stage, max(epoch + 1, published), self.stop)
