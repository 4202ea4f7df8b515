"""Roll-back: takes a dataflow to a roll-back point, tables and connectors together.

    plan      the point (`cbp.model.version.rollback_point`), the position there
              (`past_position.py`), and what each table showed; only reads
    commit    the generation is put: one small file, the commit point
    finish    every table by one entry of difference; the store in one transaction (redo)

A crash before the commit point leaves everything as it was. After a later crash, recovery
finishes the roll-back before anything else. Inputs that were read after the point are queued again,
and so are inputs that arrived since, unless they are dropped: all of them (`drop_later`), or the
files that an operator named (`undone_inputs.py`).

Invariants (tests/controller/loop/recovery/test_rollback.py): a dataflow that was rolled back and
continues has the same results as before, epoch by epoch; a crash at any failpoint leaves the state
before or after the roll-back. Absent on purpose: removal of what was undone; it stays readable in
the history of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import islice, takewhile

import structlog

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.tables import TablePublisher, TableRewind, Target
from cbp.errors import NotFoundError, RollbackImpossibleError
from cbp.model.flow.generation import Generation, increments_dropped
from cbp.model.flow.position import Position
from cbp.model.run.intention import Intention
from cbp.model.version.rollback_point import (
    NamedPoint,
    PointAfterRun,
    RollbackPoint,
    TimeOf,
    find_point,
    newest_points,
    parse_point,
)
from controller.loop.author.framing import Framer
from controller.loop.leadership.terms import Terms
from controller.loop.records.compiled_dataflows import wiring_of
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.past_position import Past, Tell, records_of, untold
from controller.loop.recovery.superseded import (
    coming_back,
    file_names,
    require_chains,
    stay_dropped,
    superseded_in,
    without_increments,
)
from controller.loop.recovery.undone_inputs import (
    BySource,
    UndoneInput,
    Unread,
    left_out,
    undone_inputs,
    unread_of_sources,
)
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.run_commit import RunCommit
from controller.store.base import DataflowRecord

_LIST_MOMENTS = "`cbp rollback {} --moments` lists the possible points"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The effects of a roll-back; shown before it is done.

    Attributes:
        generation: The generation that begins; holds the position and the undone epochs.
        queued: `stage.input` -> number of increments that wait there afterwards, framed or not.
        queued_before: Source -> number of its increments that had arrived before the point, but
            had not been read (or framed, at a framed input), so they are applied again. Only if
            later arrivals are dropped.
        tables: Table folder -> what changes.
        comes_back: Source -> increments that an earlier roll-back removed, and that are applied
            again, since this one goes back further.
    """

    generation: Generation
    point: RollbackPoint
    records_undone: int
    queued: Mapping[str, int]
    closes_again: int
    tables: Mapping[str, TableRewind]
    queued_before: Mapping[str, int] = field(default_factory=dict)
    undone_inputs: Sequence[UndoneInput] = ()
    comes_back: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Rollbacks(DataflowPart):
    """Plans roll-backs and carries them out; the caller makes sure that no run is active."""

    tables: TablePublisher
    publisher: Publisher
    run_commit: RunCommit
    framer: Framer
    past: Past
    terms: Terms

    def plan(
        self,
        record: DataflowRecord,
        to: str,
        *,
        who: str,
        why: str,
        drop_later: bool,
        without: Sequence[str] = (),
        request: str = "",
        tell: Tell = untold,
    ) -> RollbackPlan:
        """Return the effects of a roll-back; changes nothing; raises as `Amendments.roll_back`."""
        log = self.open_log(record.folder)
        point = self._point(record, log, to)
        past = self.past.position_at(record, log, point, everything=not drop_later, tell=tell)
        position = past.position
        dropped: dict[str, int] = {}
        if drop_later:
            position, dropped = self._without_later(record, position, point)
        position = without_increments(position, stay_dropped(position, log.generations))
        superseded = superseded_in(position, log.generations, self.store)
        position = without_increments(position, superseded)
        named = self._named(record, position, without, dropped)
        position = without_increments(position, named)
        self._require_queued(record, position)
        epochs = {stage.stage: stage.epoch for stage in self.store.stages(record.name)}
        generation = Generation(
            number=log.generation + 1,
            position=position,
            undone=epochs,
            prepared_ms=self.publisher.next_ms(record.name),
            who=who,
            why=why,
            dropped=dropped,
            closes_dropped=past.dropped,
            superseded=superseded,
            left_out=named,
            request=request,
        )
        unread = self._unread_of_sources(record, position) if drop_later else {}
        gone = increments_dropped([*log.generations, generation])
        require_chains(position, gone, self.store)
        undone = [i for s, n in epochs.items() for i in records_of(log, s, point.epochs[s], n)]
        return RollbackPlan(
            generation=generation,
            point=point,
            records_undone=sum(o.records for i in undone for o in i.outputs.values()),
            queued={
                f"{name}.{input_}": len(connector.queue) + len(connector.arrived)
                for name, stage in position.stages.items()
                for input_, connector in stage.connectors.items()
            },
            closes_again=len(past.again),
            tables=self._tables(record, generation, dry_run=True, tell=tell),
            queued_before={s: len(u.somewhere) for s, u in unread.items() if u.somewhere},
            undone_inputs=undone_inputs(generation, self.store.connectors(record.name)),
            comes_back=coming_back(position, log.generations),
        )

    def moments(
        self,
        record: DataflowRecord,
        limit: int,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        below: int | None = None,
        drop_later: bool = False,
    ) -> Sequence[PointAfterRun]:
        """Return the newest roll-back points of the dataflow; reads only.

        Points whose position cannot be reconstructed from what is kept are left out. Only `plan`
        notices that a file is gone, or that the author's code no longer makes the same frames.

        Args:
            limit: Maximum number of moments to return; one record of the log is read for each,
                and for each moment that `until` or `below` leaves out.
            since, until: Range of time; `until` is exclusive. The moment before the first run
                has no time, so a range leaves it out.
            drop_later: Return only points to which a roll-back with `drop_later` can go.
        """
        since_ms = None if since is None else since.timestamp() * 1000
        until_ms = None if until is None else until.timestamp() * 1000
        log = self.open_log(record.folder)
        begins, _ = self.descriptions.begins(record)
        reachable, can_begin = self.past.reachable(record, log, everything=not drop_later)

        def is_reachable(moment: PointAfterRun) -> bool:
            epochs = moment.point.epochs
            return all(epochs[s] >= epoch for s, epoch in begins.items()) and reachable(
                moment.point
            )

        def is_before(moment: PointAfterRun) -> bool:
            if below is not None and moment.point.number >= below:
                return False
            return until_ms is None or (bool(moment.stage) and moment.point.at_ms < until_ms)

        def is_since(moment: PointAfterRun) -> bool:
            return since_ms is None or (bool(moment.stage) and moment.point.at_ms >= since_ms)

        moments = takewhile(is_reachable, newest_points(self._spans(record, log), _time_of(log)))
        asked = takewhile(is_since, filter(is_before, moments))
        return list(islice((one for one in asked if can_begin(one.point)), limit))

    def carry_out(self, record: DataflowRecord, plan: RollbackPlan, tell: Tell = untold) -> None:
        """Carry out a plan; no run of the dataflow is active, and everything is published.

        Raises:
            DataflowBusyError: If recorded runs cannot be finished now; nothing changed.
            LogConflictError: If another controller changed the dataflow meanwhile, or leads now.
            OperatingError: If it could not be finished; recovery, or `finish`, continues.
        """
        with self.publisher.lock(record.name):
            self.run_commit.require_finished(record.name)
            log = self.open_log(record.folder)
            log.put_generation(plan.generation, staged=self.terms.folder)
            self.finish(record, tell)

    def finish(self, record: DataflowRecord, tell: Tell = untold) -> bool:
        """Finish the newest roll-back if the store lacks it; return whether it did.

        Raises `FileDamagedError` if the record of a roll-back is damaged or missing.
        """
        log = self.open_log(record.folder)
        log.require_generation(record.generation)
        if log.generation <= record.generation:
            return False
        generation = log.generations[-1]
        try:
            self._tables(record, generation, dry_run=False, tell=tell)
            tell("fills the queues", 0, 0, "")
            self.framer.forget(record.name)  # the increments that it framed are gone
            dropped = increments_dropped(log.generations)
            self.store.rewind(generation, at=self.clock(), dropped=dropped)
        finally:
            # Also after an error: if only the store's answer was lost, a retry does nothing.
            self.run_commit.forget(record.name, since_ms=generation.prepared_ms)
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

    def _point(self, record: DataflowRecord, log: IntentionLog, to: str) -> RollbackPoint:
        named = parse_point(to)
        if named.stage:
            leader = self.catalog.leader(record.name, named.stage)
            named = replace(named, stage=leader)
        spans = self._spans(record, log)
        if named.flow:
            at_ms = self._came_at(record, named.flow, named.index, spans, _time_of(log))
            named = NamedPoint(at_ms=-1 if at_ms is None else at_ms - 1)
        point = find_point(named, spans, _time_of(log))
        if point is None:
            oldest = {stage: span.start for stage, span in spans.items()}
            kept = f"records of runs are kept only from {_listed(oldest)} on"
            why = f"{kept}; {_LIST_MOMENTS.format(record.name)}"
            raise RollbackImpossibleError(record.name, why, oldest=oldest)
        begins, _ = self.descriptions.begins(record)
        if any(point.epochs[stage] < epoch for stage, epoch in begins.items()):
            first = self.catalog.first_position(record)
            why = (
                f"its version {record.version} began at {_listed(begins)}; go to position {first} "
                f"or later ({_LIST_MOMENTS.format(record.name)}), or register the earlier version "
                "again with a rebuild"
            )
            raise RollbackImpossibleError(record.name, why, oldest=dict(begins), position=first)
        return point

    def _came_at(
        self,
        record: DataflowRecord,
        flow: str,
        index: int,
        spans: Mapping[str, range],
        time_of: TimeOf,
    ) -> int | None:
        """Return when an increment arrived or was made, in milliseconds; `None` if unknown."""
        stage, _, output = flow.partition(".")
        if not output:
            came = self.store.increment(record.name, flow, index).created_at
            return int(came.timestamp() * 1000)
        leader = self.catalog.leader(record.name, stage)
        if index >= spans[leader].stop:
            raise NotFoundError(kind="increment", name=f"{flow}/{index}")
        return time_of(leader, index) if index in spans[leader] else None

    def _spans(self, record: DataflowRecord, log: IntentionLog) -> dict[str, range]:
        spans = {}
        for stage in self.store.stages(record.name):
            oldest = log.oldest(stage.stage)
            spans[stage.stage] = range(stage.epoch if oldest is None else oldest, stage.epoch)
        return spans

    def _unread_of_sources(self, record: DataflowRecord, position: Position) -> dict[str, Unread]:
        """Return source -> its increments that some or all stages have not read at a position."""
        wiring, _ = wiring_of(self.catalog.units(record))
        return unread_of_sources(position, wiring, self.catalog.compiled(record).sources)

    def _named(
        self,
        record: DataflowRecord,
        position: Position,
        without: Sequence[str],
        dropped: Mapping[str, int],
    ) -> BySource:
        """Return source -> the increments that an operator named; see `undone_inputs.py`."""
        if not without:
            return {}
        unread = self._unread_of_sources(record, position)
        newest = {one.flow: one.index for one in position.newest}
        increments = {(source, index) for source, one in unread.items() for index in one.somewhere}
        for source, count in dropped.items():
            end = newest[source] + 1
            increments |= {(source, index) for index in range(end - count, end)}
        files = file_names(self.store, record.name, increments)
        return left_out(without, files, unread, number=position.number)

    def _without_later(
        self, record: DataflowRecord, position: Position, point: RollbackPoint
    ) -> tuple[Position, dict[str, int]]:
        """Return the position as if later arrivals had been read, and their number by source.

        A kept position may have increments that arrived after its last run, before it was put.
        """
        unread = self._unread_of_sources(record, position)
        keys = {(record.name, s, index) for s, one in unread.items() for index in one.everywhere}
        at = datetime.fromtimestamp(point.at_ms / 1000, UTC)
        late = {key[1:] for key, time in self.store.arrival_times(keys).items() if time > at}
        later = {source: one.last_of(late, source) for source, one in unread.items()}
        position = without_increments(position, later)
        newest = {increment.flow: increment for increment in position.newest}
        dropped = {}
        for source in self.catalog.compiled(record).sources:
            end = self.store.next_index(record.name, source)
            known = newest[source].index + 1 if source in newest else 0
            known = min([known, *later.get(source, ())])
            if end > known:
                newest[source] = self.store.increment(record.name, source, end - 1).increment
                dropped[source] = end - known
        return replace(position, newest=tuple(newest[flow] for flow in sorted(newest))), dropped

    def _require_queued(self, record: DataflowRecord, position: Position) -> None:
        """Raise `RollbackImpossibleError` if the position's queues name files that are gone."""
        for name, stage in position.stages.items():
            for connector in stage.connectors.values():
                for increment in connector.held:
                    for file in (*increment.files, *increment.gone):
                        if not self.files.exists(f"{record.folder}/{file.path}"):
                            why = (
                                f"a file of increment {increment.name}, which {name!r} would read "
                                "again, no longer exists"
                            )
                            raise RollbackImpossibleError(record.name, why, file=file.path)

    def _tables(
        self, record: DataflowRecord, generation: Generation, *, dry_run: bool, tell: Tell = untold
    ) -> dict[str, TableRewind]:
        log = self.open_log(record.folder)
        done: dict[str, TableRewind] = {}
        units = self.catalog.units(record)
        for number, (leader, unit) in enumerate(units.items()):
            tell("reads tables" if dry_run else "changes tables", number, len(units), "stages")
            stop = generation.start(leader)
            target = Target(record.name, stop - 1, generation.number, generation.prepared_ms)
            for node in unit.members:
                done |= self.tables.rewind(
                    record.folder,
                    node,
                    target,
                    records=partial(_records_after, log, leader, stop),
                    dry_run=dry_run,
                )
        return done


def _listed(epochs: Mapping[str, int]) -> str:
    return ", ".join(f"epoch {epoch} of {stage}" for stage, epoch in epochs.items())


def _time_of(log: IntentionLog) -> TimeOf:
    @cache
    def time_of(stage: str, epoch: int) -> int:
        return records_of(log, stage, epoch, epoch + 1)[0].prepared_ms

    return time_of


def _records_after(log: IntentionLog, stage: str, stop: int, epoch: int) -> list[Intention]:
    """Return the records before `stop` that a table may lack if it shows this epoch.

    A table that no run has changed is complete, although it shows no epoch.
    """
    newest = log.read(stage, stop - 1) if stop > epoch + 1 else None
    published = 0 if newest is None else newest.unpublished_from
    return records_of(log, stage, max(epoch + 1, published), stop)
