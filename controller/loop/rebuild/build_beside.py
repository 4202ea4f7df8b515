"""Build beside: the tables of a dataflow's next version, made from all retained input, then shown.

    feed      the new version applies what arrived, in a folder of its own      (repeatedly)
    compare   record by record with what readers see now
    find      the rest is applied, and everything is copied beside the live files  (nothing runs)
    put       the description of the new version                      <- the commit point
    redo      each table shows its new files, by one entry; all entries have one time

The last two steps are those of any change (`version_switch.py`). `Return` shows the earlier tables
again in the same way, with the input that arrived since in the queues. Files that were replaced or
retracted before the build began are read as they count now (`valid_inputs.py`), so the result is
right even for stages that cannot apply a replacement. A build records its progress
(`checkpoint.py`).

Where all results are views, and nothing depends on when they are published, a run reads several
increments of a source at a time, up to `unit_bytes`, if no stage depends on their boundaries
(`sources_rebuilt_together`). So such a build also catches up with small updates that follow each
other without a pause. Its views have fewer changes than before, one set for each of its runs.
Elsewhere each increment is a run, since an output that is no view would have other records.

Guaranteed (tests/controller/loop/rebuild/test_build_beside.py): readers see the old tables or
the new ones, always complete; no increment is lost or applied twice, wherever a crash happens.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from cbp.clock import MACHINE, Clock
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import Origins
from cbp.engine.read.compare import count_differences
from cbp.engine.read.recomputed_epochs import RecomputedEpochs
from cbp.engine.read.replay import Replay
from cbp.engine.storage.failpoints import Faults
from cbp.errors import ChangeRefusedError, DataflowBusyError, Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.nodes import FileBatch
from cbp.model.dataflow.reading_together import sources_rebuilt_together
from cbp.model.dataflow.replacement_obstacles import obstacles
from cbp.model.dataflow.set_aside import SET_ASIDE
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.generation import closes_dropped
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.flow.punctuation import Punctuation
from cbp.model.flow.schema import Schema
from cbp.model.flow.snapshot import Snapshot
from cbp.model.plan.fusion import physical_stages
from cbp.model.run.intention import TableChange
from cbp.model.verification import Comparison, comparisons
from controller.loop.operations.version_switch import Changed, stage_leaders
from controller.loop.rebuild.checkpoint import Checkpoint, write_checkpoint
from controller.loop.rebuild.seeds import Seeds
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.verification.recomputation import Watched, above, below, punctuations_since
from controller.loop.verification.valid_inputs import (
    Read,
    ValidInputs,
    find_increment,
    is_rewritten,
    require_files,
)
from controller.store.base import DataflowRecord, IncrementRecord

Tables = Mapping[str, tuple[TableChange, ...]]

UNIT_BYTES, UNIT_INCREMENTS = 4 << 20, 1_000
"""Most bytes of Parquet, and most increments, that a build's run reads: about one second."""


@dataclass(frozen=True, slots=True)
class TableDifference:
    """The changes that a swap would make to one table, in records.

    Attributes:
        before, after: Number of records in the present table, and in the new one.
        added, gone, changed: Number of such records; `None` if the tables are not compared.
        because: Why the tables are not compared; `""` if they are.
    """

    table: str
    before: int
    after: int
    added: int | None = None
    gone: int | None = None
    changed: int | None = None
    because: str = ""


class CorrectedMeanwhileError(Exception):
    """The built tables cannot apply a correction of their input, so the build must start over."""


def hindrances_of_build(dataflow: Dataflow) -> Iterator[Mistake]:
    """Yield the reasons why the tables of a version cannot be built beside the current ones."""
    for name, node in dataflow.stages.items():
        for spec in node.translator.framed:
            flow = node.wiring[spec.name]
            if flow not in dataflow.sources:
                yield Mistake(
                    "beside_framed",
                    f"stages.{name}.inputs.{spec.name}",
                    f"this input forms frames of {flow!r}, a flow of another stage. A rebuild "
                    "beside the current tables would write this flow in other increments, so the "
                    f"frames would differ. Rebuild in place: cbp register FILE --rebuild {name} "
                    "--in-place",
                )


@dataclass(kw_only=True, eq=False)
class BuildParts(DataflowPart):
    """What all builds share; `checkpoint_seconds` and `unit_bytes` are as in `LoopLimits`."""

    engine: Engine
    faults: Faults
    dropped_files: DroppedFiles
    checkpoint_seconds: float
    unit_bytes: int


@dataclass
class Build:
    """One build; used by one thread at a time. The constructor creates its tables, or continues.

    Attributes:
        id: Prefix of the ids of its runs, `[a-z0-9]+`; each attempt has another one.
        folder: The folder of its tables, two levels below that of all dataflows.
        firsts: Maps each source with a seed to its oldest kept increment.
        slots_max: Largest number of engine slots of its runs; `None` means all.
        begins: The progress of an earlier attempt, whose tables are in the folder.
    """

    id: str
    record: DataflowRecord
    dataflow: Dataflow
    leaders: tuple[str, ...]
    folder: str
    watched: Watched
    parts: BuildParts
    seeds: Seeds
    firsts: Mapping[str, int]
    slots_max: int | None = None
    begins: Checkpoint | None = None
    clock: Clock = MACHINE
    back: bool = field(init=False, default=False)
    _closed: int = field(init=False, default=0)
    _closes: list[Punctuation] = field(init=False, default_factory=list)
    _seeds: tuple[Increment, ...] = field(init=False, default=())
    _valid_to: Mapping[str, int] = field(init=False)
    _valid: dict[str, Read] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._kept_at = self.clock.seconds()
        self._beside = self.parts.engine.beside()
        self._together = sources_rebuilt_together(self.dataflow.sources, self.dataflow.stages)
        sources = self.dataflow.sources
        batched = {name: replace(sources[name], batch=FileBatch()) for name in self._together}
        read = replace(self.dataflow, sources={**sources, **batched})
        recomputed = RecomputedEpochs(
            self._beside,
            read,
            self.folder,
            self.id,
            self.watched.began,
            units=physical_stages(read, self.leaders),
            origins=self._origins,
            slots_max=self.slots_max,
        )
        self._replay = Replay(
            recomputed,
            history=self._applied,
            between=self._keep,
            begins=None if self.begins is None else self.begins.replay,
        )
        if self.begins is not None:
            self._go_on(self.begins)
            return
        self._fed: dict[str, int] = dict.fromkeys(self.dataflow.sources, 0)
        self._valid_to = self.ends
        for source in self.seeds.paths:
            first = self._fed[source] = self.firsts[source]
            seed = self.seeds.write(
                self.dataflow,
                source,
                self.folder,
                first=first,
                faults=self.parts.faults,
                each=partial(self.watched.tell, f"reads the seed of {source}"),
            )
            self._seeds += (seed,)
            self._replay.offer(seed)

    def _go_on(self, checkpoint: Checkpoint) -> None:
        self._fed, self._closed = dict(checkpoint.fed), checkpoint.closed
        self._seeds, self._valid_to = checkpoint.seeds, checkpoint.valid_to
        made = punctuations_since(self.parts.store, self.record.name, 0)
        self._closes = [one for one in made if one.number in checkpoint.closes]

    def _keep(self, publishes: bool) -> None:
        """Write a checkpoint: before anything is shown, and otherwise from time to time."""
        if not publishes and self.clock.seconds() < self._kept_at + self.parts.checkpoint_seconds:
            return
        checkpoint = Checkpoint(
            fed=self._fed,
            closed=self._closed,
            closes=tuple(one.number for one in self._closes),
            seeds=self._seeds,
            valid_to=self._valid_to,
            replay=self._replay.state,
        )
        write_checkpoint(self.parts.files, self.folder.rpartition("/")[0], checkpoint)
        self._kept_at = self.clock.seconds()

    @property
    def ends(self) -> dict[str, int]:
        """Source -> number of its increments that have arrived."""
        return {s: self.parts.store.next_index(self.record.name, s) for s in self._fed}

    @property
    def behind(self) -> int:
        """Number of increments that have arrived, but are not applied here."""
        return sum(end - self._fed[source] for source, end in self.ends.items())

    @property
    def _depth(self) -> str:
        """The path from its folder to the dataflow's."""
        return f"../../{self.record.folder.rpartition('/')[2]}"

    def feed(self) -> None:
        """Apply all arrived increments, in the order of arrival.

        Frames are closed at the same places: between the same two increments of their source.

        Raises:
            InputNotRetainedError: If an increment is no longer kept.
            CorrectedMeanwhileError: If a file that it has read was replaced, and a stage cannot
                apply the replacement.
            CbpError: As in `RunPreparer.prepare`.
        """
        ends, done = self.ends, sum(self._fed.values())
        total = sum(ends.values())
        dropped = self._dropped()
        self.watched.tell("builds", done, total, "increments")
        self._take_closes()
        flows = [self._arrived(source, end) for source, end in ends.items()]
        waiting, size = 0, 0  # increments that the next runs read, and their bytes
        for _, source, index, one in heapq.merge(*flows, key=lambda arrived: arrived[:3]):
            self._close({source: index})
            gone = any(index in part for part in dropped.get(source, ()))
            increment = None if gone else self._read(one)
            alone = increment is None or bool(increment.gone) or source not in self._together
            more = 0 if increment is None else increment.bytes
            if waiting and (
                alone or waiting == UNIT_INCREMENTS or size + more > self.parts.unit_bytes
            ):
                self._run(done, total)
                waiting, size = 0, 0
            # Before it is offered: a checkpoint has both the number and the increment, or neither.
            self._fed[source] = index + 1
            done += 1
            if increment is not None:
                self._replay.offer(increment)
                waiting, size = waiting + 1, size + more
            if alone:
                self._run(done, total)
                waiting, size = 0, 0
        self._run(done, total)
        self._close(ends)
        self._replay.finish()
        self.watched.began("")

    def _run(self, done: int, total: int) -> None:
        """Run the stages on the offered increments, and pause."""
        self._replay.run_until_idle()
        self.watched.tell("builds", done, total, "increments")

    def _take_closes(self) -> None:
        dropped = closes_dropped(self.parts.open_log(self.record.folder).generations)
        made = list(punctuations_since(self.parts.store, self.record.name, self._closed))
        if made:
            self._closed = made[-1].number + 1
        self._closes += (n for n in made if n.number not in dropped and n.flow in self._fed)

    def _close(self, at: Mapping[str, int]) -> None:
        """Apply the closes that are due before these increments."""
        for one in [one for one in self._closes if one.at <= at.get(one.flow, -1)]:
            self._closes.remove(one)
            self._replay.close(one)
            self._replay.run_until_idle()

    def _origins(self, increments: Iterable[Increment]) -> Origins:
        depth = self._depth
        stored = [above(depth, one) for one in increments if not is_rewritten(one, "")]
        origins = self.parts.dropped_files.origins(self.record.name, stored)
        before = {f"{depth}/{path}": count for path, count in origins.before.items()}
        return replace(origins, before=before)

    def compare(self, before: Dataflow, snapshot: Snapshot) -> list[TableDifference]:
        """Return how each table differs from a snapshot of the present tables."""
        wanted = [
            one
            for one in comparisons(self.dataflow, "increments")
            if one.kind != "changes" and not one.messages
        ]
        found = []
        for number, one in enumerate(wanted):
            again = partial(
                self.watched.tell, f"compares {one.table}", number, len(wanted), "tables"
            )
            again()
            found.append(self._difference(before, snapshot, one, again))
        return found

    def _difference(
        self, before: Dataflow, snapshot: Snapshot, one: Comparison, again: Callable[[], None]
    ) -> TableDifference:
        node, old = self.dataflow.stages[one.stage], before.stages.get(one.stage)
        after = self._beside.verification.contents(self.folder, node, one)
        if old is None or one.table not in snapshot.tables:
            return TableDifference(one.table, 0, after.rows, because="it is new")
        version = snapshot.tables[one.table].version
        now = self.parts.engine.verification.contents(self.record.folder, old, one, version=version)
        specs = (old.translator, node.translator)
        columns = [_columns(one, spec) for spec in specs]
        if columns[0] != columns[1]:
            because = "its columns differ"
            return TableDifference(one.table, now.rows, after.rows, because=because)
        counts = count_differences(
            one, node.translator, before=now, after=after, counting=lambda rows: again()
        )
        return TableDifference(
            one.table, counts.before, counts.after, counts.added, counts.gone, counts.changed
        )

    def find(self, record: DataflowRecord, planned: Changed, run: str) -> tuple[Position, Tables]:
        """Apply the rest, and write the new contents of the tables; see `version_switch.Swap`."""
        was = self.record
        same = (was.version, was.generation, was.created_at)
        if (record.version, record.generation, record.created_at) != same:
            message = "the version changed, or the dataflow was rolled back, during the build"
            raise _refused(record.name, "beside_outdated", f"{message}; start the rebuild again")
        if planned.succession.leaders != self.leaders:
            message = "its stages are fused differently now; start the rebuild again"
            raise _refused(record.name, "beside_outdated", message)
        self.feed()
        before = planned.succession.position
        stages = {name: self._stage(name, stage) for name, stage in before.stages.items()}
        position = replace(before, stages=stages)
        leads = stage_leaders(self.dataflow, self.leaders)
        tables: dict[str, tuple[TableChange, ...]] = {}
        for number, (name, node) in enumerate(self.dataflow.stages.items()):
            self.watched.tell("copies", number, len(self.dataflow.stages), "stages")
            epoch = stages[leads[name]].epoch
            tables[name] = tuple(
                self.parts.engine.tables.show_built(
                    record.folder, record.name, node, built=self.folder, epoch=epoch, run=run
                )
            )
        return position, tables

    def close(self) -> None:
        """Forget its tables; the caller removes them."""
        self.parts.engine.tables.forget(self.folder)
        self._beside.tables.forget(self.folder)

    def _stage(self, name: str, stage: StagePosition) -> StagePosition:
        """Return where a stage begins: with the memo and the queues that the build left."""
        unit = physical_stages(self.dataflow, self.leaders)[name]
        connectors = {}
        for input_, connector in self._replay.waiting(name).items():
            flow = unit.leader.wiring[input_]
            if connector.queue and flow not in self.dataflow.sources:
                why = f"{name}.{input_} still waits for more output of another stage"
                raise DataflowBusyError(self.record.name, why)
            if any(is_rewritten(one, "") for one in connector.held):
                why = f"{name}.{input_} still waits for more of {flow!r}, whose files were replaced"
                raise DataflowBusyError(self.record.name, why)
            framed = unit.leader.translator.input(input_).frame_by is not None
            connectors[input_] = _shifted(connector, self._depth, framed=framed)
        timers = any(node.translator.timers for node in unit.members)
        return replace(
            stage, memo=self._replay.memo(name), connectors=connectors, due_ms=0 if timers else None
        )

    def _applied(self, source: str) -> Iterator[Increment]:
        """Yield the increments of a source that the build has been offered so far."""
        yield from (one for one in self._seeds if one.flow == source)
        gone = self._dropped().get(source, ())
        for index in range(self.firsts.get(source, 0), self._fed[source]):
            if not any(index in part for part in gone):
                yield self._read(self._increment(source, index))

    def _read(self, one: IncrementRecord) -> Increment:
        source, index = one.increment.flow, one.increment.index
        if source not in self._valid:
            valid = ValidInputs(
                self.parts.store,
                self.parts.files,
                self.folder,
                "",
                self.parts.faults,
                f"{self.id}-",
            )
            node, dropped = self.dataflow.sources[source], self._dropped().get(source, ())
            self._valid[source] = valid.of(self.record, node, self._valid_to[source], dropped)
        if (valid_one := self._valid[source].get(index)) is not None:
            return valid_one
        if one.increment.gone:
            self._require_followed(source, index)
        require_files(self.parts.files, self.record, one.increment)
        return below(self._depth, one.increment)

    def _require_followed(self, source: str, index: int) -> None:
        """Raise an error if an increment takes records back and a stage cannot apply that."""
        sources, stages = self.dataflow.sources, self.dataflow.stages
        for one in obstacles(sources[source], sources, stages, taken_back=True):
            if index >= self._valid_to[source]:
                message = f"a file of {source!r} was replaced after it was read, but {one.why}"
                raise CorrectedMeanwhileError(message)
            message = (
                f"a file of {source!r} was replaced, its original records are no longer kept, and "
                f"{one.why}"
            )
            raise _refused(self.record.name, "replacement_unfollowed", message, one.reader)

    def _arrived(
        self, source: str, end: int
    ) -> Iterator[tuple[datetime, str, int, IncrementRecord]]:
        for index in range(self._fed[source], end):
            one = self._increment(source, index)
            yield one.created_at, source, index, one

    def _increment(self, source: str, index: int) -> IncrementRecord:
        return find_increment(self.parts.store, self.record, source, index)

    def _dropped(self) -> Mapping[str, list[range]]:
        return self.parts.dropped(self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Shows the tables from before a swap again; later input waits for the old version.

    Attributes:
        stood: The position of the old version at the swap.
        at_ms: Time of the swap, in milliseconds since 1970.
    """

    stood: Position
    at_ms: int
    dataflow: Dataflow
    number: int
    parts: DataflowPart
    engine: Engine
    back: bool = True

    def find(self, record: DataflowRecord, planned: Changed, run: str) -> tuple[Position, Tables]:
        """Find the earlier versions of the tables, and the queues; see `version_switch.Swap`."""
        if record.version != self.number:
            raise _refused(
                record.name, "beside_outdated", "another version took over in the meantime"
            )
        leaders = planned.succession.leaders
        if set(leaders) != self.stood.stages.keys():
            message = "its stages would be fused differently than before: rebuild instead"
            raise _refused(record.name, "beside_outdated", message)
        before, leads = planned.succession.position, stage_leaders(self.dataflow, leaders)
        stages = {
            name: replace(
                self.stood.stages[name], epoch=stage.epoch, connectors=self._queues(record, name)
            )
            for name, stage in before.stages.items()
        }
        tables: dict[str, tuple[TableChange, ...]] = {}
        for name, node in self.dataflow.stages.items():
            shown = self.engine.history.shown(
                record.folder, record.name, node, at_ms=self.at_ms - 1
            )
            versions = {table: one.version for table, one in shown.items()}
            epoch = stages[leads[name]].epoch
            tables[name] = tuple(
                self.engine.tables.show_again(record.folder, node, versions, epoch=epoch)
            )
        return replace(before, stages=stages), tables

    def _queues(self, record: DataflowRecord, stage: str) -> dict[str, Connector]:
        """Return what waited at a stage's inputs, and what arrived at its sources since."""
        read = {one.flow: one.index + 1 for one in self.stood.newest}
        closed = punctuations_since(self.parts.store, record.name, self.stood.punctuations)
        no_longer = closes_dropped(self.parts.open_log(record.folder).generations)
        closes = [one for one in closed if one.number not in no_longer]
        dropped = self.parts.dropped(record)
        queues = {}
        for input_, connector in self.stood.stages[stage].connectors.items():
            flow = self.dataflow.stages[stage].wiring[input_]
            if flow in self.dataflow.sources:
                gone = dropped.get(flow, ())
                come = range(read.get(flow, 0), self.parts.store.next_index(record.name, flow))
                later = [
                    self.parts.store.increment(record.name, flow, n).increment
                    for n in come
                    if not any(n in part for part in gone)
                ]
                connector = _gone_on(connector, later, gone)
            if connector.framing is not None:
                at = [one.at for one in closes if one.meant_for(stage, input_, flow)]
                connector = replace(connector, closes=tuple(sorted((*connector.closes, *at))))
            for increment in connector.held:
                require_files(self.parts.files, record, increment)
            queues[input_] = connector
        return queues


def _columns(one: Comparison, spec: TranslatorSpec) -> Schema:
    if one.kind == "set_aside":
        return SET_ASIDE
    return (spec.state(one.name) if one.kind == "state" else spec.output(one.name)).schema


def _shifted(connector: Connector, depth: str, *, framed: bool) -> Connector:
    """Return a connector of a build with the paths of the dataflow's folder."""
    framing = connector.framing
    if framing is not None and framing.open is not None:
        framing = replace(framing, open=above(depth, framing.open))
    queue = tuple(Queued(above(depth, one.increment), one.read) for one in connector.queue)
    return replace(connector, queue=queue, framing=framing or (Framing() if framed else None))


def _gone_on(
    connector: Connector, later: Sequence[Increment], dropped: Sequence[range]
) -> Connector:
    """Return a source's connector with later increments added; a framed one will frame them."""

    def stays(one: Increment) -> bool:
        return not any(one.index in part for part in dropped)

    if connector.framing is not None:  # the numbers of frames are not those of increments
        arrived = (*filter(stays, connector.arrived), *later)
        return replace(connector, arrived=arrived)
    queue = (one for one in connector.queue if stays(one.increment))
    return replace(connector, queue=(*queue, *map(Queued, later)))


def _refused(dataflow: str, rule: str, message: str, where: str = "rebuild") -> ChangeRefusedError:
    return ChangeRefusedError(dataflow, [Mistake(rule, where, message)])
