"""Where a dataflow stood at a cut of its past: queues, memos and frames, as one position.

    base      the newest position before the cut from which every record is kept
    closes    those made since, each between the same two increments of its flow
    arrivals  what came to the sources since
    redo      the records up to the cut, in their order, as recovery redoes them

It is done in a scratch store, so that there is one definition of what a record does to the
queues, and nobody sees it. Frames are a function of the flow and its closes: they come
again, as far as the records read them. What no record up to the cut read is left as it
arrived, and framed when the dataflow runs on.

Guaranteed (tests/controller/test_rollback.py, test_rollback_framed.py): the service's own
store and files are only read. Not guaranteed: that the past is there; `RollbackImpossibleError`
says what of it is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cbp.engine.base import Engine
from cbp.engine.files import Files
from cbp.engine.intentions import IntentionLog
from cbp.errors import NotFoundError, RollbackImpossibleError
from cbp.model.connector import Connector
from cbp.model.framing import Framing, Segment
from cbp.model.fusion import PhysicalStage
from cbp.model.increment import Increment
from cbp.model.intention import Intention
from cbp.model.places import Places
from cbp.model.position import Position, StagePosition
from cbp.model.punctuation import Punctuation
from cbp.model.rollback import Cut
from cbp.model.stage import InputSpec
from controller.loop.catalog import Catalog
from controller.loop.description import Descriptions
from controller.loop.frames import Framer
from controller.loop.punctuations import Punctuations
from controller.loop.threads import Here
from controller.store import open_store
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, Store

__all__ = ["Past", "Stood", "records_of"]


@dataclass(frozen=True, slots=True)
class Stood:
    """Where a dataflow stood, and what of its closes lies behind that.

    Attributes:
        again: Numbers of the closes behind the cut that stand in the position.
        dropped: Of those that do not.
    """

    position: Position
    again: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """Finds where dataflows stood; reads only."""

    store: Store
    engine: Engine
    files: Files
    catalog: Catalog
    punctuations: Punctuations
    descriptions: Descriptions
    clock: Callable[[], datetime]

    def stood(
        self, record: DataflowRecord, log: IntentionLog, cut: Cut, *, everything: bool
    ) -> Stood:
        """Return where a dataflow stood at a cut.

        Args:
            record: The dataflow.
            log: Of its records.
            cut: Of its newest version.
            everything: Let wait there what arrived, and was closed, behind the cut too.

        Raises:
            RollbackImpossibleError: If what it needs is no longer kept.
            CbpError: If an author's FrameBy fails.
        """
        units = self.catalog.units(record)
        wiring = {name: dict(unit.leader.wiring) for name, unit in units.items()}
        framed = _framed(units)
        origin = self._origin(record, wiring, framed)
        kept = [origin, *log.positions()]
        nothing_later = self._holds_nothing_later(record, cut)
        base = None if everything else _base(kept, log, cut, nothing_later)
        base = base or _base(kept, log, cut)
        if base is None:
            why = "no position before it is kept for its stages"
            raise RollbackImpossibleError(record.name, why)
        redo = [
            intention
            for stage, epoch in cut.epochs.items()
            for intention in records_of(log, stage, base.stages[stage].epoch, epoch)
        ]
        redo.sort(key=lambda intention: intention.prepared_ms)
        number = self.store.next_punctuation(record.name)
        closes = self._closes(record, base, number) if framed else []
        later = tuple(one.number for one in closes if one.closed_ms > cut.at_ms)
        if not everything:
            closes = [one for one in closes if one.number not in later]
        until = None if everything else cut
        arrivals = self._arrivals(record, base, until, _last_read(redo, units))
        with (
            tempfile.TemporaryDirectory(prefix="cbp-rollback-") as folder,
            closing(open_store(f"sqlite:///{folder}/scratch.db")) as scratch,
        ):
            generation = redo[0].generation if redo else 0
            scratch.register(replace(record, generation=generation), wiring, framed)
            scratch.change(record, wiring, framed, position=base, at=self.clock())
            for place, one in enumerate(closes):
                scratch.punctuate(record.name, replace(one, number=base.punctuations + place))
            for arrived in arrivals:
                claim = scratch.add_claim(_claim(record.name, arrived))
                scratch.accept(replace(claim, status="accepted"), arrived)
            framer = self._framer(scratch)
            for intention in redo:
                self._frame(scratch, framer, record, units[intention.stage], intention)
                scratch.commit(intention, finished_at=self.clock())
            position = scratch.position(record.name)
        # What was closed since then comes behind this position: `number` is not asked again.
        again, dropped = (later, ()) if everything else ((), later)
        return Stood(replace(position, punctuations=number), again, dropped)

    def _holds_nothing_later(self, record: DataflowRecord, cut: Cut) -> Callable[[Position], bool]:
        """Return what tells whether all came before a cut that a position holds."""
        at = datetime.fromtimestamp(cut.at_ms / 1000, UTC)

        def came_before(increment: Increment) -> bool:
            if "." in increment.flow:  # made of what came before it
                return True
            try:
                found = self.store.increment(record.name, increment.flow, increment.index)
            except NotFoundError:
                return True  # forgotten, so long ago
            return found.created_at <= at

        def closed_before(number: int) -> bool:
            if not number:
                return True
            newest = next(self.punctuations.log(record.folder).since(number - 1), None)
            return newest is None or newest.closed_ms <= cut.at_ms

        return lambda position: (
            all(map(came_before, position.newest)) and closed_before(position.punctuations)
        )

    def _frame(
        self,
        scratch: Store,
        framer: Framer,
        record: DataflowRecord,
        unit: PhysicalStage,
        intention: Intention,
    ) -> None:
        """Frame what waits at a stage, until a record's frames are there."""
        if not unit.leader.translator.framed:
            return

        def lacking() -> bool:
            connectors = scratch.connectors(record.name)[intention.stage]
            return not intention.finds_what_it_read(connectors)

        framer.advance(record, unit.leader, wanted=lacking)
        if lacking():
            why = (
                f"the frames that epoch {intention.epoch} of stage {intention.stage!r} read "
                "do not come again: has its FrameBy changed since?"
            )
            raise RollbackImpossibleError(record.name, why, epoch=intention.epoch)

    def _framer(self, scratch: Store) -> Framer:
        return Framer(
            store=scratch,
            engine=_Located(self.engine, self.files),
            punctuations=_Told(
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
        )

    def _closes(self, record: DataflowRecord, base: Position, end: int) -> list[Punctuation]:
        """Return the closes since a position and before a number, oldest first."""
        logged = self.punctuations.log(record.folder).since(base.punctuations)
        found = [one for one in logged if one.number < end]
        if base.punctuations + len(found) < end:
            why = f"the closes of its flows from number {base.punctuations} on are not all kept"
            raise RollbackImpossibleError(record.name, why)
        return found

    def _arrivals(
        self, record: DataflowRecord, base: Position, cut: Cut | None, read: Mapping[str, int]
    ) -> list[IncrementRecord]:
        """Return what arrived at the sources since a position, oldest first of each.

        A clock may have gone back: what came before something that is there is there, too.

        Args:
            record: The dataflow.
            base: The position.
            cut: What arrived behind it is left out; `None`: nothing is.
            read: Source to the newest increment that records up to the cut read.

        Raises:
            RollbackImpossibleError: If one is forgotten.
        """
        found: list[IncrementRecord] = []
        stood = {increment.flow: increment.index + 1 for increment in base.newest}
        for source in self.catalog.compiled(record).sources:
            arrived: list[IncrementRecord] = []
            for index in range(stood.get(source, 0), self.store.next_index(record.name, source)):
                try:
                    arrived.append(self.store.increment(record.name, source, index))
                except NotFoundError as error:
                    why = f"increment {source}/{index}, which came since, is no longer known"
                    raise RollbackImpossibleError(record.name, why) from error
            if cut is not None:
                at, last = datetime.fromtimestamp(cut.at_ms / 1000, UTC), read.get(source, -1)
                there = [one.created_at <= at or one.increment.index <= last for one in arrived]
                arrived = arrived[: max((n for n, kept in enumerate(there, 1) if kept), default=0)]
            found += arrived
        return found

    def _origin(
        self,
        record: DataflowRecord,
        wiring: Mapping[str, Mapping[str, str]],
        framed: set[tuple[str, str]],
    ) -> Position:
        """Return where the record's version began."""
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


@dataclass(frozen=True, slots=True)
class _Located:
    """Frames old increments, whose own files may be gone, by the files that took them up."""

    engine: Engine
    files: Files

    def frame(
        self, folder: str, stage: str, spec: InputSpec, increment: Increment, memo: Any
    ) -> tuple[list[Segment], Any]:
        """See `Engine.frame`."""
        own = all(self.files.exists(f"{folder}/{file.path}") for file in increment.files)
        if not own and "." in increment.flow:  # `stage.output`; a source has a plain name
            (increment,) = self.engine.locate(folder, increment.flow, [increment])
        return self.engine.frame(folder, stage, spec, increment, memo)


class _Told(Punctuations):
    """Of a scratch store: it was told the closes that it is to know, and learns no others."""

    def catch_up(self, record: DataflowRecord) -> None:
        """Do nothing."""


def records_of(log: IntentionLog, stage: str, start: int, stop: int) -> list[Intention]:
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


def _base(
    kept: Sequence[Position],
    log: IntentionLog,
    cut: Cut,
    fits: Callable[[Position], bool] = lambda position: True,
) -> Position | None:
    """Return the newest position before a cut from which every record is there.

    Args:
        kept: Ascending; the first is where the newest version began.
    """
    for position in reversed(kept):
        if (
            position.version == kept[0].version
            and all(
                stage.epoch <= cut.epochs[name]
                and (stage.epoch == cut.epochs[name] or (log.oldest(name) or 0) <= stage.epoch)
                for name, stage in position.stages.items()
            )
            and fits(position)
        ):
            return position
    return None


def _framed(units: Mapping[str, PhysicalStage]) -> set[tuple[str, str]]:
    return {
        (name, spec.name) for name, unit in units.items() for spec in unit.leader.translator.framed
    }


def _last_read(records: Sequence[Intention], units: Mapping[str, PhysicalStage]) -> dict[str, int]:
    """Return flow to the newest increment that records read of it, at inputs without frames."""
    found: dict[str, int] = {}
    for one in records:
        leader = units[one.stage].leader
        framed = {spec.name for spec in leader.translator.framed}
        for input_, indexes in (*one.read.items(), *one.remove.items()):
            if input_ not in framed and input_ in leader.wiring:
                flow = leader.wiring[input_]
                found[flow] = max(found.get(flow, -1), *indexes, -1)
    return found


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
