"""Runs a dataflow on an engine without the service: offer, decide, prepare, record, publish.

Every commit of the service is made (intention, log entries of state and outputs, all synced). The
drop folder, the SQL store and the scheduler are left out.

Steps of a run, in seconds: `plan` decides what to read and which files are live, `job` is the
Spark job as the driver sees it, `task` the longest task within it, `assemble` collects what the
tasks wrote, `intention` is the commit point, `publish` writes the tables' log entries.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cbp.engine.commit.intention_log import RECORDS_KEPT, IntentionLog
from cbp.engine.commit.table_entries import files_named
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.interface.runs import RunPlan, looked_up_tables
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import source_folder
from cbp.model.dataflow.dataflow import SECONDS_MAX, Dataflow, PublishPolicy
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.plan.fusion import PhysicalStage, choose_leaders, physical_stages
from cbp.model.run.intention import Intention
from cbp.model.run.publication import due
from cbp.model.schedule.runnable_call import call_runnable
from tests.bench.workloads.workload import Arrival

__all__ = ["STEPS", "DataflowDrive", "StageRun"]

STEPS = ("plan", "job", "task", "assemble", "intention", "publish")


@dataclass(frozen=True, slots=True)
class StageRun:
    """One run of one stage.

    Attributes:
        steps: Step to seconds, see the module header; `task` is part of `job`.
        figures: As the engine reported them.
        intention: The recorded intention.
    """

    stage: str
    steps: Mapping[str, float]
    figures: Mapping[str, float]
    intention: Intention

    @property
    def tasks(self) -> int:
        """Number of tasks of its job; 0 if there was none."""
        return int(self.figures.get("tasks", 1)) if self.figures.get("records_in") else 0


@dataclass
class DataflowDrive:
    """One dataflow on one engine, single-threaded; the constructor creates the tables.

    Attributes:
        fused: Let stages run together, as the service does.
        publish_epochs: Number of a stage's epochs after which all stages publish, as in the
            service.
    """

    engine: Engine
    dataflow: Dataflow
    folder: Path
    fused: bool = True
    publish_epochs: int = 1
    _waiting: dict[str, list[Intention]] = field(init=False)
    _units: dict[str, PhysicalStage] = field(init=False)
    _connectors: dict[str, dict[str, Connector]] = field(init=False)
    _epochs: dict[str, int] = field(init=False)
    _memos: dict[str, Any] = field(init=False)
    _arrived: int = field(init=False, default=0)
    _newest: dict[str, Increment] = field(init=False, default_factory=dict)
    _log: IntentionLog = field(init=False)

    def __post_init__(self) -> None:
        stages = self.dataflow.stages
        leaders = choose_leaders(self.dataflow) if self.fused else tuple(stages)
        self._units = physical_stages(self.dataflow, leaders)
        self._connectors = {
            name: {input_: Connector(input_) for input_ in unit.leader.wiring}
            for name, unit in self._units.items()
        }
        self._epochs = dict.fromkeys(self._units, 0)
        self._memos = dict.fromkeys(self._units)
        self._waiting = {name: [] for name in self._units}
        self._log = IntentionLog(str(self.folder), LocalFiles())
        self.engine.tables.create_tables(
            str(self.folder), self.dataflow.name, list(stages.values())
        )

    def offer(self, source: str, arrival: Arrival) -> None:
        """Make a file the next increment of a source."""
        path = f"{source_folder(source)}/{flow_file(self._arrived, 0, 'bench')}"
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(arrival.path, target)
        except OSError:  # another file system, or one without links
            shutil.copyfile(arrival.path, target)
        file = DataFile(path, arrival.records, arrival.bytes)
        self._enqueue(Increment(source, self._arrived, self._arrived, (file,)))
        self._arrived += 1

    def run_until_idle(self) -> list[StageRun]:
        """Run stages until none is runnable."""
        done: list[StageRun] = []
        while ran := [run for stage in self._units if (run := self._run(stage))]:
            done.extend(ran)
        return done

    def epoch(self, stage: str) -> int:
        """Return the number of epochs that a stage has run."""
        return self._epochs[stage]

    def keep_house(self, retention: Retention) -> None:
        """Run the garbage collection, as the service does between runs."""
        for node in self.dataflow.stages.values():
            self.engine.garbage.collect(
                str(self.folder), node, queued=self._queued, retention=retention
            )
        stages = {
            name: StagePosition(self._epochs[name], self._memos[name], dict(connectors))
            for name, connectors in self._connectors.items()
        }
        self._log.put_position(Position(self.dataflow.name, stages, tuple(self._newest.values())))
        self._log.trim({name: epoch - RECORDS_KEPT for name, epoch in self._epochs.items()})

    def _queued(self) -> set[str]:
        unpublished = (record for records in self._waiting.values() for record in records)
        return files_named(unpublished) | {
            file.path
            for connectors in self._connectors.values()
            for connector in connectors.values()
            for increment in connector.waiting
            for file in increment.kept
        }

    def _run(self, stage: str) -> StageRun | None:
        started = time.perf_counter()
        node, *fused = self._units[stage].members
        decision = call_runnable(stage, node.runnable, self._connectors[stage], self._memos[stage])
        if not decision.runnable:
            return None
        epoch = self._epochs[stage]
        inputs = {
            name: tuple(self._connectors[stage][name].find(i) for i in indexes)
            for name, indexes in decision.read.items()
        }
        plan = RunPlan(
            str(self.folder),
            self.dataflow.name,
            node,
            epoch,
            f"b{epoch:08x}",
            inputs,
            fused=tuple(fused),
            unpublished=tuple(self._waiting[stage]),
            kept={} if self.engine.preparer.maintains_outputs(epoch) else None,
            own_messages=self.dataflow.own_messages(),
            lookups=looked_up_tables(self.dataflow, str(self.folder), (node, *fused)),
        )
        prepared = self.engine.preparer.prepare(plan)
        ready = time.perf_counter()
        intention = Intention(
            self.dataflow.name,
            stage,
            epoch,
            plan.run,
            time.time_ns() // 1_000_000,
            decision.read,
            decision.remove,
            prepared.outputs,
            prepared.changes,
            memo=decision.memo,
            lookups=prepared.lookups,
        )
        self._log.put(intention)
        recorded = time.perf_counter()
        self._waiting[stage].append(intention)
        self._publish(intention.prepared_ms)
        published = time.perf_counter()
        self._take_over(stage, decision, intention)
        figures = prepared.figures
        inside = sum(figures.get(f"seconds_{step}", 0) for step in ("plan", "job", "assemble"))
        steps = {step: figures.get(f"seconds_{step}", 0.0) for step in ("job", "task", "assemble")}
        steps["plan"] = figures.get("seconds_plan", 0.0) + ready - started - inside
        steps |= {"intention": recorded - ready, "publish": published - recorded}
        return StageRun(stage, steps, figures, intention)

    def _publish(self, now_ms: int) -> None:
        policy = PublishPolicy(self.publish_epochs, SECONDS_MAX)
        publication = due(policy, self._waiting, now_ms=now_ms)
        if publication is not None:
            for stage, records in publication.covers.items():
                self.engine.publisher.publish(
                    str(self.folder), records, timestamp_ms=publication.timestamp_ms
                )
                self._waiting[stage].clear()

    def _take_over(self, stage: str, decision: Decision, intention: Intention) -> None:
        for name, connector in self._connectors[stage].items():
            self._connectors[stage][name] = connector.after(
                tuple(decision.read.get(name, ())), tuple(decision.remove.get(name, ()))
            )
        self._epochs[stage] += 1
        self._memos[stage] = decision.memo
        for increment in intention.outputs.values():
            self._enqueue(increment)

    def _enqueue(self, increment: Increment) -> None:
        self._newest[increment.flow] = increment
        for stage, input_ in self.dataflow.receivers(increment):
            if stage not in self._connectors:  # it runs with the stage that wrote this
                continue
            connectors = self._connectors[stage]
            connectors[input_] = connectors[input_].append(increment)
