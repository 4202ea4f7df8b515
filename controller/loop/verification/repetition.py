"""Repetition: verifies stages that cannot be recomputed from scratch, from an earlier state.

Some stages have no counterpart in a recomputation from scratch: a stage that took over the state of
an earlier version, a stage with a corrected state, and all readers of their outputs. But each of
their epochs follows from the state before it and the increments that its record names:

    what happened to the stage   begins with       -> repeats, to compare
    version 2 took over          the state then    -> epochs 7, 8, 9 again
    a correction at epoch 4      the state after   -> epochs 5, 6 ... again
    records were given back      as without that   -> that epoch, too, with the records set aside
    made anew (rebuild)          nothing           -> all epochs of the new version again
    reads such a stage           nothing           -> all epochs, with the input that it did read

So every stage is compared for its own input, and a wrong stage is found even if stages before it
are wrong. The repetition begins at the earliest epoch since which one code made all records,
and for which these records, their increments and the state before them are kept.

Guaranteed: for stages that are not repeated the reason is shown, and older records of a table are
undecided. Not guaranteed: that the Runnable would decide the same again.

Invariants: tests/controller/loop/verification/test_repetition.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cbp.engine.interface.readers import Contents
from cbp.engine.interface.runs import LookedUp, looked_up_tables
from cbp.engine.read.contents import contents_since
from cbp.engine.read.recomputed_epochs import RecomputedEpochs, Repeat
from cbp.engine.storage.table_names import carried_tables
from cbp.errors import NotFoundError
from cbp.model.author.code_fingerprint import Code
from cbp.model.flow.generation import home_of
from cbp.model.flow.increment import Increment
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import Intention
from cbp.model.verification import Comparison
from controller.loop.verification.recomputation import (
    Cut,
    Side,
    Subject,
    VerificationParts,
    Watched,
    below,
)


class _NotRepeatedError(Exception):
    """Why a stage cannot be repeated, in words."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where the repetition of a stage begins.

    Attributes:
        tables: State table -> its version before that epoch; empty if there is none.
        from_nothing: Whether the stage had nothing before that epoch.
    """

    first: int
    tables: Mapping[str, int]
    between: tuple[Intention, ...]
    records: tuple[Intention, ...]
    from_nothing: bool = False


@dataclass
class Repetition:
    """Repeats the changed stages of one cut."""

    subject: Subject
    parts: VerificationParts
    _origins: dict[str, _Origin] = field(init=False, default_factory=dict)
    _retained: dict[str, dict[int, Increment]] = field(init=False, default_factory=dict)

    def chosen(
        self, every: Iterable[Comparison], cut: Cut, collected: Mapping[str, int]
    ) -> Iterator[Comparison]:
        """Yield the comparisons; for changed stages they begin at the first repeated epoch.

        Args:
            collected: Output flow -> its first increment that still exists in the cut.
        """
        origins: dict[str, _Origin | str] = {}
        for one in every:
            if one.stage not in self.subject.changed:
                yield one
                continue
            leader = next(n for n, unit in self.subject.units.items() if one.stage in unit.names)
            if leader not in origins:
                try:
                    unit = self.subject.units[leader]
                    origins[leader] = self._origin(unit, cut.snapshot.epochs[leader])
                except _NotRepeatedError as why:
                    origins[leader] = str(why)
            origin = origins[leader]
            if isinstance(origin, str):
                yield replace(one, left_out=f"{one.left_out}; {origin}")
            elif one.messages:
                yield replace(one, left_out="messages depend on how runs split the input")
            else:
                self._origins[leader] = origin
                since, begins = origin.first, origin.first
                if not one.carried:
                    # Readers see records of an earlier life of the stage until these are removed.
                    begins = collected.get(f"{one.stage}.{one.name}", 0)
                    since = max(since, begins)
                whole = origin.from_nothing and begins >= since
                yield replace(one, left_out="", since=since, whole=whole, first=0)

    def repeat(self, folder: str, watched: Watched) -> Side:
        """Run the chosen epochs again, in a scratch folder, and return the tables."""
        engine = self.parts.engine.beside()
        depth = f"../../{self.subject.record.folder.rpartition('/')[2]}"
        total = sum(len(origin.records) for origin in self._origins.values())
        done = 0
        for number, (leader, origin) in enumerate(self._origins.items()):
            id_ = f"{self.subject.id}{folder[-1]}{number:02x}"
            unit = self.subject.units[leader]
            recomputed = RecomputedEpochs(engine, self.subject.dataflow, folder, id_, watched.began)
            again = Repeat(recomputed, unit)
            if origin.tables:
                state = self.parts.engine.verification.take_over(
                    self.subject.record.folder, origin.tables, origin.between, folder
                )
                again.begin(origin.first - 1, state)
            for record in origin.records:
                watched.tell("repeats", done, total, "epochs")
                again.run(record, self._inputs(unit, record, depth), self._looked_up(unit, record))
                done += 1
            again.publish()
        watched.began("")

        def side(one: Comparison) -> Contents:
            return contents_since(
                engine.verification.contents(folder, self.subject.dataflow.stages[one.stage], one),
                one,
            )

        return side

    # where it begins

    def _origin(self, unit: PhysicalStage, last: int) -> _Origin:
        if self.subject.request.engine != "direct":
            why = "use the direct engine (--engine direct), which can repeat the later epochs"
            raise _NotRepeatedError(why)
        if unit.leader.translator.framed:
            why = f"`{unit.leader.name}` reads frames, which cannot be formed again"
            raise _NotRepeatedError(why)
        begun, begun_ms, emptied = self._begun(unit)
        records, why = self._records(unit, begun, last)
        first = last + 1 - len(records)
        if not records:
            raise _NotRepeatedError(why or "the stage has not run since it was last changed")
        if first == begun:
            if begun_ms is None:
                return _Origin(first, {}, (), tuple(records), from_nothing=True)
            try:
                tables, _ = self._tables(unit, begun_ms)
                nothing = emptied or first == 0
                return _Origin(first, tables, (), tuple(records), from_nothing=nothing)
            except NotFoundError:
                why = "the stage's state at its last change is no longer kept"
        return self._behind(unit, records, why)

    def _begun(self, unit: PhysicalStage) -> tuple[int, int | None, bool]:
        """Return the epoch and the time at which a version last changed a stage, or epoch 0.

        The last value says whether the stage had no tables then.
        """
        leader = unit.leader.name
        before = self.parts.descriptions.before(self.subject.record)
        for description in reversed([*before, self.parts.descriptions.of(self.subject.record)]):
            begin = description.begin
            if begin is None or set(begin.anew).isdisjoint(unit.names):
                continue
            if leader not in begin.position.stages:
                why = (
                    f"not recomputed: when `{leader}` was last changed, it ran within the runs of "
                    "another stage"
                )
                raise _NotRepeatedError(why)
            # Not after a swap: it shows other tables in place of those that it empties.
            emptied = begin.swapped is None and set(unit.names) <= set(begin.emptied)
            return begin.position.stages[leader].epoch, begin.at_ms, emptied
        return 0, None, True

    def _records(self, unit: PhysicalStage, begun: int, last: int) -> tuple[list[Intention], str]:
        """Return the newest repeatable records, oldest first, and why there are no more."""
        log, intentions, why = self.parts.open_log(self.subject.record.folder), [], ""
        for epoch in range(last, begun - 1, -1):
            record = log.read(unit.leader.name, epoch)
            if record is None:
                why = f"the record of epoch {epoch} is no longer kept"
            elif record.correction is not None and not record.correction.gives_back:
                why = f"epoch {epoch} is a correction, which cannot be repeated"
            elif not self._same_code(unit, record):
                why = f"epoch {epoch} ran with different code"
            elif (gone := self._gone(unit, record)) is not None:
                why = f"increment {gone}, which epoch {epoch} read, is no longer kept"
            elif self._replaces(unit, record):
                why = f"epoch {epoch} applied a replacement, for which all earlier input is needed"
            elif (gone := self._table_gone(unit, record)) is not None:
                why = f"epoch {epoch} cannot be repeated: {gone}"
            else:
                intentions.append(record)
                continue
            break
        return intentions[::-1], why

    def _behind(self, unit: PhysicalStage, records: Sequence[Intention], why: str) -> _Origin:
        """Begin with the state before the oldest of these records, or the oldest kept state."""
        leader, log = unit.leader.name, self.parts.open_log(self.subject.record.folder)
        name, folder, least = self.subject.record.name, self.subject.record.folder, records[0].epoch
        home = home_of(log.generations, leader, least)
        stamps = [
            version.stamp_ms
            for node in unit.members
            for version in self.parts.engine.history.first_shown(
                folder, name, node, least, home
            ).values()
        ]
        # A publication covers many epochs: the epochs before the first one are in the records.
        for at_ms in (min(stamps) - 1, max(stamps)) if stamps else ():
            try:
                tables, shown = self._tables(unit, at_ms)
            except NotFoundError:
                continue
            first = max(least, shown + 1)
            between = [log.read(leader, epoch) for epoch in range(shown + 1, first)]
            left = tuple(record for record in records if record.epoch >= first)
            undone = shown >= least and home_of(log.generations, leader, shown) != home
            if left and not undone and None not in between:
                return _Origin(first, tables, tuple(filter(None, between)), left)
        raise _NotRepeatedError(why or "no state from before these epochs is kept")

    def _tables(self, unit: PhysicalStage, at_ms: int) -> tuple[dict[str, int], int]:
        """Return the versions of the state tables as of a time, and the epoch that all show."""
        shown = {
            table: version
            for node in unit.members
            for table, version in self.parts.engine.history.shown(
                self.subject.record.folder, self.subject.record.name, node, at_ms=at_ms
            ).items()
        }
        carried = {table for node in unit.members for table in carried_tables(node)}
        versions = {table: one.version for table, one in shown.items() if table in carried}
        return versions, max(one.epoch for one in shown.values())

    def _same_code(self, unit: PhysicalStage, record: Intention) -> bool:
        for node in unit.members:
            was, now = Code(record.codes.get(node.name, "")), node.translator.code
            if was and now and was.interpreter == now.interpreter and was != now:
                return False
        return True

    # what is read

    def _inputs(
        self, unit: PhysicalStage, record: Intention, depth: str
    ) -> dict[str, tuple[Increment, ...]]:
        return {
            name: tuple(
                below(depth, self._flow(flow)[index]) for index in record.read.get(name, ())
            )
            for name, flow in unit.leader.wiring.items()
        }

    def _looked_up(self, unit: PhysicalStage, record: Intention) -> dict[str, LookedUp]:
        tables = looked_up_tables(
            self.subject.dataflow, self.subject.record.folder, unit.members, moments=record.lookups
        )
        return {name: self._as_of(name, one) for name, one in tables.items()}

    def _as_of(self, name: str, one: LookedUp) -> LookedUp:
        """Add the records of the epochs that the table did not show when it was looked up."""
        moment, table = one.moment, f"{one.node.name}.{one.state}"
        if moment is None:
            why = f"the record of the epoch does not say when {name!r} was looked up"
            raise _NotRepeatedError(why)
        shown = self.parts.engine.history.shown_by(one.folder, one.node, one.state, moment.version)
        if shown is None:
            why = (
                f"version {moment.version} of {table!r}, which the epoch looked up, is no longer "
                "kept"
            )
            raise _NotRepeatedError(why)
        leader = next(n for n, unit in self.subject.units.items() if one.node.name in unit.names)
        log, records = self.parts.open_log(self.subject.record.folder), []
        for epoch in range(shown + 1, moment.epoch + 1):
            if (record := log.read(leader, epoch)) is None:
                why = f"the record of epoch {epoch} of {leader!r} is no longer kept"
                raise _NotRepeatedError(why)
            records.append(record)
        return replace(one, unpublished=tuple(records))

    def _table_gone(self, unit: PhysicalStage, record: Intention) -> str | None:
        """Return why the tables that a record looked up cannot be read; `None` if they can."""
        try:
            self._looked_up(unit, record)
        except _NotRepeatedError as why:
            return str(why)
        return None

    def _gone(self, unit: PhysicalStage, record: Intention) -> str | None:
        return next(
            (
                f"{unit.leader.wiring[name]}/{index}"
                for name, indexes in record.read.items()
                for index in indexes
                if index not in self._flow(unit.leader.wiring[name])
            ),
            None,
        )

    def _replaces(self, unit: PhysicalStage, record: Intention) -> bool:
        return any(
            self._flow(unit.leader.wiring[name])[index].gone
            for name, indexes in record.read.items()
            for index in indexes
        )

    def _flow(self, flow: str) -> Mapping[int, Increment]:
        if flow not in self._retained:
            self._retained[flow] = {
                one.index: one for one in self.parts.retained(self.subject.record, flow)
            }
        return self._retained[flow]
