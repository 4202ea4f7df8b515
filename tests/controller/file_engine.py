"""An engine of plain files: it copies every record that a stage reads to its outputs and states.

The tables do not hold what translators say, but they are exactly as durable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.readers import TableVersions
from cbp.engine.interface.runs import PreparedRun, ProcessStack, RunPlan, enter_unseen
from cbp.engine.interface.tables import TableRewind, Target
from cbp.engine.read.increments import column_schema
from cbp.engine.run.assembly import empty_outputs
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import NotFoundError, RunCancelledError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Keyed, Segment, framing_keys, segments
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.retention import Expiry, KeptFlow
from cbp.model.flow.schema import Schema
from cbp.model.flow.skew import BucketSize
from cbp.model.flow.snapshot import TableVersion
from cbp.model.plan.explain import PhysicalLimits
from cbp.model.run.intention import Intention, TableChange

__all__ = ["FileEngine", "Record"]

Record = dict[str, Any]


class FileEngine:
    """An engine whose tables are folders of JSON files; see the module header.

    Attributes:
        on_check, on_prepare, on_publish: Called first; what they raise is the engine's failure.
        without_slots: Runs that have work and no slot.
    """

    def __init__(self, *, files: Files, faults: Faults = NO_FAULTS, **_unused: Any) -> None:
        self._files, self._fault = files, faults
        self.on_check: Callable[[str], None] = lambda dataflow: None
        self.on_prepare: Callable[[RunPlan], None] = lambda plan: None
        self.on_publish: Callable[[Intention], None] = lambda intention: None
        self.prepared: list[tuple[str, int]] = []
        self.cancelled: list[str] = []
        self.without_slots: set[str] = set()
        # One object for all roles: what a test puts in place of a method holds for each of them.
        self.preparer = self.control = self.publisher = self.tables = self
        self.increments = self.records = self.history = self.garbage = self.verification = self

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        self.on_check(dataflow)

    def limits(self) -> PhysicalLimits:
        return PhysicalLimits(slots=2)

    def maintains_outputs(self, epoch: int) -> bool:
        return False

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> Mapping[str, TableVersion]:
        raise NotImplementedError

    def beside(self) -> Engine:
        raise NotImplementedError

    def take_over(
        self, folder: str, tables: Mapping[str, int], records: Sequence[Intention], into: str
    ) -> tuple[TableChange, ...]:
        raise NotImplementedError

    def contents(
        self, folder: str, node: StageNode, comparison: Any, *, version: int | None = None
    ) -> Any:
        raise NotImplementedError

    def shown_by(self, folder: str, node: StageNode, state: str, version: int) -> int | None:
        raise NotImplementedError

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> Mapping[str, TableVersion]:
        names = {table: self._files.list_names(f"{folder}/{table}/log") for table in _tables(node)}
        return {t: TableVersion(epoch, epoch, 0) for t, log in names.items() if len(log) > epoch}

    def create_tables(
        self,
        folder: str,
        dataflow: str,
        nodes: Sequence[StageNode],
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        for node in nodes:
            for table in _tables(node):
                self._files.make_dirs(f"{folder}/{table}/log")

    def rewrite(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        *,
        epoch: int,
        run: str,
        anew: bool,
        filled: Mapping[str, int] = MappingProxyType({}),
    ) -> Sequence[TableChange]:
        if not anew:
            return []
        tables = (state_table(node.name, spec.name) for spec in node.translator.states)
        return [TableChange(table, drops=("*",)) for table in tables]

    def show_built(
        self, folder: str, dataflow: str, node: StageNode, *, built: str, epoch: int, run: str
    ) -> Sequence[TableChange]:
        raise NotImplementedError

    def show_again(
        self, folder: str, node: StageNode, versions: Mapping[str, int], *, epoch: int
    ) -> Sequence[TableChange]:
        raise NotImplementedError

    def alter(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        changes: Sequence[TableChange],
        *,
        epoch: int,
        version: int,
        timestamp_ms: int,
    ) -> None:
        for change in changes:
            log = f"{folder}/{change.table}/log"
            for name in self._files.list_names(log):
                self._files.remove(f"{log}/{name}")

    def prepare(self, plan: RunPlan, enter: Callable[[str], object] = enter_unseen) -> PreparedRun:
        enter("job")
        self.on_prepare(plan)
        self._fault("job.before")
        if plan.run in self.cancelled:
            raise RunCancelledError(plan.run)
        self.prepared.append((plan.node.name, plan.epoch))
        read = [increment for increments in plan.inputs.values() for increment in increments]
        rows = sorted(self.read(plan.folder, read, offset=0, limit=10**9), key=repr)
        nodes = (plan.node, *plan.fused)
        files = {t: self._write(plan, t, rows) for node in nodes for t in _tables(node)}
        outputs = {
            key: replace(empty, files=(files[flow_table(*empty.flow.split("."))],))
            for key, empty in empty_outputs(plan).items()
        }
        changes = tuple(TableChange(t, adds=({"path": f.path},)) for t, f in files.items())
        self._fault("job.after")
        return PreparedRun(outputs, changes, {"records_in": len(rows)})

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        for intention in intentions:
            self.on_publish(intention)
        for intention in intentions:
            for change in intention.changes:
                data = json.dumps([add["path"] for add in change.adds]).encode()
                path = f"{folder}/{change.table}/log/{intention.epoch:020d}.json"
                self._files.put_if_absent(path, data)
        return {change.table: intentions[-1].epoch for change in intentions[-1].changes}

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[Record]:
        rows = self.read_state(folder, node, state)
        return [row for row in rows if all(row[name] == value for name, value in key.items())]

    def state_size(self, folder: str, node: StageNode, state: str) -> Mapping[int, BucketSize]:
        return {}

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        raise NotImplementedError

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[Record]:
        paths = [file.path for increment in increments for file in increment.files]
        rows = [row for path in paths for row in _rows(f"{folder}/{path}")]
        return rows[offset : offset + limit]

    def batches(
        self, folder: str, increment: Increment, schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        rows = self.read(folder, [increment], offset=0, limit=10**9)
        yield from pa.Table.from_pylist(rows, schema=column_schema(schema)).to_batches()

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        raise NotFoundError(kind="increment", name=f"{flow}/{index}")

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        return 0

    def expired(self, folder: str, kept: Mapping[str, KeptFlow]) -> Mapping[str, Expiry]:
        return {}

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        return list(increments)

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[Record]:
        yield from self.published(folder, state_table(node.name, state))

    def published(self, folder: str, table: str) -> list[Record]:
        """Return what a reader of a table sees."""
        log = f"{folder}/{table}/log"
        entries = [json.loads(self._files.read(f"{log}/{n}")) for n in self._files.list_names(log)]
        return [row for paths in entries for path in paths for row in _rows(f"{folder}/{path}")]

    def collect(
        self, folder: str, node: StageNode, *, queued: Any, retention: Any, dry_run: bool = False
    ) -> Mapping[str, Any]:
        return {}

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Any
    ) -> tuple[PreparedRun, str]:
        raise NotImplementedError

    def give_back(self, plan: RunPlan, enter: Any = None) -> PreparedRun:
        raise NotImplementedError

    def set_aside(self, folder: str, node: StageNode) -> list[Record]:
        return []

    def rewind(
        self,
        folder: str,
        node: StageNode,
        target: Target,
        *,
        records: Any,
        dry_run: bool = False,
    ) -> Mapping[str, TableRewind]:
        del records
        for table in _tables(node):
            log = f"{folder}/{table}/log"
            for name in self._files.list_names(log):
                if not dry_run and int(name.removesuffix(".json")) > target.epoch:
                    self._files.remove(f"{log}/{name}")
        return {}

    def frame(
        self,
        folder: str,
        stage: str,
        spec: InputSpec,
        increment: Increment,
        memo: Any,
        set_aside_max: int | None = None,
    ) -> tuple[list[Segment], Any]:
        assert spec.frame_by is not None
        keyed = []
        for file in increment.files:
            records = [SimpleNamespace(**row) for row in _rows(f"{folder}/{file.path}")]
            keys, memo = framing_keys(
                records,
                spec.frame_by,
                memo,
                stage=stage,
                input_=spec.name,
                refuses=set_aside_max is not None,
            )
            keyed.append(Keyed.of(file, keys))
        return segments(keyed, ordered=spec.frame_by.memo), memo

    def warm(self) -> None:
        pass

    def waits_for(self) -> str:
        return ""

    def cancel(self, run: str) -> None:
        self.cancelled.append(run)

    def stacks(self, run: str) -> Sequence[ProcessStack]:
        del run
        return ()

    def starved(self, runs: Collection[str]) -> Collection[str]:
        return [run for run in runs if run in self.without_slots]

    def forget(self, folder: str) -> None:
        pass

    def close(self) -> None:
        pass

    def _write(self, plan: RunPlan, table: str, rows: list[Record]) -> DataFile:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path = f"{table}/{plan.run}.jsonl"
        self._files.write_durable(f"{plan.folder}/{path}", data)
        return DataFile(path, len(rows), len(data))


def _tables(node: StageNode) -> list[str]:
    states = [state_table(node.name, spec.name) for spec in node.translator.states]
    return states + [flow_table(node.name, spec.name) for spec in node.translator.outputs]


def _rows(path: str) -> list[Record]:
    if path.endswith(".parquet"):
        rows: list[Record] = pq.ParquetFile(path).read().to_pylist()
        return rows
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
