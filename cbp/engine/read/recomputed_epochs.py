"""Epochs of a recomputation: prepared in a separate folder, published some epochs at a time.

`cbp.engine.read.replay` decides again what each run reads. A `Repeat` follows the records: each
epoch reads the same increments again, at the recorded time, and begins with the state after the
epoch before. So a repeat can begin after any epoch whose state can still be read, whichever version
or correction made that state. No Runnable is called.

Absent on purpose: intentions on disk. What is not published is lost with the process, unless the
caller stores it before anything is published, and passes it to `resume`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cbp.clock import MACHINE
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import (
    NO_ORIGINS,
    LookedUp,
    Origins,
    PreparedRun,
    RunPlan,
    looked_up_tables,
)
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.flow.increment import Increment
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import Intention, TableChange

PUBLISH_EPOCHS = 16


@dataclass
class RecomputedEpochs:
    """Prepares epochs, and publishes each stage every `PUBLISH_EPOCHS` epochs.

    Attributes:
        folder: Folder of the tables; increments name their files relative to it.
        id: Prefix of the ids of the runs, `[a-z0-9]+`.
        before_run: Called with the id of each run before it starts; may raise to stop.
        units: The physical stages, by their leaders; to find the writer of a looked-up table.
        origins: Returns the dropped files of increments, for records that are set aside.
        last_ms: The time of the newest epoch.
    """

    engine: Engine
    dataflow: Dataflow
    folder: str
    id: str
    before_run: Callable[[str], None]
    now_ms: Callable[[], int] = MACHINE.now_ms
    units: Mapping[str, PhysicalStage] = field(default_factory=dict)
    origins: Callable[[Iterable[Increment]], Origins] = lambda increments: NO_ORIGINS
    slots_max: int | None = None
    _unpublished: defaultdict[str, list[Intention]] = field(
        init=False, default_factory=lambda: defaultdict(list)
    )
    last_ms: int = field(init=False, default=0)

    def resume(self, unpublished: Mapping[str, Sequence[Intention]], last_ms: int) -> None:
        """Continue after another process was interrupted: publish its recorded epochs again."""
        self.last_ms = last_ms
        for stage, records in unpublished.items():
            self._unpublished[stage] = list(records)
            self.publish(stage)

    @property
    def unpublished(self) -> dict[str, tuple[Intention, ...]]:
        """Stage -> its epochs that are not published yet."""
        return {stage: tuple(records) for stage, records in self._unpublished.items() if records}

    def create_tables(self, stages: Sequence[StageNode]) -> None:
        """Create the tables of these stages."""
        self.engine.tables.create_tables(self.folder, self.dataflow.name, stages)

    def prepare(
        self,
        unit: PhysicalStage,
        epoch: int,
        inputs: Mapping[str, tuple[Increment, ...]],
        time_ms: int = 0,
        lookups: Mapping[str, LookedUp] | None = None,
        retained: Mapping[str, tuple[Increment, ...]] = MappingProxyType({}),
        *,
        gives_back: bool = False,
    ) -> tuple[str, PreparedRun]:
        """Prepare an epoch; return the id of its run, and the run.

        Without `lookups`, it looks up the tables of this folder, with all epochs before this one.
        If it `gives_back`, it reads the set-aside records of the stage's table instead of inputs.
        """
        run = f"{self.id}{epoch:08x}"
        self.before_run(run)
        node, *fused = unit.members
        if lookups is None:
            tables = self.dataflow, self.folder, unit.members
            lookups = looked_up_tables(*tables, unpublished=self._unpublished_of, reads_all=True)
        plan = RunPlan(
            self.folder,
            self.dataflow.name,
            node,
            epoch,
            run,
            inputs,
            tuple(fused),
            tuple(self._unpublished[node.name]),
            own_messages=self.dataflow.own_messages(),
            slots_max=self.slots_max,
            time_ms=time_ms,
            lookups=lookups,
            retained=retained,
            recomputes=True,
        )
        if node.sets_aside:
            read = [one for increments in inputs.values() for one in increments]
            plan = replace(plan, origins=self.origins(read))
        preparer = self.engine.preparer
        return run, preparer.give_back(plan) if gives_back else preparer.prepare(plan)

    def _unpublished_of(self, writer: str) -> Sequence[Intention]:
        return self._unpublished[next(n for n, unit in self.units.items() if writer in unit.names)]

    def record(self, epoch: Intention) -> None:
        """Add the record of an epoch, later than all earlier ones; publish if enough have come."""
        self.note(epoch)
        if self.is_due(epoch.stage):
            self.publish(epoch.stage)

    def note(self, epoch: Intention) -> None:
        """Add the record of an epoch; the caller publishes it."""
        self.last_ms = max(self.now_ms(), self.last_ms + 2)
        self._unpublished[epoch.stage].append(replace(epoch, prepared_ms=self.last_ms))

    def is_due(self, stage: str) -> bool:
        """Return whether a stage has enough epochs to publish them."""
        return len(self._unpublished[stage]) >= PUBLISH_EPOCHS

    def publish(self, stage: str) -> None:
        """Publish the epochs of a stage that are not published yet."""
        if records := self._unpublished[stage]:
            last_ms = records[-1].prepared_ms
            self.engine.publisher.publish(self.folder, tuple(records), timestamp_ms=last_ms)
            records.clear()


@dataclass
class Repeat:
    """Repeats a stage and those fused with it; the constructor creates their tables."""

    recomputed: RecomputedEpochs
    unit: PhysicalStage

    def __post_init__(self) -> None:
        self.recomputed.create_tables(self.unit.members)

    def begin(self, epoch: int, state: tuple[TableChange, ...]) -> None:
        """Begin with the state after an epoch, and publish it."""
        stage, run = self.unit.leader.name, f"{self.recomputed.id}begin"
        of = self.recomputed.dataflow.name
        self.recomputed.record(Intention(of, stage, epoch, run, 0, {}, {}, {}, state))
        self.publish()

    def run(
        self,
        record: Intention,
        inputs: Mapping[str, tuple[Increment, ...]],
        lookups: Mapping[str, LookedUp] = MappingProxyType({}),
    ) -> None:
        """Run a recorded epoch again; raises like `RunPreparer.prepare`.

        The tables are those that the epoch looked up, as of the moments in its record. If it gave
        back set-aside records, this gives back what the repeated epochs set aside.
        """
        given_back = record.correction is not None and record.correction.gives_back
        run, prepared = self.recomputed.prepare(
            self.unit, record.epoch, inputs, record.time_ms, lookups, gives_back=given_back
        )
        outputs, changes = prepared.outputs, prepared.changes
        again = replace(record, run=run, outputs=outputs, changes=changes, generation=0)
        self.recomputed.record(again)

    def publish(self) -> None:
        """Publish the runs that are not published yet."""
        self.recomputed.publish(self.unit.leader.name)
