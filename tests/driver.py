"""Drive a dataflow on an engine by hand: the controller's cycle, without a controller.

Feeds source increments as the ingester does, decides with the pure model, records
intentions, publishes. Tests compare engines with it; it holds no engine code.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import PreparedRun, RunPlan, looked_up_tables
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import source_folder
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.retention import KeptFlow
from cbp.model.plan.fusion import PhysicalStage, choose_leaders, physical_stages
from cbp.model.run.intention import Intention
from cbp.model.schedule.runnable_call import call_runnable
from cbp.model.schedule.timers import woken


class Driver:
    """One dataflow on one engine; `folder` holds its tables.

    With `fused`, stages run together as `cbp.model.plan.fusion` chooses.

    Attributes:
        publish_every: Epochs of a stage after which everything recorded is published.
        kept: What must stay of outputs that are not kept for good, by flow.
        by_bucket: Whether messages that only their stage reads may lie by bucket.
        files: Most files of a source's increment, each with the next of its records.
        slots_max: As of the plan of every run.
        time_ms: The time that the next runs give to their authors' code.
        due_ms: As of the last record of each stage; a stage without an entry looks at its timers.
        generation: Of the records; a test that rolls back begins another.
    """

    def __init__(
        self,
        engine: Engine,
        dataflow: Dataflow,
        folder: Path,
        *,
        fused: bool = False,
        publish_every: int = 1,
        by_bucket: bool = True,
        files: int = 1,
    ) -> None:
        self.engine, self.dataflow, self.folder = engine, dataflow, str(folder)
        self._leaders = choose_leaders(dataflow) if fused else tuple(dataflow.stages)
        self.publish_every, self.by_bucket, self.files = publish_every, by_bucket, files
        self.unpublished: dict[str, list[Intention]] = {name: [] for name in self.units}
        self.connectors = {
            name: {input_: Connector(input_) for input_ in unit.leader.wiring}
            for name, unit in self.units.items()
        }
        self.framings: dict[tuple[str, str], Framing] = {}
        self.memos: dict[str, Any] = {}
        self.epochs = dict.fromkeys(self.units, 0)
        self.indexes = dict.fromkeys(dataflow.sources, 0)
        self.increments: dict[str, list[Increment]] = {}
        self.figures: list[dict[str, Any]] = []
        self.log = IntentionLog(self.folder, LocalFiles())
        self.runs = itertools.count()
        # Later than the tables were made, and three apart: compaction and retention come later.
        self.clock = itertools.count(2_000_000_000_000, 3)
        self.kept: dict[str, KeptFlow] = {}
        self.slots_max: int | None = None
        self.time_ms = 0
        self.due_ms: dict[str, int | None] = {}
        self.generation = 0
        engine.tables.create_tables(self.folder, dataflow.name, list(dataflow.stages.values()))

    @property
    def units(self) -> Mapping[str, PhysicalStage]:
        """The physical stages of the dataflow as it is now; a test may exchange it."""
        return physical_stages(self.dataflow, self._leaders)

    def feed(self, source: str, records: list[dict[str, Any]]) -> None:
        """Add one increment to a source."""
        index = self.indexes[source]
        self.indexes[source] += 1
        cuts = [len(records) * part // self.files for part in range(self.files + 1)]
        files = tuple(
            self._file(source, f"{index:012d}-{part:05d}-test.parquet", records[start:stop])
            for part, (start, stop) in enumerate(itertools.pairwise(cuts))
            if start < stop
        )
        self._enqueue(Increment(source, index, index, files))

    def feed_table(self, source: str, records: pa.Table) -> None:
        """Add one increment to a source, in a file."""
        index = self.indexes[source]
        self.indexes[source] += 1
        name = f"{index:012d}-00000-test.parquet"
        self._enqueue(Increment(source, index, index, (self._file_of(source, name, records),)))

    def _file(self, source: str, name: str, records: list[dict[str, Any]]) -> DataFile:
        schema = arrow_schema(self.dataflow.sources[source].schema)
        return self._file_of(source, name, pa.Table.from_pylist(records, schema=schema))

    def _file_of(self, source: str, name: str, records: pa.Table) -> DataFile:
        path = f"{source_folder(source)}/{name}"
        target = Path(self.folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another driver of the same folder may be reading it.
        pq.write_table(records, f"{target}.{os.getpid()}")
        os.replace(f"{target}.{os.getpid()}", target)
        return DataFile(path, records.num_rows, target.stat().st_size)

    def run_until_idle(self) -> None:
        """Run stages until none is runnable."""
        while any([self.run(stage) for stage in self.units]):
            pass

    def run(self, stage: str) -> bool:
        """Run one epoch of a physical stage, if it is runnable."""
        rule = self.units[stage].leader.runnable
        decision = call_runnable(stage, rule, self.connectors[stage], self.memos.get(stage))
        due_ms = self.due_ms.get(stage)
        if not decision.runnable:
            if due_ms is None or due_ms > self.time_ms:
                return False
            decision = woken(self.memos.get(stage))
        (node, *others), epoch = self.units[stage].members, self.epochs[stage]
        inputs = {name: decision.increments(self.connectors[stage][name]) for name in decision.read}
        run = f"r{next(self.runs):06d}"  # an epoch that is tried again is another run
        plan = RunPlan(
            self.folder,
            self.dataflow.name,
            node,
            epoch,
            run,
            inputs,
            tuple(others),
            tuple(self.unpublished[stage]),
            self.kept if self.engine.preparer.maintains_outputs(epoch) else None,
            self.dataflow.own_messages() if self.by_bucket else (),
            self.slots_max,
            self.time_ms,
            self.due_ms.get(stage, 0),
            looked_up_tables(
                self.dataflow, self.folder, (node, *others), unpublished=self._unpublished_of
            ),
        )
        prepared = self.engine.preparer.prepare(plan)
        self.figures.append({"stage": stage, **prepared.figures})
        self._record(stage, plan, prepared, decision.read, decision.remove)
        for name, connector in self.connectors[stage].items():
            self.connectors[stage][name] = connector.after(
                tuple(decision.read.get(name, ())), tuple(decision.remove.get(name, ()))
            )
        self.epochs[stage] += 1
        self.due_ms[stage] = prepared.due_ms
        self.memos[stage] = decision.memo
        for increment in prepared.outputs.values():
            self._enqueue(increment)
        return True

    def _record(
        self,
        stage: str,
        plan: RunPlan,
        prepared: PreparedRun,
        read: Mapping[str, tuple[int, ...]],
        remove: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Put the record of a run, and publish if it is time."""
        intention = Intention(
            self.dataflow.name,
            stage,
            plan.epoch,
            plan.run,
            next(self.clock),
            read,
            remove,
            prepared.outputs,
            prepared.changes,
            time_ms=self.time_ms,
            due_ms=prepared.due_ms,
            lookups=prepared.lookups,
            generation=self.generation,
        )
        self.log.put(intention)
        self.unpublished[stage].append(Intention.from_json(intention.to_json()))
        if len(self.unpublished[stage]) >= self.publish_every:
            self.publish()

    def give_back(self, stage: str) -> None:
        """Give back what a stage set aside, as its next epoch."""
        (node,), epoch = self.units[stage].members, self.epochs[stage]
        plan = RunPlan(
            self.folder,
            self.dataflow.name,
            node,
            epoch,
            f"r{next(self.runs):06d}",
            {},
            unpublished=tuple(self.unpublished[stage]),
            time_ms=self.time_ms,
            lookups=looked_up_tables(
                self.dataflow, self.folder, (node,), unpublished=self._unpublished_of
            ),
        )
        prepared = self.engine.preparer.give_back(plan)
        self.figures.append({"stage": stage, **prepared.figures})
        self._record(stage, plan, prepared, {}, {})
        self.epochs[stage] += 1
        self.due_ms[stage] = prepared.due_ms
        for increment in prepared.outputs.values():
            self._enqueue(increment)

    def set_aside(self, stage: str) -> list[dict[str, Any]]:
        """Return what a stage has set aside, as published."""
        return self.engine.records.set_aside(self.folder, self.dataflow.stages[stage])

    def _unpublished_of(self, writer: str) -> list[Intention]:
        leader = next(name for name, unit in self.units.items() if writer in unit.names)
        return self.unpublished[leader]

    def publish(self) -> None:
        """Publish everything that is recorded, all stages together."""
        now = next(self.clock)
        for intentions in self.unpublished.values():
            if intentions:
                self.engine.publisher.publish(self.folder, intentions, timestamp_ms=now)
                intentions.clear()

    def outputs(self, flow: str) -> list[list[dict[str, Any]]]:
        """Return a flow's records, per epoch, in order."""
        epochs = []
        for increment in self.increments.get(flow, []):
            rows = self.engine.increments.read(self.folder, [increment], offset=0, limit=10**9)
            epochs.append([{k: v for k, v in row.items() if k != "_epoch"} for row in rows])
        return epochs

    def state(self, stage: str, state: str) -> list[dict[str, Any]]:
        """Return a state's published records, in any order."""
        return list(self.engine.records.read_state(self.folder, self.dataflow.stages[stage], state))

    def _enqueue(self, increment: Increment) -> None:
        self.increments.setdefault(increment.flow, []).append(increment)
        for stage, input_ in self.dataflow.receivers(increment):
            if stage in self.connectors:
                for framed in self._frames(stage, input_, increment):
                    connectors = self.connectors[stage]
                    connectors[input_] = connectors[input_].append(framed)

    def close(self, source: str) -> None:
        """Close the open frames of a source, as a punctuation at this point does."""
        for stage, input_ in self.dataflow.consumers(source):
            if (framing := self.framings.get((stage, input_))) is not None:
                self.framings[stage, input_], done = framing.close()
                for frame in done:
                    connectors = self.connectors[stage]
                    connectors[input_] = connectors[input_].append(frame)

    def _frames(self, stage: str, input_: str, increment: Increment) -> tuple[Increment, ...]:
        """Return what an output increment brings to an input: itself, or frames."""
        node = self.dataflow.stages[stage]
        spec = node.translator.input(input_)
        if spec.frame_by is None:
            return (increment,)
        framing = self.framings.get((stage, input_), Framing())
        actual, memo = self.engine.increments.frame(
            self.folder, stage, spec, increment, framing.memo, node.set_aside_max
        )
        self.framings[stage, input_], done = framing.take(increment, actual, memo)
        return done
