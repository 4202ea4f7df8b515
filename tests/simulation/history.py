"""What is recorded beside the tables, followed as it grows, and the model that follows it.

    era      epochs 0 1 2 3 4 5          version 1
                      '-- 2' 3'          rolled back: another era
                            '-- 4' 5'    version 2: another one

An *era* is the time between two amendments; each has its records and its `Replay`. Readers of
old tables see the era of their timestamp.

    P5  what is recorded stays recorded, unless a roll-back that was asked for has undone it
    P1  a roll-back leaves a consistent cut, and queues what it should
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.files import LocalFiles
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.generation import Generation, closes_dropped
from cbp.model.flow.position import Position
from cbp.model.flow.punctuation import Punctuation
from cbp.model.plan.fusion import PhysicalStage, choose_leaders, physical_stages
from cbp.model.run.intention import Intention
from cbp.model.version.version_change import Choice
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.loop.records.version_log import Description, Descriptions
from tests.simulation.model import Broken, Record
from tests.simulation.operations import framed_flows
from tests.simulation.operator import Back, Operator, milliseconds
from tests.simulation.replaced_files import difference
from tests.simulation.replay import Recorded, Replay
from tests.simulation.world import NAME, World

__all__ = ["Era", "History", "require"]

Look = Callable[[SourceEntry, list[Record], list[Record]], None]


def require(holds: Any, message: str) -> None:
    """Raise `Broken` unless something holds."""
    if not holds:
        raise Broken(message)


@dataclass
class Era:
    """See the header.

    Attributes:
        since_ms: Timestamp from which on its tables are seen.
        request: For the roll-back that began it.
        ends: Source to its increments, and the closes, before the next era's version; `None`:
            none has come.
        dropped: Source to the increments that its roll-back, or one before, took away.
        origin: The replay where the version began; `None`: with nothing.
        choice: What the author of the version said; of the first era of a version.
        begins: Leader to its first epoch under the version.
        followed: Whether its replay has come to its end.
    """

    since_ms: int
    request: str
    version: int
    generation: int
    dataflow: Dataflow
    units: dict[str, PhysicalStage]
    records: dict[str, Recorded]
    replay: Replay | None = None
    origin: Replay | None = None
    ends: tuple[Mapping[str, int], int] | None = None
    dropped: list[tuple[Generation, str, range]] = field(default_factory=list)
    choice: Choice | None = None
    begins: Mapping[str, int] = field(default_factory=dict)
    followed: bool = False


class History:
    """What happened in one world.

    Args:
        world: Whose folders are read.
        operator: Who knows what was asked for.
        look: Called with every entry, the records that it has to bring, and to take back.

    Attributes:
        eras: Oldest first.
        entries: Source to the entries of its log.
        closes: Punctuations, by their number.
        corrections: Requests whose corrections were recorded, whatever became of them since.
        undone: Those of them that a roll-back has undone.
    """

    def __init__(self, world: World, operator: Operator, look: Look) -> None:
        self.world, self._operator, self._look = world, operator, look
        self._files = LocalFiles()
        self._framed = bool(framed_flows(world.plan.document))
        amends = ("back", "change", "mend_code")
        self._amended = any(step[0] in amends for step in world.plan.steps)
        dataflow = world.controller.registry.compile(world.plan.document)
        units = physical_stages(dataflow, choose_leaders(dataflow))
        records = {leader: Recorded() for leader in units}
        self.eras = [Era(0, "", 1, 0, dataflow, units, records, Replay(dataflow, units))]
        self.entries: dict[str, list[SourceEntry]] = {name: [] for name in dataflow.sources}
        self.closes: list[Punctuation] = []
        self.corrections: list[str] = []
        self.undone: set[str] = set()
        self._keys: set[str] = set()
        self._stops: dict[str, int] = {}

    @property
    def now(self) -> Era:
        """The era that goes on."""
        return self.eras[-1]

    @property
    def retentions(self) -> int:
        """How often, by what is recorded, increments of an output went."""
        records = (one for recorded in self.now.records.values() for one in recorded.records)
        return sum(change.below > 0 for one in records for change in one.changes)

    @property
    def wakes(self) -> int:
        """How many recorded runs were started by a timer alone, and called a group."""
        records = (one for recorded in self.now.records.values() for one in recorded.records)
        woken = (r for r in records if r.correction is None and not any(r.read.values()))
        return sum(one.figures.get("groups", 0) > 0 for one in woken)

    @property
    def lookups(self) -> int:
        """How many recorded runs called a group that looked a table up."""
        records = (one for recorded in self.now.records.values() for one in recorded.records)
        return sum(bool(one.lookups) and one.figures.get("groups", 0) > 0 for one in records)

    @property
    def asides(self) -> int:
        """How many records were given back and applied."""
        records = (one for recorded in self.now.records.values() for one in recorded.records)
        return sum(int(one.figures.get("given_back", 0)) for one in records)

    @property
    def bags(self) -> int:
        """How many recorded runs called a group of a stage whose view has no key."""
        units = self.now.units
        with_bags = [
            self.now.records[leader].records
            for leader, unit in units.items()
            if any(view.bag for node in unit.members for view in node.translator.views)
        ]
        return sum(one.figures.get("groups", 0) > 0 for records in with_bags for one in records)

    @property
    def replacements(self) -> int:
        """How many increments take records back."""
        return sum(bool(one.increment.gone) for log in self.entries.values() for one in log)

    @property
    def replay(self) -> Replay:
        """What must be there now; see `follow`."""
        assert self.now.replay is not None, "asked for after `follow`"
        return self.now.replay

    # what is recorded

    def observe(self) -> None:
        """Read what was recorded since, and that what was recorded is still there; cheap."""
        self._observe_sources()
        self._observe_closes()
        log = self.world.log()
        if self._amended:
            self._observe_amendments(log)
        self._read(self.now, log)

    def _observe_amendments(self, log: IntentionLog) -> None:
        description = Descriptions(self._files).newest(self.world.folder)
        begun = log.generations[self.now.generation :]
        version = 0 if description is None else description.version
        require(len(begun) + version - self.now.version <= 1, "P5: amended, and nobody asked")
        if begun:
            self._rolled_back(begun[0], log)
        elif description is not None and version > self.now.version:
            self._changed(description, log)

    def _read(self, era: Era, log: IntentionLog) -> None:
        for leader, recorded in era.records.items():
            if recorded.records:
                last = recorded.records[-1]
                again = log.read(leader, last.epoch)
                require(again == last, f"P5: the record {last.id} changed or went")
            for intention in log.since(leader, recorded.stop):
                recorded.records.append(intention)
                self._note_correction(intention)

    def _note_correction(self, intention: Intention) -> None:
        if intention.correction is None:
            return
        request = intention.correction.request
        asked = request in self._operator.corrections or request in self._operator.gives
        require(asked, f"P5: nobody asked for {request!r}")
        require(request not in self.corrections, f"P1: {request!r} was made twice")
        self.corrections.append(request)

    def _observe_sources(self) -> None:
        for source, entries in self.entries.items():
            log = SourceLog(self.world.folder, source, self._files)
            if entries:
                again = next(log.since(len(entries) - 1), None)
                require(again == entries[-1], f"P5: the last entry of {source} changed")
            entries += log.since(len(entries))

    def _observe_closes(self) -> None:
        known = len(self.closes)
        if not self._framed or not self.world.registered:
            return
        log = self.world.parts.punctuations.log(self.world.folder)
        made = {one.number: one for one in log.since(known)}
        # One that a position replaces by now is in the store.
        page = self.world.store.punctuations(NAME, limit=1000)
        made |= {one.number: one for one in page.items if one.number >= known}
        for number in sorted(made):
            one = made[number]
            require(number == len(self.closes), f"P5: close {len(self.closes)} is lost")
            again = one.key in self._keys and not self.world.losses
            require(not again, f"P1: closed twice by {one.key!r}")
            asked = one.reason != "request" or one.key in self._operator.closes
            require(asked, f"P5: nobody asked for the close {one.key!r}")
            self._keys.add(one.key)
            self.closes.append(one)

    # amendments

    def _rolled_back(self, generation: Generation, log: IntentionLog) -> None:
        """Begin the era of a roll-back; what it has undone is read to its end before."""
        old = self.now
        before = self.world.log()
        before.__dict__["generations"] = log.generations[: generation.number - 1]
        self._read(old, before)
        asked = self._operator.backs.get(generation.request)
        require(asked is not None, f"P5: nobody asked for roll-back {generation}")
        assert asked is not None
        stops = {leader: recorded.stop for leader, recorded in old.records.items()}
        require(dict(generation.undone) == stops, f"P2: undone to {generation.undone}, not {stops}")
        require(asked.later or not generation.dropped, f"P1: dropped unasked: {generation}")
        kept = {
            leader: Recorded(r.start, r.records[: generation.start(leader) - r.start])
            for leader, r in old.records.items()
        }
        self._require_cut(asked.goal, kept, old.records)
        self._require_closes(asked, generation, kept)
        self.undone |= {
            one.correction.request
            for leader, r in old.records.items()
            for one in r.records[len(kept[leader].records) :]
            if one.correction is not None
        }
        dropped = [
            one
            for one in old.dropped
            if all(one[0].start(leader) <= generation.start(leader) for leader in stops)
        ]
        ends = _ends(generation.position)
        superseded = [one for one in generation.retracted() if one[0] in generation.superseded]
        dropped += [(generation, source, part) for source, part in superseded if len(part) == 1]
        for source, many in generation.dropped.items():
            gone = range(ends[source] - many, ends[source])
            dropped.append((generation, source, gone))
            if "-" in asked.goal:
                came = [self.entries[source][index].accepted_at for index in gone]
                late = all(one > datetime.fromisoformat(asked.goal) for one in came)
                require(late, f"P1: {gone} of {source} dropped for {asked.goal}, came {came}")
        require(generation.prepared_ms > old.since_ms, "P3: two amendments at one time")
        self.eras.append(
            Era(
                generation.prepared_ms,
                generation.request,
                old.version,
                generation.number,
                old.dataflow,
                old.units,
                kept,
                dropped=dropped,
            )
        )

    def _require_cut(
        self, goal: str, kept: Mapping[str, Recorded], old: Mapping[str, Recorded]
    ) -> None:
        """Check that a roll-back is where it was to go, and between two moments."""
        times = [one.prepared_ms for r in kept.values() for one in r.records]
        undone = [
            one.prepared_ms for n, r in old.items() for one in r.records[len(kept[n].records) :]
        ]
        consistent = max(times, default=0) < min(undone, default=2**62)
        require(consistent, f"P2: rolled back to {goal}, into the middle of something")
        if "-" in goal:
            at = milliseconds(goal)
            stands = max(times, default=0) <= at < min(undone, default=2**62)
            require(stands, f"P2: rolled back to {goal} ({at}), keeps {times}, undid {undone}")
            return
        stage, _, epoch = goal.partition(":")
        if epoch:
            stop = kept[stage].stop
            require(stop == int(epoch) + 1, f"P2: rolled back to {goal}, stands at {stop}")
            return
        number = sum(recorded.stop for recorded in kept.values())
        require(number == int(goal), f"P2: rolled back to {goal}, stands at {number}")

    def _require_closes(
        self,
        asked: Back,
        generation: Generation,
        kept: Mapping[str, Recorded],
    ) -> None:
        """Check that those closes are dropped that were made behind the cut, if that was asked."""
        stage, _, epoch = asked.goal.partition(":")
        times = {(n, one.epoch): one.prepared_ms for n, r in kept.items() for one in r.records}
        if "-" in asked.goal:
            at = milliseconds(asked.goal)
        elif epoch:
            at = times[stage, int(epoch)]
        else:
            at = max(times.values(), default=0)
        before = closes_dropped(self.world.log().generations[: generation.number - 1])
        due = {
            one.number
            for one in self.closes[: generation.position.punctuations]
            if asked.later and one.closed_ms > at and one.number not in before
        }
        actual = set(generation.closes_dropped) - before
        require(actual == due, f"P1: to {asked.goal}, closes {actual} are dropped, not {due}")

    def _changed(self, description: Description, log: IntentionLog) -> None:
        """Begin the era of a version."""
        old, begin = self.now, description.begin
        assert begin is not None, "only the first version has none"
        self._read(old, log)
        require(description.version == old.version + 1, f"P5: version {description.version} came")
        choice = self._operator.choice(description.version, description.document)
        require(choice is not None, f"P5: nobody asked for version {description.version}")
        dataflow = self.world.controller.registry.compile(description.document)
        leaders = description.leaders
        assert leaders is not None, "every description has them now"
        units = physical_stages(dataflow, leaders)
        old_leader = {name: leader for leader, unit in old.units.items() for name in unit.names}
        self._stops |= {name: old.records[leader].stop for name, leader in old_leader.items()}
        records = {}
        for leader in units:
            epoch = begin.position.stages[leader].epoch
            was = old.records.get(leader, Recorded(epoch))
            if leader in old_leader:
                stop = old.records[old_leader[leader]].stop
                require(epoch == stop, f"P2: {leader} goes on at epoch {epoch}, not {stop}")
            due = self._stops.get(leader, 0)
            require(epoch >= due, f"P2: {leader} comes back at epoch {epoch}, not {due}")
            same = was.stop == epoch
            records[leader] = Recorded(was.start, list(was.records)) if same else Recorded(epoch)
        require(begin.at_ms > old.since_ms, "P3: two amendments at one time")
        old.ends = _ends(begin.position), begin.position.punctuations
        self.eras.append(
            Era(
                begin.at_ms,
                "",
                description.version,
                old.generation,
                dataflow,
                units,
                records,
                dropped=list(old.dropped),
                choice=choice,
                begins={leader: begin.position.stages[leader].epoch for leader in units},
            )
        )

    # the model

    def follow(self) -> None:
        """Bring every era's replay to where the logs are."""
        for number, era in enumerate(self.eras):
            if era.replay is None:
                era.replay = self._begin(number)
            if not era.followed:
                self._bring(era, era.replay)
                era.followed = era is not self.now

    def _begin(self, number: int) -> Replay:
        era, before = self.eras[number], self.eras[number - 1]
        if era.version == before.version:
            era.origin, gone = before.origin, self._gone(era)
            if era.origin is not None and any(one.number in gone for one in era.origin.closes):
                era.origin = self._origin(number, gone)
            return Replay(era.dataflow, era.units) if era.origin is None else era.origin.copy()
        assert before.replay is not None, "eras are followed in their order"
        self._bring(before, before.replay)
        actual = before.replay.succeed(
            era.dataflow,
            era.units,
            choice=era.choice or Choice(),
            epochs=era.begins,
        )
        era.origin = actual.copy()
        return actual

    def _origin(self, number: int, gone: frozenset[int]) -> Replay | None:
        """Return what held where the version of an era began, had some closes not been made."""
        version = self.eras[number].version
        first = next(n for n, era in enumerate(self.eras) if era.version == version)
        if not first:
            return None
        begun, before = self.eras[first], self.eras[first - 1]
        origin = self._origin(first - 1, gone)
        replay = Replay(before.dataflow, before.units) if origin is None else origin
        self._bring(before, replay, gone)
        return replay.succeed(
            begun.dataflow, begun.units, choice=begun.choice or Choice(), epochs=begun.begins
        )

    def _gone(self, era: Era) -> frozenset[int]:
        """Return the numbers of the closes that close nothing in an era."""
        return closes_dropped(self.world.log().generations[: era.generation])

    def _bring(self, era: Era, replay: Replay, more_gone: frozenset[int] = frozenset()) -> None:
        ends, closes = era.ends or ({s: len(e) for s, e in self.entries.items()}, len(self.closes))
        # A close knows its place; what comes before it may be fed after it.
        framed = {
            node.wiring[spec.name]
            for node in era.dataflow.stages.values()
            for spec in node.translator.framed
        }
        gone = self._gone(era) | more_gone
        replay.close_at([one for one in self.closes[:closes] if one.number not in gone])
        for source, entries in self.entries.items():
            for entry in entries[replay.fed[source] : ends.get(source, 0)]:
                rows = [row for file in entry.files for row in self.world.rows(source, file)]
                rows, taken_back = difference(entry, rows, partial(self._rows_of, source))
                self._look(entry, rows, taken_back)
                # What a roll-back took away is in no frame.
                index = replay.fed[source]
                taken = any(name == source and index in part for _, name, part in era.dropped)
                replay.feed(source, [] if taken and source in framed else rows, taken_back)
        for _, source, indexes in era.dropped:
            replay.drop(source, indexes)
        replay.apply(era.records, self._operator.corrections)

    def _rows_of(self, source: str, claim: str) -> list[Record]:
        """Return the records that the file of a claim must have."""
        files = (file for entry in self.entries[source] for file in entry.files)
        return self.world.rows(source, next(one for one in files if one.claim == claim))


def _ends(position: Position) -> dict[str, int]:
    """Return flow to the number of its increments at a position."""
    return {increment.flow: increment.index + 1 for increment in position.newest}
