"""Repeat the recorded epochs of one stage in a separate folder, to verify its tables.

`cbp.engine.read.replay` decides again what each run reads; a repeat takes that from the records:
each epoch reads the increments that it read, and begins with the state that the epoch before
left. So a repeat can begin after any epoch whose state can still be read, whichever version or
correction made that state.

Absent on purpose: the stage's Runnable, which is not called, and anything that outlives the
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.read.replay import PUBLISH_EPOCHS
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.fusion import PhysicalStage
from cbp.model.flow.increment import Increment
from cbp.model.run.intention import Intention, TableChange

__all__ = ["Repeat"]


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
    _waiting: list[Intention] = field(init=False, default_factory=list)
    _last_ms: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.engine.tables.create_tables(self.folder, self.dataflow.name, self.unit.members)

    def begin(self, epoch: int, state: tuple[TableChange, ...]) -> None:
        """Begin with the state after an epoch, and publish it at once."""
        begun = Intention(
            self.dataflow.name,
            self.unit.leader.name,
            epoch,
            f"{self.id}begin",
            self._next_ms(),
            {},
            {},
            {},
            state,
        )
        self.engine.publisher.publish(self.folder, [begun], timestamp_ms=begun.prepared_ms)

    def run(self, record: Intention, inputs: Mapping[str, tuple[Increment, ...]]) -> None:
        """Run a recorded epoch again; raises like `RunPreparer.prepare`."""
        run = f"{self.id}{record.epoch:08x}"
        self.before_run(run)
        node, *fused = self.unit.members
        prepared = self.engine.preparer.prepare(
            RunPlan(
                self.folder,
                self.dataflow.name,
                node,
                record.epoch,
                run,
                inputs,
                tuple(fused),
                tuple(self._waiting),
                own_messages=self.dataflow.own_messages(),
            )
        )
        self._waiting.append(
            replace(
                record,
                run=run,
                prepared_ms=self._next_ms(),
                outputs=prepared.outputs,
                changes=prepared.changes,
                generation=0,
            )
        )
        if len(self._waiting) >= PUBLISH_EPOCHS:
            self.publish()

    def publish(self) -> None:
        """Publish the runs that are not published yet."""
        if self._waiting:
            last_ms = self._waiting[-1].prepared_ms
            self.engine.publisher.publish(self.folder, self._waiting, timestamp_ms=last_ms)
            self._waiting.clear()

    def _next_ms(self) -> int:
        self._last_ms = max(time.time_ns() // 1_000_000, self._last_ms + 2)
        return self._last_ms
