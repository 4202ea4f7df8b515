"""Recomputation: chooses the cut of a verification, and computes its tables again from the input.

The cut is a snapshot of the tables, and the input that they show. Input is read in place,
through paths that lead out of the scratch folder, so nothing is copied. The engine is the
service's own, on the same executor, with separate tables and index copies; or, for small inputs,
the reference engine in memory.

Guaranteed: every output in the cut comes from input in the cut; missing input is an error, never a
comparison with less. Not guaranteed: that a dataflow whose epochs depend on time becomes idle.

Invariants: tests/controller/loop/verification/test_verification.py.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from cbp.engine.columnar.json_records import record_text
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.readers import Contents
from cbp.engine.read.contents import contents_since, contents_with_gaps, listed_contents
from cbp.engine.read.recomputed_epochs import RecomputedEpochs
from cbp.engine.read.replay import Replay
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.table_names import flow_table
from cbp.errors import NotFoundError
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.generation import closes_dropped
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from cbp.model.flow.punctuation import Punctuation
from cbp.model.flow.schema import Schema
from cbp.model.flow.snapshot import Snapshot
from cbp.model.schedule.left_to_do import left_to_do
from cbp.model.verification import Comparison, Request, merged, timeless
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.compiled_dataflows import Units
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import TakenBack
from controller.loop.runs.in_flight import InFlight
from controller.loop.verification.errors import PunctuationUnplacedError, VerificationTooLargeError
from controller.loop.verification.valid_inputs import (
    Read,
    ValidInputs,
    find_increment,
    require_files,
)
from controller.store.base import DataflowRecord, IncrementRecord, Store

AT_ONCE_MAX = 500
"""Maximum number of increments of a source that become one, with `--split at-once`."""

Side = Callable[[Comparison], Contents]
"""The tables of one side of a comparison."""

_Parts = Mapping[str, Sequence[range]]


class JobEndedError(Exception):
    """The job was cancelled, or its time is up."""


@dataclass(kw_only=True, eq=False)
class Watched:
    """A job that shows its progress, and ends between two steps once `stop` is set.

    Attributes:
        settle_seconds: How long it waits before it checks again whether the dataflow is idle.
        run: Id of the run under way, so that it can be cancelled; `""` if there is none.
    """

    waits = "waits until the dataflow has no work left"
    settle_seconds: float
    stop: threading.Event = field(default_factory=threading.Event)
    run: str = ""

    def show(self, **changed: Any) -> None:
        """Change what is shown of it, unless it has ended."""
        raise NotImplementedError

    def tell(self, step: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        """Show the progress; `unit` names the counted things, in the plural."""
        self.show(step=step, done=done, total=total, unit=unit)
        self.check()

    def began(self, run: str) -> None:
        """Note the run that starts next; `""` if there is none."""
        self.run = run  # first: code that ends the job then sees the run, or `check` sees the end
        self.check()

    def check(self) -> None:
        """Raise `JobEndedError` if the job was asked to end."""
        if self.stop.is_set():
            raise JobEndedError

    def wait(self, busy: Mapping[str, str]) -> None:
        """Wait a moment for these stages to become idle."""
        self.show(step=self.waits, done=0, total=0, unit="")
        if self.stop.wait(self.settle_seconds):
            raise JobEndedError


@dataclass(frozen=True, slots=True)
class Cut:
    """The tables to compare.

    Attributes:
        limits: Leading stage -> the number of its epochs in the snapshot; a stage without an
            entry has no limit.
        ends: Source -> the number of its increments that the recomputation reads.
        not_run: Stage -> why its tables are undecided: it has not run, and input waits for it.
    """

    snapshot: Snapshot
    limits: Mapping[str, int]
    ends: Mapping[str, int]
    punctuations: tuple[Punctuation, ...]
    not_run: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Subject:
    """The dataflow that is verified, and what is known about its tables.

    Attributes:
        id: Id of the verification; prefix of the ids of its runs.
        changed: Stages that a version or a correction changed, and all their readers.
        built: If the tables were swapped in, and are nevertheless recomputed from scratch:
            stage -> its first epoch since the swap. Epoch numbers continue from before, so only
            idle tables can be compared.
        valid_to: For the same tables: source -> the first increment that had not arrived when
            they were built. Of earlier files, only the records that still counted were read.
        taken_back: Leading stage -> undone swaps, oldest first. The tables lack their epochs; a
            recomputation continues the numbers without a gap.
    """

    id: str
    record: DataflowRecord
    dataflow: Dataflow
    units: Units
    changed: frozenset[str]
    request: Request
    built: Mapping[str, int] | None = None
    valid_to: Mapping[str, int] = field(default_factory=dict)
    taken_back: Mapping[str, Sequence[TakenBack]] = field(default_factory=dict)

    def swaps_of(self, stage: str) -> Sequence[TakenBack]:
        """Return the undone swaps of a stage, oldest first."""
        leader = next(name for name, unit in self.units.items() if stage in unit.names)
        return self.taken_back.get(leader, ())

    def gaps(self, stage: str) -> list[range]:
        """Return the epochs that the tables of a stage lack, ascending."""
        return [one.epochs for one in self.swaps_of(stage)]

    def is_return(self, stage: str, epoch: int) -> bool:
        """Return whether this is a stage's first epoch after an undone swap."""
        return any(epoch == gap.stop for gap in self.gaps(stage))


@dataclass(kw_only=True, eq=False)
class VerificationParts(DataflowPart):
    """What all verifications share."""

    engine: Engine
    in_flight: InFlight
    snapshots: Snapshots
    retained: Callable[[DataflowRecord, str], Sequence[Increment]]
    reference_records_max: int


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Recomputes a dataflow, without its changed stages; safe to use from several threads."""

    subject: Subject
    parts: VerificationParts

    def cut(self, watched: Watched) -> Cut:
        """Return the snapshot to compare; if results depend on time, one of an idle dataflow."""
        subject, name = self.subject, self.subject.record.name
        waits = timeless(subject.dataflow) >= subject.dataflow.stages.keys() - subject.changed
        never = {leader: 0 for leader in subject.units if leader in subject.changed}
        anywhere = waits and subject.request.split == "increments" and subject.built is None
        while True:
            position = self.parts.store.position(name)
            snapshot = self.parts.snapshots.take(name)
            ends = {s: self.parts.store.next_index(name, s) for s in subject.dataflow.sources}
            punctuations = tuple(self._punctuations())
            if anywhere:
                limits = {
                    leader: epoch + 1 - sum(map(len, subject.gaps(leader)))
                    for leader, epoch in snapshot.epochs.items()
                }
                not_run = self._not_run(position, snapshot)
                return Cut(snapshot, {**limits, **never}, ends, punctuations, not_run)
            running = {
                stage for flow, stage in self.parts.in_flight.busy() if flow == name and stage
            }
            rules = {leader: unit.leader.runnable for leader, unit in subject.units.items()}
            busy = left_to_do(rules, position, running)
            for leader, stage in position.stages.items():
                if snapshot.epochs[leader] + 1 != stage.epoch:
                    busy.setdefault(leader, "has unpublished results")
            # Compare again: input that came in between is in only one of position and snapshot.
            if not busy and self.parts.store.position(name) == position:
                not_run = self._not_run(position, snapshot)
                return Cut(snapshot, never, ends, punctuations, not_run)
            watched.wait(busy)

    def _not_run(self, position: Position, snapshot: Snapshot) -> dict[str, str]:
        """Return stage -> why its tables are undecided, for stages with input that have not run."""
        reasons: dict[str, str] = {}
        for leader, unit in self.subject.units.items():
            waiting = sum(len(c.held) for c in position.stages[leader].connectors.values())
            if snapshot.epochs[leader] < 0 and waiting:
                wait = format_count(waiting, "increment waits", "increments wait")
                why = (
                    f"`{leader}` has not run yet, but {wait} for it, so there is nothing to compare"
                )
                reasons |= dict.fromkeys(unit.names, why)
        return reasons

    def tables(self, cut: Cut) -> Side:
        """Return the tables that the service keeps, as of a cut."""

        def side(one: Comparison) -> Contents:
            version = cut.snapshot.tables[one.table].version
            node = self.subject.dataflow.stages[one.stage]
            contents = self.parts.engine.verification.contents(
                self.subject.record.folder, node, one, version=version
            )
            return contents_since(contents, one)

        return side

    def recompute(self, cut: Cut, folder: str, watched: Watched) -> Side:
        """Recompute all tables, in a scratch folder, and return them.

        Args:
            folder: Two levels below the folder of all dataflows; `[a-z0-9]` at its end.

        Raises `CbpError`: one of `errors`, or as in `RunPreparer.prepare`.
        """
        self._require_places(cut.punctuations)
        parts, punctuations = self._parts(cut)
        total = sum(len(part) for of_source in parts.values() for part in of_source)
        watched.tell("recomputes", 0, total, "increments")
        valid = self._valid(folder)
        if self.subject.request.engine == "reference":
            return self._by_reference(cut, (parts, valid), punctuations, total, watched)
        engine = self.parts.engine.beside()
        recomputed = RecomputedEpochs(
            engine,
            self.subject.dataflow,
            folder,
            f"{self.subject.id}{folder[-1]}",
            watched.began,
            units=self.subject.units,
        )
        replay = Replay(recomputed, cut.limits, punctuations)
        depth = f"../../{self.subject.record.folder.rpartition('/')[2]}"
        for done, increment in self._arrivals(parts, valid):
            replay.offer(below(depth, increment))
            if self.subject.request.split == "increments":
                replay.run_until_idle()
            watched.tell("recomputes", done, total, "increments")
            if replay.reached:
                break
        replay.finish()
        watched.began("")

        def side(one: Comparison) -> Contents:
            node = self.subject.dataflow.stages[one.stage]
            return self._numbered(engine.verification.contents(folder, node, one), one)

        return side

    def _numbered(self, contents: Contents, one: Comparison) -> Contents:
        """Return recomputed tables, with the numbers that epochs have in the original ones."""
        return contents_since(contents_with_gaps(contents, self.subject.gaps(one.stage)), one)

    def _by_reference(
        self,
        cut: Cut,
        input_: tuple[_Parts, Mapping[str, Read]],
        punctuations: Sequence[Punctuation],
        total: int,
        watched: Watched,
    ) -> Side:
        reference = ReferenceEngine(self.subject.dataflow, punctuations)
        limits = {
            name: cut.limits[leader]
            for leader, unit in self.subject.units.items()
            for name in unit.names
            if leader in cut.limits
        }
        records = 0
        for done, increment in self._arrivals(*input_):
            records += increment.records
            if records > (most := self.parts.reference_records_max):
                raise VerificationTooLargeError(self.subject.record.name, records, most)
            rows = self.parts.engine.increments.read(
                self.subject.record.folder, [increment], offset=0, limit=increment.records
            )
            taken = replace(increment, files=increment.gone, gone=())
            gone = self.parts.engine.increments.read(
                self.subject.record.folder, [taken], offset=0, limit=taken.records
            )
            reference.feed(increment.flow, rows, gone)
            if self.subject.request.split == "increments":
                reference.run_until_idle(limits)
            watched.tell("recomputes", done, total, "increments")
        reference.run_until_idle(limits)

        def side(one: Comparison) -> Contents:
            if one.kind == "set_aside":
                return listed_contents([self._set_aside(reference, one.stage)])
            if one.kind == "state":
                epochs = [reference.state(one.stage, one.name)]
            else:
                epochs = reference.outputs(f"{one.stage}.{one.name}")
            listed = [[tuple(row.values()) for row in rows] for rows in epochs]
            return self._numbered(listed_contents(listed), one)

        return side

    def _set_aside(self, reference: ReferenceEngine, stage: str) -> list[tuple[Any, ...]]:
        """Return what the reference set aside; the table to compare is empty, or not recomputed."""
        spec = self.subject.dataflow.stages[stage].translator

        def text(values: Mapping[str, Any] | None, schema: Schema | None) -> str | None:
            if values is None or schema is None:
                return None
            return record_text(tuple(values.values()), schema)

        return [
            (
                0,
                number,
                one["input"],
                text(one["key"], spec.key),
                text(one["record"], one["input"] and spec.input(one["input"]).schema),
                one["code"],
            )
            for number, one in enumerate(reference.set_aside(stage))
        ]

    # the input

    def _punctuations(self) -> Iterator[Punctuation]:
        log = self.parts.open_log(self.subject.record.folder)
        dropped = closes_dropped(log.generations)
        made = punctuations_since(self.parts.store, self.subject.record.name, 0)
        return (one for one in made if one.number not in dropped)

    def _require_places(self, punctuations: Sequence[Punctuation]) -> None:
        """Raise an error for a punctuation whose flow is split differently in a recomputation."""
        dataflow, split = self.subject.dataflow, self.subject.request.split
        settled = timeless(dataflow) if split == "increments" else frozenset()
        for one in punctuations:
            if one.flow not in dataflow.sources and one.flow.partition(".")[0] not in settled:
                name = self.subject.record.name
                raise PunctuationUnplacedError(name, one.flow, one.at, split=split)

    def _parts(self, cut: Cut) -> tuple[_Parts, list[Punctuation]]:
        """Return which parts of each source become one increment, and the moved punctuations."""
        parts, moved = {}, []
        most = AT_ONCE_MAX if self.subject.request.split == "at_once" else 1
        dropped = self.parts.dropped(self.subject.record)
        for source, end in cut.ends.items():
            gone = dropped.get(source, ())
            breaks = {p.at for p in cut.punctuations if p.flow == source}
            breaks |= {at for part in gone for at in (part.start, part.stop)}
            parts[source] = [
                one
                for one in merged(end, breaks, most=most)
                if not any(one.start in part for part in gone)
            ]
        for one in cut.punctuations:
            before = parts.get(one.flow)
            at = one.at if before is None else sum(part.stop <= one.at for part in before)
            moved.append(replace(one, at=at))
        return parts, moved

    def _valid(self, folder: str) -> dict[str, Read]:
        """Return the increments that were replaced before the tables were built; see `Subject`."""
        record = self.subject.record
        dropped = self.parts.dropped(record)
        way = f"../{'/'.join(folder.split('/')[-2:])}/"
        valid = ValidInputs(self.parts.store, self.parts.files, folder, way, NO_FAULTS)
        return {
            source: valid.of(record, node, end, dropped.get(source, ()))
            for source, node in self.subject.dataflow.sources.items()
            if (end := self.subject.valid_to.get(source, 0))
        }

    def _arrivals(
        self, parts: _Parts, valid: Mapping[str, Read]
    ) -> Iterator[tuple[int, Increment]]:
        """Yield increments of sources in order of arrival, each with the count of originals so far.

        A merged increment takes the place of its first original.
        """
        flows = (
            self._source(source, some, valid.get(source, {})) for source, some in parts.items()
        )
        done = 0
        in_order = heapq.merge(*flows, key=lambda one: (one[0], one[2].flow, one[2].index))
        for _, count, increment in in_order:
            done += count
            yield done, increment

    def _source(
        self, source: str, parts: Sequence[range], valid: Read
    ) -> Iterator[tuple[datetime, int, Increment]]:
        for number, part in enumerate(parts):
            records = [self._increment(source, index) for index in part]
            read = [valid.get(one.increment.index, one.increment) for one in records]
            files = tuple(file for one in read for file in one.files)
            gone = tuple(file for one in read for file in one.gone)
            came = records[0].created_at
            yield came, len(part), Increment(source, number, number, files, gone=gone)

    def _increment(self, source: str, index: int) -> IncrementRecord:
        found = find_increment(self.parts.store, self.subject.record, source, index)
        require_files(self.parts.files, self.subject.record, found.increment)
        return found


def first_kept(subject: Subject, engine: Engine, cut: Cut | None = None) -> dict[str, int]:
    """Return output flow -> the first increment whose records are left in its table.

    Under a version that undid a swap, increments begin with that version, but its tables have
    the records from before the swap. Their first increment is found in the tables of that
    moment.
    """
    record, found = subject.record, dict[str, int]()
    for name, node in subject.dataflow.stages.items():
        for output in node.translator.outputs:
            flow, table = f"{name}.{output.name}", flow_table(name, output.name)
            version = None if cut is None else cut.snapshot.tables[table].version
            first = engine.increments.horizon(record.folder, flow, version=version)
            for swap in reversed(subject.swaps_of(name)):
                if first != swap.epochs.stop:
                    continue
                try:
                    shown = engine.history.shown(
                        record.folder, record.name, node, at_ms=swap.at_ms - 1
                    )
                    version = shown[table].version
                    first = engine.increments.horizon(record.folder, flow, version=version)
                except NotFoundError:
                    break
            found[flow] = first
    return found


def below(depth: str, increment: Increment) -> Increment:
    """Return an increment whose file paths are relative to the scratch folder."""
    return _with_paths(increment, lambda path: f"{depth}/{path}")


def above(depth: str, increment: Increment) -> Increment:
    """Undo `below` for an increment or a frame."""
    return _with_paths(increment, lambda path: path.removeprefix(f"{depth}/"))


def _with_paths(increment: Increment, of: Callable[[str], str]) -> Increment:
    files, gone, bindings = (
        tuple(replace(file, path=of(file.path)) for file in some)
        for some in (increment.files, increment.gone, increment.bindings)
    )
    return replace(increment, files=files, gone=gone, bindings=bindings)


def punctuations_since(store: Store, dataflow: str, number: int) -> Iterator[Punctuation]:
    """Yield the punctuations of a dataflow from a number on, in their order."""
    cursor = None
    made: list[Punctuation] = []
    while True:  # pages begin with the newest
        page = store.punctuations(dataflow, cursor=cursor)
        made += (one for one in page.items if one.number >= number)
        cursor = page.cursor
        if cursor is None or (page.items and page.items[-1].number < number):
            yield from sorted(made, key=lambda one: one.number)
            return
