"""Repeat the recorded epochs of one stage in a separate folder, to verify its tables.

`cbp.engine.read.replay` decides again what each run reads; a repeat takes that from the records:
each epoch reads the increments that it read, at the time that its record holds, and begins with
the state that the epoch before left. So a repeat can begin after any epoch whose state can still
be read, whichever version or correction made that state.

Absent on purpose: the stage's Runnable, which is not called; and how an epoch is prepared and
published (`cbp.engine.read.recomputed_epochs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import LookedUp
from cbp.engine.read.recomputed_epochs import RecomputedEpochs
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import Increment
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import Intention, TableChange


@dataclass
class Repeat:
    """Repeats a stage and those fused with it; the constructor creates their tables.

    Attributes:
        folder: Folder of the tables; increments name their files relative to it.
        id: Prefix of the ids of the runs, `[a-z0-9]+`.
        before_run: Called with the id of each run before it starts; may raise to end the repeat.
    """

    engine: Engine
    dataflow: Dataflow
    unit: PhysicalStage
    folder: str
    id: str
    before_run: Callable[[str], None] = lambda run: None
    _recomputed: RecomputedEpochs = field(init=False)

    def __post_init__(self) -> None:
        self._recomputed = RecomputedEpochs(
            self.engine, self.dataflow, self.folder, self.id, self.before_run
        )
        self._recomputed.create_tables(self.unit.members)

    def begin(self, epoch: int, state: tuple[TableChange, ...]) -> None:
        """Begin with the state after an epoch, and publish it at once."""
        stage, run = self.unit.leader.name, f"{self.id}begin"
        self._recomputed.record(
            Intention(self.dataflow.name, stage, epoch, run, 0, {}, {}, {}, state)
        )
        self.publish()

    def run(
        self,
        record: Intention,
        inputs: Mapping[str, tuple[Increment, ...]],
        lookups: Mapping[str, LookedUp] = MappingProxyType({}),
    ) -> None:
        """Run a recorded epoch again; raises like `RunPreparer.prepare`.

        An epoch that gave back what was set aside gives back what the repeated epochs set aside.

        Args:
            lookups: The tables that it looked up, as of the moments of its record.
        """
        given_back = record.correction is not None and record.correction.gives_back
        run, prepared = self._recomputed.prepare(
            self.unit, record.epoch, inputs, record.time_ms, lookups, gives_back=given_back
        )
        self._recomputed.record(
            replace(
                record, run=run, outputs=prepared.outputs, changes=prepared.changes, generation=0
            )
        )

    def publish(self) -> None:
        """Publish the runs that are not published yet."""
        self._recomputed.publish(self.unit.leader.name)
