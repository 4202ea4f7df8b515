"""Publishes new increments to sinks: one pass over one sink at a time.

    is the position wrong (roll-back, gap)?            -> it is corrected, or an operator chooses
    for each increment that was recorded since:        target, then note, then store

Because of this order, each step can be repeated after a crash: the target publishes an increment
once, the note says what the target has, and the store is a copy of the note, for people. Only the
leader works; every effect passes the fence of its lease. A slower former leader writes the same
file again, or loses the race for a version of a table.

A pass ends after some seconds, so that other sinks get a turn. A failure affects only its sink: it
is stored and shown, and the sink is retried with growing pauses.

Invariants (tests/controller/sinks): a target has the records of the flow, each once, wherever a
crash happens; increments that a sink has not published are kept.

`Mirrors` replaces a mirror completely if the view's changes cannot bring it up to date:

    when it begins                         its changes may be collected, or not add up to the view
    a roll-back undid published changes    no changes take them back
    its stage began again                  the stage writes no deletions of its earlier records
    increments are missing                 the changes in between are lost
    the view has other columns
    an operator chose `rewrite`            another program wrote into the table

The records are those of one version of the view's table. The changes after the epoch that the
version shows come next, so none is lost, and none counts twice.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import structlog

from cbp.clock import MACHINE
from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.readers import IncrementReader, RecordReader
from cbp.engine.storage.table_names import state_table
from cbp.errors import CbpError, LeaseLostError, LogConflictError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.flow.generation import Generation, home_of_increment
from cbp.model.schedule.idle_until import next_in_turn
from cbp.model.version.flow_life import NEW_LIFE
from controller.loop.reading.flow_increments import FlowIncrements
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.compiled_dataflows import Catalog
from controller.loop.records.version_log import Descriptions
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.sinks.delta_table import DeltaMirror
from controller.sinks.errors import (
    SinkFailedError,
    SinkGapError,
    SinkRefusedError,
    SinkRolledBackError,
)
from controller.sinks.notes import SinkNote, SinkNotes, identity_of
from controller.sinks.sink_standing import CHOOSING, Standing, standing_of
from controller.sinks.target import Shipment, Target
from controller.sinks.webhook import numbers_of
from controller.store.base import DataflowRecord, Store
from controller.store.records import SinkRecord

PAGE_RECORDS = 10_000


@dataclass(slots=True)
class SinkWork:
    """One pass over one sink."""

    record: DataflowRecord
    flows: Dataflow
    node: SinkNode
    row: SinkRecord
    note: SinkNote
    target: Target
    generations: Sequence[Generation]

    @property
    def roll_backs(self) -> Sequence[Generation]:
        """The roll-backs that concern the flow; none for a source's flow, since arrivals stay."""
        return () if self.node.reads in self.flows.sources else self.generations


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Corrects mirrors; safe to use from several threads."""

    snapshots: Snapshots
    records: RecordReader
    descriptions: Descriptions

    def set_right(self, work: SinkWork, target: DeltaMirror, *, anew: bool) -> SinkNote:
        """Replace the target by the view, if changes alone cannot bring it up to date."""
        record, note = work.record, work.note
        life = self.descriptions.lives(record).get(work.node.view, NEW_LIFE)
        begins = max(life.first, life.signed)
        same = (note.life, note.since) == (begins, life.version)
        if note.replacement and same and not anew and target.fits():
            return note
        stage, _, view = work.node.view.partition(".")
        table = self.snapshots.take(record.name).tables[state_table(stage, view)]
        reader = self.records.versions(record.folder, work.flows.stages[stage])

        def batches() -> Iterator[pa.RecordBatch]:
            place: tuple[int, int] | None = (0, 0)
            while place is not None:
                rows, place = reader.state_page(view, table.version, place, PAGE_RECORDS)
                columns = [{name: row[name] for name in target.schema.names} for row in rows]
                yield from pa.Table.from_pylist(columns, schema=target.schema).to_batches()

        made = target.replace(note, record.generation, table.epoch, batches())
        return replace(made, life=begins, since=life.version)


PASS_SECONDS = 5.0

_log = structlog.get_logger(__name__)


_NEVER: tuple[int, tuple[str, ...]] = (-1, ())

MakeTarget = Callable[[DataflowRecord, Dataflow, SinkNode, str], Target]


@dataclass(kw_only=True, eq=False)
class SinkPublishing:
    """Publishes; different threads may call it for different sinks."""

    store: Store
    catalog: Catalog
    increments: IncrementReader
    open_log: Callable[[str], IntentionLog]
    exclusion: DataflowLocks
    notes: SinkNotes
    make_target: MakeTarget
    mirrors: Mirrors
    clock: Callable[[], datetime]
    pass_seconds: float = PASS_SECONDS
    seconds: Callable[[], float] = MACHINE.seconds
    draw: Callable[[], float] = random.random
    random_hex: Callable[[int], str] = secrets.token_hex

    def __post_init__(self) -> None:
        self._of_flow = FlowIncrements(self.store, self.increments)
        self._revisions: Mapping[str, int] = {}
        self._declared: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._passed: dict[tuple[str, str], int] = {}
        self._turn = ""

    def all(self) -> list[tuple[str, str]]:
        """Return the (dataflow, sink) pairs of all dataflows that can be loaded.

        Rows of sinks that are no longer in any document are removed; their notes stay.
        """
        rows = self.store.sinks()
        return [
            (record.name, sink)
            for record in self.store.dataflows()
            for sink in self._sinks_of(record, rows) or ()
        ]

    def due(self) -> list[tuple[str, str]]:
        """Return those of `all` with work, so that the cost of a call depends on their number.

        A sink is done with a revision of its dataflow after a pass that had nothing to publish; a
        failed one is due at its next attempt. In each call, some of the other sinks get a turn.
        """
        revisions, rows = self.store.revisions(), self.store.sinks()
        if any(self._declared.get(name, _NEVER)[0] != one for name, one in revisions.items()):
            for record in self.store.dataflows():
                revision = revisions.get(record.name)
                if revision is None or self._declared.get(record.name, _NEVER)[0] == revision:
                    continue
                if (sinks := self._sinks_of(record, rows)) is not None:
                    self._declared[record.name] = revision, tuple(sinks)
        self._declared = {n: one for n, one in self._declared.items() if n in revisions}
        self._revisions = revisions
        pairs = [(name, sink) for name, (_, sinks) in self._declared.items() for sink in sinks]
        self._passed = {pair: self._passed[pair] for pair in pairs if pair in self._passed}
        turn = next_in_turn(sorted("/".join(pair) for pair in pairs), self._turn)
        self._turn = turn[-1] if turn else ""
        by_pair = {(row.dataflow, row.sink): row for row in rows}
        return [
            pair
            for pair in pairs
            if self._is_due(pair, by_pair.get(pair)) or "/".join(pair) in turn
        ]

    def _is_due(self, pair: tuple[str, str], row: SinkRecord | None) -> bool:
        if row is None:
            return True
        if row.desired != "paused" and (standing := standing_of(row)).error is not None:
            return int(self.clock().timestamp() * 1000) >= standing.retry_ms
        return self._passed.get(pair) != self._revisions[pair[0]]

    def _sinks_of(
        self, record: DataflowRecord, rows: Sequence[SinkRecord]
    ) -> Collection[str] | None:
        """Return the sinks of a dataflow; `None` if it cannot be loaded, as its state shows."""
        mine = {row.sink for row in rows if row.dataflow == record.name}
        if not (mine or record.document.get("sinks")):
            return ()
        try:
            sinks = self.catalog.compiled(record).sinks
        except CbpError:
            return None
        if not sinks.keys() >= mine:
            self.store.forget_sinks(record.name, keep=tuple(sinks))
        return tuple(sinks)

    def publish(
        self, dataflow: str, sink: str, *, stopping: Callable[[], bool] = lambda: False
    ) -> bool:
        """Make one pass over a sink; return whether input still waits. Raises `LeaseLostError`."""
        # From before the pass: changes during the pass are handled by the next one.
        revision = self._revisions.get(dataflow)
        record, compiled = self.catalog.find(dataflow)
        node = compiled.sinks.get(sink)
        if node is None:
            return False
        more = self._pass_once(record, compiled, node, stopping)
        if revision is not None and not more:
            self._passed[dataflow, sink] = revision
        return more

    def _pass_once(
        self,
        record: DataflowRecord,
        compiled: Dataflow,
        node: SinkNode,
        stopping: Callable[[], bool],
    ) -> bool:
        dataflow, sink = record.name, node.name
        row = self._row(record, node)
        if row is None or row.desired == "paused" or self._rests(record, row):
            return False
        try:
            return self._pass(record, compiled, node, row, stopping)
        except (LeaseLostError, LogConflictError):
            raise
        except CbpError as error:
            self._fail(dataflow, sink, error)
        except Exception as error:  # whatever failed, the other sinks continue
            _log.exception("sink.failed", dataflow=dataflow, sink=sink)
            self._fail(dataflow, sink, SinkFailedError(sink, f"{type(error).__name__}: {error}"))
        return False

    def _pass(
        self,
        record: DataflowRecord,
        compiled: Dataflow,
        node: SinkNode,
        row: SinkRecord,
        stopping: Callable[[], bool],
    ) -> bool:
        log = self.open_log(record.folder)
        if log.generation != record.generation:
            return False  # a roll-back is being finished
        note = self.notes.load(record.folder, node.name, row.identity)
        if note is None:
            raise NotFoundError(kind="note of sink", name=f"{record.name}.{node.name}")
        target = self.make_target(record, compiled, node, row.choice)
        work = SinkWork(record, compiled, node, row, note, target, log.generations)
        self._keep(work, target.claim(note))
        self._set_right(work)
        return self._publish_waiting(work, stopping)

    def _set_right(self, work: SinkWork) -> None:
        """Take roll-backs and gaps into account, by the operator's choice if one is needed.

        A crash can leave a target one increment ahead of the note. A roll-back may have undone only
        this increment, which the note does not show, so the target is asked.
        """
        note, choice, name = work.note, work.row.choice, work.node.name
        newest = work.record.generation
        first = note.position.rolled_back_to(work.node.reads, work.roll_backs)
        bounds = self._of_flow.bounds(work.record, work.flows, work.node.reads)
        if isinstance(work.target, DeltaMirror):
            anew = first is not None or note.next < bounds.start or choice == "rewrite"
            mirrored = self.mirrors.set_right(work, work.target, anew=anew)
            self._keep(work, replace(mirrored, generation=newest))
            standing = standing_of(work.row)
            self._move(work, standing.mended() if choice else standing)
            return
        if first is not None:
            stale = work.target.stale(note, work.generations)
            if stale and not choice:
                raise SinkRolledBackError(name, first, stale)
            if stale and choice == "rewrite":
                note = work.target.withdraw(note, work.generations, first)
            note = replace(note, next=min(first, note.next))
        self._keep(work, replace(note, generation=newest))
        if work.note.next < bounds.start:
            if choice != "keep":
                raise SinkGapError(name, work.note.next, bounds.start)
            self._keep(work, replace(work.note, next=bounds.start))
        standing = standing_of(work.row)
        if choice == "keep" and (refused := _refused(work, standing)) is not None:
            self._keep(work, replace(work.note, next=max(work.note.next, refused + 1)))
            standing = replace(standing, dead=standing.dead + 1)
        # A choice that was carried out ends the error that it was made for.
        self._move(work, standing.mended() if choice else standing)

    def _publish_waiting(self, work: SinkWork, stopping: Callable[[], bool]) -> bool:
        """Publish increment after increment until none waits or the time is up.

        An error is over once an increment is published, or none waits: before that, another try
        would count as the first failure, and the pauses between tries would not grow.
        """
        until, flow = self.seconds() + self.pass_seconds, work.node.reads
        end, reached = work.row.end, work.note.next
        while reached < end and self.seconds() < until and not stopping():
            increment = self._of_flow.get(work.record, flow, reached)
            reached += 1
            if not increment.records:
                continue
            if not self._is_current(work.record):
                return False
            shipment = Shipment(
                flow,
                home_of_increment(work.roll_backs, flow, increment.index),
                increment.index,
                increment.records,
                self._came(work.record, flow, increment.index),
            )
            batches = self.increments.batches(
                work.record.folder, increment, work.flows.flows()[flow]
            )
            note = work.target.publish(work.note, shipment, batches)
            self._keep(work, replace(note, next=reached))
            now_ms = int(self.clock().timestamp() * 1000)
            self._move(work, standing_of(work.row).published(increment.records, now_ms))
        if reached > work.note.next:
            self._keep(work, replace(work.note, next=reached))
        standing = standing_of(work.row)
        self._move(work, standing if reached < end else standing.mended())
        return reached < end

    def _is_current(self, record: DataflowRecord) -> bool:
        """Return whether a dataflow is unchanged since this pass began."""
        now = self.store.dataflow(record.name)
        same = now.created_at == record.created_at and now.generation == record.generation
        return same and self.open_log(record.folder).generation == record.generation

    def _came(self, record: DataflowRecord, flow: str, index: int) -> datetime | None:
        try:
            return self.store.increment(record.name, flow, index).created_at
        except NotFoundError:  # its row was forgotten
            return None

    def _row(self, record: DataflowRecord, node: SinkNode) -> SinkRecord | None:
        """Return the row of a sink; make it, and its note, when the sink is first seen."""
        identity = identity_of(record.name, node)
        rows = {row.sink: row for row in self.store.sinks(record.name)}
        row = rows.get(node.name)
        if row is not None and row.identity == identity:
            return row
        # While a backlog is read, the lock is free only for moments, which one try would miss.
        with self.exclusion.attempt(
            record.name, "starts a sink", seconds=self.pass_seconds
        ) as free:
            if not free or self.store.dataflow(record.name) != record:
                return None
            note = self.notes.load(record.folder, node.name, identity)
            if note is None:
                note = self._first_note(record, node)
                self.notes.make_folder(record.folder)
                self.notes.save(record.folder, node.name, identity, note)
                _log.info("sink.begun", dataflow=record.name, sink=node.name, first=note.next)
            standing = Standing(first=note.first).to_json()
            self.store.put_sink(
                SinkRecord(
                    record.name,
                    node.name,
                    identity,
                    node.reads,
                    note.generation,
                    note.next,
                    "paused" if node.paused else "running",
                    "",
                    standing,
                )
            )
        return next(one for one in self.store.sinks(record.name) if one.sink == node.name)

    def _first_note(self, record: DataflowRecord, node: SinkNode) -> SinkNote:
        bounds = self._of_flow.bounds(record, self.catalog.compiled(record), node.reads)
        first = bounds.stop if node.begin == "now" else bounds.start
        return SinkNote(self.random_hex(16), first, record.generation, first)

    def _keep(self, work: SinkWork, note: SinkNote) -> None:
        if note != work.note:
            name, identity = work.node.name, work.row.identity
            self.notes.save(work.record.folder, name, identity, note)
            work.note = note

    def _move(self, work: SinkWork, standing: Standing) -> None:
        """Store the position of the sink; clear a choice after it was carried out."""
        note = work.note
        moved = replace(
            work.row, generation=note.generation, next=note.next, standing=standing.to_json()
        )
        if moved != work.row or work.row.choice:
            self.store.move_sink(moved, chosen=work.row.choice or None)
            work.row = replace(moved, choice="")

    def _rests(self, record: DataflowRecord, row: SinkRecord) -> bool:
        """Return whether there is no work, or a failed sink is not due for a retry yet."""
        standing = standing_of(row)
        if standing.error is not None:
            return int(self.clock().timestamp() * 1000) < standing.retry_ms
        same = row.generation == record.generation and not row.choice
        return same and row.end <= row.next and standing.increments > 0

    def _fail(self, dataflow: str, sink: str, error: CbpError) -> None:
        """Store a failure with the time of the next attempt, so that it is shown."""
        row = next((one for one in self.store.sinks(dataflow) if one.sink == sink), None)
        if row is None:
            return
        standing = standing_of(row)
        if (standing.error or {}).get("message") != error.message:
            _log.warning("sink.not_published", dataflow=dataflow, sink=sink, error=error.as_dict())
        now_ms = int(self.clock().timestamp() * 1000)
        failed = standing.failed(error, now_ms, self.draw())
        # A choice is cleared if it did not help, but not after a failure of another kind.
        chosen = row.choice if row.choice and error.code in CHOOSING else None
        self.store.move_sink(replace(row, standing=failed.to_json()), chosen=chosen)


def _refused(work: SinkWork, standing: Standing) -> int | None:
    """Return the increment whose delivery was refused; `None` if none was, or it was undone since.

    The note does not show it: increments without records may come before this one, and after a
    crash the note may already be past it.
    """
    error = standing.error or {}
    if error.get("error_code") != SinkRefusedError.code:
        return None
    generation, index = numbers_of(error["details"]["delivery"])
    is_current = home_of_increment(work.roll_backs, work.node.reads, index) == generation
    return index if is_current else None
