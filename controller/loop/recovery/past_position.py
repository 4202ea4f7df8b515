"""Position at a roll-back point: reconstructs queues, memos and frames as they were then.

    base      the newest position before the point from which every record is kept
    closes    those made since the base, each between the same two increments of its flow
    arrivals  what came to the sources since the base
    redo      the records up to the point, in their order, as recovery redoes them

All this happens in a scratch store, which no other code sees. So the effect of a record on the
queues is defined only once. Increments that no record up to the point can have read do not pass
through the scratch store: they wait behind all others. So the cost follows the number of records
that are redone, not that of increments that wait.

Guaranteed (tests/controller/loop/recovery/test_rollback.py, test_rollback_framed.py): the service's
own store and files are only read. Not guaranteed: that the past is still kept;
`RollbackImpossibleError` says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.readers import IncrementReader
from cbp.engine.storage.scratch_folders import scratch_folder
from cbp.errors import NotFoundError, RollbackImpossibleError
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing, Segment
from cbp.model.flow.generation import closes_dropped
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.flow.punctuation import Punctuation
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import Intention
from cbp.model.schedule.parallel_runs import Places
from cbp.model.version.rollback_point import RollbackPoint
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.records.compiled_dataflows import Units, wiring_of
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.superseded import with_connectors
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.threads import Here
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, Store, open_scratch

_NOT_WITHOUT = (
    "that point can only be reached from a later position, where {} {}, although it came after "
    "the point. Choose {} or a later time, or repeat the command without --drop-later"
)

Tell = Callable[[str, int, int, str], None]
"""Receives the progress: the step in words, how much of it is done, of how much, and the unit."""


def untold(step: str, done: int, total: int, unit: str) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class PastPosition:
    """The position of a dataflow at a roll-back point, and the closes after the point.

    Attributes:
        again: Numbers of the closes after the point that the position contains.
        dropped: Numbers of the closes after the point that it does not contain.
    """

    position: Position
    again: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    """Data from which positions of the past are reconstructed; read once for any number of points.

    Attributes:
        positions: The log's positions, descending; `None`: each is read when it is needed.
        logged: Number -> close, of all closes in the log; empty if no input is framed.
    """

    record: DataflowRecord
    log: IntentionLog
    origin: Position
    positions: Sequence[Position] | None
    number: int
    logged: Mapping[int, Punctuation]
    wiring: Mapping[str, Mapping[str, str]]
    framed: Set[tuple[str, str]]


@dataclass(kw_only=True, eq=False)
class Past(DataflowPart):
    """Reconstructs positions of the past; reads only."""

    increments: IncrementReader
    punctuations: Punctuations

    def position_at(
        self,
        record: DataflowRecord,
        log: IntentionLog,
        point: RollbackPoint,
        *,
        everything: bool,
        tell: Tell = untold,
    ) -> PastPosition:
        """Return the position of a dataflow at a point.

        Args:
            everything: Also queue later arrivals, and repeat later closes.

        Raises `RollbackImpossibleError` or `CbpError`.
        """
        units = self.catalog.units(record)
        kept = self._kept(record, log, units)
        wiring, framed = kept.wiring, kept.framed
        base, closes, later = self._start(kept, point, everything=everything)
        redo = [
            intention
            for stage, epoch in point.epochs.items()
            for intention in records_of(log, stage, base.stages[stage].epoch, epoch)
        ]
        redo.sort(key=lambda intention: intention.prepared_ms)
        until, last_read = None if everything else point, _last_read(redo, units)
        arrivals = self._arrivals(record, base, until, last_read)
        # Framed sources: all arrivals, since it is unknown how many the records' frames needed.
        in_turn = {wiring[stage][input_] for stage, input_ in framed}
        ends = {
            s: sum(s in in_turn or one.increment.index <= last_read.get(s, -1) for one in a)
            for s, a in arrivals.items()
        }
        with (
            scratch_folder("cbp-rollback-") as folder,
            closing(open_scratch(f"sqlite:///{folder}/scratch.db")) as scratch,
        ):
            generation = redo[0].generation if redo else 0
            scratch.register(replace(record, generation=generation), wiring, framed)
            scratch.change(record, wiring, framed, position=base, at=self.clock())
            for place, one in enumerate(closes):
                scratch.punctuate(record.name, replace(one, number=base.punctuations + place))
            for source, arrived in arrivals.items():
                if read := arrived[: ends[source]]:
                    claims = scratch.add_claims([_claim(record.name, one) for one in read])
                    scratch.accept_all(list(zip(claims, read, strict=True)))
            framer = self._framer(scratch)
            for redone, intention in enumerate(redo):
                tell("reads past epochs", redone, len(redo), "runs")
                self._frame(scratch, framer, record, units[intention.stage], intention)
                scratch.commit(intention, finished_at=self.clock())
            position = scratch.position(record.name)
        unread = {source: arrived[ends[source] :] for source, arrived in arrivals.items()}
        position = _with_arrivals(position, unread, wiring)
        # `kept.number`: closes made since `kept` was read come after this position.
        again, dropped = (later, ()) if everything else ((), later)
        return PastPosition(replace(position, punctuations=kept.number), again, dropped)

    def reachable(
        self, record: DataflowRecord, log: IntentionLog, *, everything: bool
    ) -> tuple[Callable[[RollbackPoint], bool], Callable[[RollbackPoint], bool]]:
        """Return two tests of a point.

        The first says whether a kept position is before it. If none is, none is before an earlier
        point. The second says whether `position_at` can begin for this point.
        """
        units = self.catalog.units(record)
        kept = self._kept(record, log, units, list(log.newest_positions()))

        def begins(point: RollbackPoint) -> bool:
            with suppress(RollbackImpossibleError):
                self._start(kept, point, everything=everything)
                return True
            return False

        return lambda point: _base(kept, point) is not None, begins

    def _kept(
        self,
        record: DataflowRecord,
        log: IntentionLog,
        units: Units,
        positions: Sequence[Position] | None = None,
    ) -> _Kept:
        wiring, framed = wiring_of(units)
        number = self.store.next_punctuation(record.name)
        closes = self.punctuations.log(record.folder).before(number) if framed else ()
        logged = {one.number: one for one in closes}
        origin = self._origin(record, wiring, framed)
        return _Kept(record, log, origin, positions, number, logged, wiring, framed)

    def _start(
        self, kept: _Kept, point: RollbackPoint, *, everything: bool
    ) -> tuple[Position, list[Punctuation], tuple[int, ...]]:
        """Return how to reach a point; raises like `position_at`.

        Returns:
            The position from which records are redone; the closes that are made again, oldest
            first; and the numbers of the closes that were made after the point.
        """
        made_later = {} if everything or not kept.framed else self._made_later(kept, point)
        nothing_later = self._holds_nothing_later(kept.record, point, made_later)
        base = None if everything else _base(kept, point, nothing_later)
        base = base or _base(kept, point)
        if base is None:
            why = "no position of its stages from before that point is kept"
            raise RollbackImpossibleError(kept.record.name, why)
        gone = closes_dropped(kept.log.generations)
        held = [one for n, one in made_later.items() if n < base.punctuations and n not in gone]
        base = _without_closes(base, held, kept.wiring)
        if not everything and not nothing_later(base):
            self._require_framed_before(kept, base, point)
        closes = _closes(kept, base) if kept.framed else []
        later = tuple(one.number for one in (*held, *closes) if one.closed_ms > point.at_ms)
        if not everything:
            closes = [one for one in closes if one.number not in later]
        return base, closes, later

    def _made_later(self, kept: _Kept, point: RollbackPoint) -> dict[int, Punctuation]:
        """Return number -> close, for all known closes that were made after a point.

        The log has them as far back as positions are kept. The store has earlier ones, unless it
        was lost since.
        """
        made = dict(kept.logged)
        since = datetime.fromtimestamp(point.at_ms / 1000, UTC)
        cursor, name = None, kept.record.name
        while True:
            page = self.store.punctuations(name, since=since, cursor=cursor)
            made |= {one.number: one for one in page.items}
            if (cursor := page.cursor) is None:
                break
        return {n: one for n, one in sorted(made.items()) if one.closed_ms > point.at_ms}

    def _holds_nothing_later(
        self, record: DataflowRecord, point: RollbackPoint, made_later: Mapping[int, Punctuation]
    ) -> Callable[[Position], bool]:
        """Return a test of whether a position has only arrivals and closes from before a point."""
        at = datetime.fromtimestamp(point.at_ms / 1000, UTC)

        def came_before(increment: Increment) -> bool:
            if "." in increment.flow:  # output of a stage, made of what came before it
                return True
            try:
                recorded = self.store.increment(record.name, increment.flow, increment.index)
            except NotFoundError:
                return True  # no longer in the store, so it is old
            return recorded.created_at <= at

        return lambda position: (
            all(map(came_before, position.newest))
            and all(position.punctuations <= later for later in made_later)
        )

    def _require_framed_before(self, kept: _Kept, base: Position, point: RollbackPoint) -> None:
        """Raise `RollbackImpossibleError` if frames of a position have later input than a point."""
        record = kept.record
        for name, stage in base.stages.items():
            for input_, connector in stage.connectors.items():
                flow, framing = kept.wiring[name][input_], connector.framing
                if framing is None or "." in flow:
                    continue
                try:
                    came = self.store.increment(record.name, flow, framing.last).created_at
                except NotFoundError:
                    continue  # nothing is framed, or it is no longer in the store, so it is old
                if came.timestamp() * 1000 > point.at_ms:
                    last, at = f"{flow}/{framing.last}", came.isoformat()
                    is_framed = f"is in a frame of {name}.{input_}"
                    why = _NOT_WITHOUT.format(f"increment {last}", is_framed, at)
                    raise RollbackImpossibleError(record.name, why, framed=last, at=at)

    def _frame(
        self,
        scratch: Store,
        framer: Framer,
        record: DataflowRecord,
        unit: PhysicalStage,
        intention: Intention,
    ) -> None:
        """Frame a stage's queue until the frames that a record reads exist."""
        if not unit.leader.translator.framed:
            return

        def lacking() -> bool:
            connectors = scratch.connectors(record.name)[intention.stage]
            return not intention.finds_what_it_read(connectors)

        framer.advance(record, unit.leader, wanted=lacking)
        if lacking():
            why = (
                f"the frames that epoch {intention.epoch} of stage {intention.stage!r} read "
                "cannot be formed again; the stage's FrameBy has probably changed"
            )
            raise RollbackImpossibleError(record.name, why, epoch=intention.epoch)

    def _framer(self, scratch: Store) -> Framer:
        return Framer(
            store=scratch,
            find_frames=self._frames_of_old,
            punctuations=_GivenPunctuations(
                store=scratch,
                files=self.files,
                terms=self.punctuations.terms,
                clock=self.clock,
                catalog=self.catalog,
            ),
            clock=self.clock,
            threads=Here(),
            wake=lambda: None,
            places=Places(1),
            isolation=Isolation(clock=self.clock, on_conflict=lambda reason: None),
        )

    def _frames_of_old(
        self,
        folder: str,
        stage: str,
        spec: InputSpec,
        increment: Increment,
        memo: Any,
        set_aside_max: int | None,
    ) -> tuple[list[Segment], Any]:
        """Frame an old increment, from the table of its stage if its own files are gone."""
        own = all(self.files.exists(f"{folder}/{file.path}") for file in increment.files)
        if not own and "." in increment.flow:  # `stage.output`; a source has a plain name
            (increment,) = self.increments.locate(folder, increment.flow, [increment])
        return self.increments.frame(folder, stage, spec, increment, memo, set_aside_max)

    def _arrivals(
        self,
        record: DataflowRecord,
        base: Position,
        point: RollbackPoint | None,
        read: Mapping[str, int],
    ) -> dict[str, list[IncrementRecord]]:
        """Return the arrivals at the sources since a position, by source, oldest first.

        If the clock was set back, an increment before an included one is included, too.

        Args:
            point: Leave out what arrived after it; `None` means to leave out nothing.
            read: Source -> the newest increment that records up to the point read.

        Raises `RollbackImpossibleError`.
        """
        arrivals: dict[str, list[IncrementRecord]] = {}
        first_indexes = {increment.flow: increment.index + 1 for increment in base.newest}
        for source in self.catalog.compiled(record).sources:
            first = first_indexes.get(source, 0)
            arrived = self.store.oldest_increments(record.name, source, first=first)
            end = max(first, self.store.next_index(record.name, source))
            known = {one.increment.index for one in arrived}
            for index in range(first, end):
                if index not in known:
                    why = f"increment {source}/{index} is needed, but no longer known"
                    raise RollbackImpossibleError(record.name, why)
            if point is not None:
                at, last = datetime.fromtimestamp(point.at_ms / 1000, UTC), read.get(source, -1)
                there = [one.created_at <= at or one.increment.index <= last for one in arrived]
                arrived = arrived[
                    : max((n for n, is_there in enumerate(there, 1) if is_there), default=0)
                ]
            arrivals[source] = arrived
        return arrivals

    def _origin(
        self,
        record: DataflowRecord,
        wiring: Mapping[str, Mapping[str, str]],
        framed: Set[tuple[str, str]],
    ) -> Position:
        begin = self.descriptions.of(record).begin
        if begin is not None:
            return begin.position
        stages = {
            name: StagePosition(
                0,
                None,
                {
                    i: Connector(i, framing=Framing() if (name, i) in framed else None)
                    for i in inputs
                },
            )
            for name, inputs in wiring.items()
        }
        return Position(record.name, stages, ())


class _GivenPunctuations(Punctuations):
    """Punctuations of a scratch store, to which the needed closes were added; reads no log."""

    def catch_up(self, record: DataflowRecord) -> None:
        """Do nothing."""


def records_of(log: IntentionLog, stage: str, start: int, stop: int) -> list[Intention]:
    """Return the records of these epochs; raises `RollbackImpossibleError`."""
    intentions = []
    for epoch in range(start, stop):
        intention = log.read(stage, epoch)
        if intention is None:
            why = f"the record of epoch {epoch} of stage {stage!r} no longer exists"
            raise RollbackImpossibleError(stage, why, epoch=epoch)
        intentions.append(intention)
    return intentions


def _closes(kept: _Kept, base: Position) -> list[Punctuation]:
    numbers = range(base.punctuations, kept.number)
    if any(number not in kept.logged for number in numbers):
        why = f"some closes of its flows, from close {base.punctuations} on, are no longer kept"
        raise RollbackImpossibleError(kept.record.name, why)
    return [kept.logged[number] for number in numbers]


def _base(
    kept: _Kept, point: RollbackPoint, fits: Callable[[Position], bool] = lambda position: True
) -> Position | None:
    """Return the newest position before a point from which on every record is kept."""
    log = kept.log
    newest = log.newest_positions() if kept.positions is None else kept.positions
    for position in chain(newest, [kept.origin]):
        if (
            position.version == kept.origin.version
            and position.stages.keys() <= point.epochs.keys()  # not while its folder is removed
            and all(
                stage.epoch <= point.epochs[name]
                and (stage.epoch == point.epochs[name] or (log.oldest(name) or 0) <= stage.epoch)
                for name, stage in position.stages.items()
            )
            and fits(position)
        ):
            return position
    return None


def _without_closes(
    position: Position, later: Sequence[Punctuation], wiring: Mapping[str, Mapping[str, str]]
) -> Position:
    """Return a position without the closes that were made after the roll-back point.

    A point may be reachable only from the beginning of a version, or from the oldest kept position,
    and closes may have been made between the point and that position. A close that still waits is
    removed. A close before the first frame has changed nothing. Any other close has ended a frame,
    which cannot be opened again: then `RollbackImpossibleError` is raised.
    """

    def without(close: Punctuation, name: str, connector: Connector) -> Connector:
        flow = wiring[name][connector.input]
        meant = connector.framing is not None and close.meant_for(name, connector.input, flow)
        return _without_close(position, connector, close) if meant else connector

    for close in reversed(later):
        position = with_connectors(position, partial(without, close))
    return position


def _without_close(position: Position, connector: Connector, close: Punctuation) -> Connector:
    """Return a framed input without a close; raises as `_without_closes`."""
    framing, closes = connector.framing, list(connector.closes)
    assert framing is not None, f"input {connector.input!r} is not framed"
    if close.at in closes:
        closes.remove(close.at)
        return replace(connector, closes=tuple(closes))
    if framing.next:
        at = datetime.fromtimestamp(close.closed_ms / 1000, UTC).isoformat()
        why = _NOT_WITHOUT.format(f"a close of {close.flow!r}", "has ended a frame", at)
        raise RollbackImpossibleError(position.dataflow, why, close=close.number, at=at)
    return replace(connector, framing=replace(framing, closed=False))


def _last_read(records: Sequence[Intention], units: Units) -> dict[str, int]:
    """Return flow -> its newest increment that records read, at inputs without frames."""
    last_read: dict[str, int] = {}
    for one in records:
        leader = units[one.stage].leader
        framed = {spec.name for spec in leader.translator.framed}
        for input_, indexes in (*one.read.items(), *one.remove.items()):
            if input_ not in framed and input_ in leader.wiring:
                flow = leader.wiring[input_]
                last_read[flow] = max(last_read.get(flow, -1), *indexes, -1)
    return last_read


def _with_arrivals(
    position: Position,
    arrivals: Mapping[str, Sequence[IncrementRecord]],
    wiring: Mapping[str, Mapping[str, str]],
) -> Position:
    """Return the position with further unread increments, which wait after all others."""
    came = {
        s: tuple(one.increment for one in arrived) for s, arrived in arrivals.items() if arrived
    }

    def waiting(name: str, connector: Connector) -> Connector:
        more = tuple(map(Queued, came.get(wiring[name][connector.input], ())))
        return replace(connector, queue=(*connector.queue, *more)) if more else connector

    newest = {one.flow: one for one in position.newest}
    newest |= {source: increments[-1] for source, increments in came.items()}
    ordered = tuple(newest[flow] for flow in sorted(newest))
    return replace(with_connectors(position, waiting), newest=ordered)


def _claim(dataflow: str, arrived: IncrementRecord) -> ClaimRecord:
    increment: Increment = arrived.increment
    return ClaimRecord(
        id=f"{increment.flow}{increment.index}",
        dataflow=dataflow,
        source=increment.flow,
        sequence=increment.index,
        path="",
        bytes=0,
        status="accepted",
        created_at=arrived.created_at,
        index=increment.index,
    )
