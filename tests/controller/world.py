"""A whole service in one thread: real store, real files, an engine that can be steered.

`World` keeps a folder and a database and can be killed and started again; its clock
moves only when told. `FileEngine` copies every record that a stage reads to its
outputs and states: not what translators say, but exactly as durable.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp import Input, Output, State, Translate, TranslateRecords
from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.record_reader import TableVersions
from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.engine.interface.table_publisher import TableRewind, Target
from cbp.engine.run.assembly import empty_outputs
from cbp.engine.storage.checked_parquet import seal
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Crash, Faults
from cbp.engine.storage.files import Files, LocalFiles
from cbp.engine.storage.table_names import flow_table, source_folder, state_table
from cbp.errors import NotFoundError, RunCancelledError
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.explain import PhysicalLimits
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Keyed, Segment, framing_keys, segments
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.retention import Expiry, KeptFlow
from cbp.model.flow.snapshot import TableVersion
from cbp.model.run.intention import Intention, TableChange
from cbp.model.schedule.scheduler import Schedule
from cbp.model.schedule.slots import Places
from controller.loop import (
    DEFAULT_LOOP_LIMITS,
    Arrivals,
    Controller,
    Environment,
    LoopLimits,
    RetryPolicy,
    assemble,
)
from controller.registry import Registry
from controller.store import open_store
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord

Record = dict[str, Any]


class Sum(Translate):
    """Add up numbers per word."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Join(Translate):
    """Keep the last number of either side, and their sum."""

    left = Input("word STRING, n BIGINT", route_by="word")
    right = Input("word STRING, n BIGINT", route_by="word")
    pairs = State("word STRING, l BIGINT, r BIGINT")
    both = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        last = next(iter(group.pairs), None)
        left, right = (last.l, last.r) if last else (0, 0)
        for record in group.left:
            left = record.n
        for record in group.right:
            right = record.n
        out.pairs(word=key.word, l=left, r=right)
        out.both(word=key.word, n=left + right)


class Upper(TranslateRecords):
    """Write words in capitals."""

    words = Input("word STRING, n BIGINT")
    capitals = Output("word STRING, n BIGINT")

    def translate(self, record: Any, out: Any) -> None:
        out.capitals(word=record.word.upper(), n=record.n)


SCHEMA = "word STRING, n BIGINT"
ONE: dict[str, Any] = {
    "name": "one",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {"sum": {"translator": "sum", "inputs": {"items": "a"}}},
}
DIAMOND: dict[str, Any] = {
    "name": "diamond",
    "sources": {"a": {"schema": SCHEMA}, "b": {"schema": SCHEMA}},
    "stages": {
        "left": {"translator": "sum", "inputs": {"items": "a"}, "buckets": 2},
        "right": {"translator": "sum", "inputs": {"items": "b"}, "buckets": 2},
        "join": {
            "translator": "join",
            "inputs": {"left": "left.totals", "right": "right.totals"},
            "buckets": 2,
        },
    },
}
FUSED: dict[str, Any] = {
    "name": "fused",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "upper": {"translator": "upper", "inputs": {"words": "a"}},
        "sum": {"translator": "sum", "inputs": {"items": "upper.capitals"}, "buckets": 2},
        "again": {"translator": "upper", "inputs": {"words": "sum.totals"}},
    },
}


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
        self, folder: str, dataflow: str, node: StageNode, *, epoch: int, run: str, anew: bool
    ) -> Sequence[TableChange]:
        if not anew:
            return []
        tables = (state_table(node.name, spec.name) for spec in node.translator.states)
        return [TableChange(table, drops=("*",)) for table in tables]

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

    def prepare(self, plan: RunPlan) -> PreparedRun:
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

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        raise NotImplementedError

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[Record]:
        paths = [file.path for increment in increments for file in increment.files]
        rows = [row for path in paths for row in _rows(f"{folder}/{path}")]
        return rows[offset : offset + limit]

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
        self, folder: str, stage: str, spec: InputSpec, increment: Increment, memo: Any
    ) -> tuple[list[Segment], Any]:
        assert spec.frame_by is not None
        keyed = []
        for file in increment.files:
            records = [SimpleNamespace(**row) for row in _rows(f"{folder}/{file.path}")]
            keys, memo = framing_keys(records, spec.frame_by, memo, stage=stage, input_=spec.name)
            keyed.append(Keyed.of(file, keys))
        return segments(keyed, ordered=spec.frame_by.memo), memo

    def cancel(self, run: str) -> None:
        self.cancelled.append(run)

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


class ManualClock:
    """A clock that moves when it is told."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Inline(Executor):
    """Runs everything at once, in the caller's thread; a crash comes out of `submit`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Deferred(Executor):
    """Keeps runs under way until the test lets them end."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_next(self) -> None:
        """End the run that was started first."""
        future, work = self.waiting.popleft()
        future.set_result(work())


class Switch:
    """Faults that can be changed while everything that holds them lives on."""

    def __init__(self) -> None:
        self.to: Faults = NO_FAULTS

    def __call__(self, point: str) -> None:
        self.to(point)


class _Forwarded:
    """Arrivals of a world, which a test may set after the world is made; none by default."""

    def __init__(self, world: World) -> None:
        self._world = world

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> None:
        if self._world.arrivals is not None:
            self._world.arrivals.prepare(record, dataflow)

    def recover(self, record: DataflowRecord, dataflow: Dataflow) -> None:
        if self._world.arrivals is not None:
            self._world.arrivals.recover(record, dataflow)


class World:
    """One service on one folder; `restart` is what happens after a kill.

    Args:
        database_url: Of an empty database; a SQLite file in the folder unless told.

    Attributes:
        limits, engine_limits: Those of the loop and the engine, from the next restart on.
        arrivals: Where increments come from; a restart forgets it. `None`: nothing arrives.
        parts: The parts of the controller.
    """

    arrivals: Arrivals | None

    def __init__(
        self,
        root: Path,
        *,
        executor: Executor | None = None,
        parallel_max: int = 2,
        engine: Callable[..., Engine] | None = None,
        database_url: str = "",
        limits: LoopLimits = DEFAULT_LOOP_LIMITS,
        engine_limits: EngineLimits = DEFAULT_LIMITS,
        **more: Any,
    ) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.faults, self.clock = root, Switch(), ManualClock()
        self.tables = str(root / "tables")
        self.files = LocalFiles(self.faults)
        url = database_url or f"sqlite:///{root}/cbp.db"
        self.store = open_store(url, faults=self.faults)
        self.executor, self._parallel_max = executor or Inline(), parallel_max
        self._make_engine, self._more = engine or FileEngine, more
        self.limits, self.engine_limits = limits, engine_limits
        self.translators: dict[str, Any] = {"sum": Sum, "join": Join, "upper": Upper}
        self.restart()

    def restart(self) -> None:
        """Forget everything in memory but the connections."""
        self.engine: Any = self._make_engine(
            files=self.files,
            faults=self.faults,
            cache=str(self.root / "cache"),
            clock_ms=lambda: int(self.clock().timestamp() * 1000),
            limits=self.engine_limits,
        )
        self.arrivals = None
        self.parts = assemble(
            Environment(
                store=self.store,
                engine=self.engine,
                registry=Registry(["cbp"], entry_points=self._entry_points),
                files=self.files,
                clock=self.clock,
                tables_root=self.tables,
                places=Places(self._parallel_max),
                retry=RetryPolicy(3, (1.0, 5.0)),
                executor=self.executor,
                arrivals=_Forwarded(self),
                faults=self.faults,
                limits=self.limits,
                **self._more,
            )
        )
        self.controller = Controller(self.parts)

    def close(self) -> None:
        self.store.close()

    def block_runs(self) -> threading.Event:
        """Let every run wait until one is cancelled; return what is set once one has begun."""
        begun, cancelled = threading.Event(), threading.Event()
        cancel = self.engine.control.cancel

        def wait(plan: RunPlan) -> None:
            begun.set()
            cancelled.wait()

        def cancel_and_go_on(run: str) -> None:
            cancel(run)
            cancelled.set()

        self.engine.on_prepare, self.engine.control.cancel = wait, cancel_and_go_on
        return begun

    def arrive(self, dataflow: str, source: str, *records: tuple[Any, ...]) -> None:
        """Bring one increment, as ingestion does."""
        index = self.store.next_index(dataflow, source)
        path = f"{source_folder(source)}/{index:012d}-00000-test.parquet"
        record = self.store.dataflow(dataflow)
        target = Path(record.folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        schema = self.controller.dataflow(dataflow).sources[source].schema
        rows = [dict(zip(schema.names, values, strict=True)) for values in records]
        pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(schema)), target)
        files = (DataFile(path, len(rows), seal(str(target))),)
        self.enqueue(dataflow, Increment(source, index, index, files))

    def enqueue(self, dataflow: str, increment: Increment) -> None:
        """Store an increment whose files are there already."""
        claim = ClaimRecord(
            id=uuid.uuid4().hex,
            dataflow=dataflow,
            source=increment.flow,
            sequence=0,
            path="x",
            bytes=0,
            status="claiming",
            created_at=self.clock(),
        )
        claim = self.store.add_claim(claim)
        settled = replace(claim, status="accepted", index=increment.index, sha256=claim.id)
        self.store.accept(settled, IncrementRecord(dataflow, increment, self.clock()))

    def ticks(self, most: int = 50) -> Schedule:
        """Tick until nothing starts; the clock stands still."""
        for _ in range(most):
            schedule = self.controller.tick()
            if not schedule.starts and not self.parts.in_flight.busy():
                return schedule
        raise AssertionError(f"still busy after {most} ticks: {schedule}")

    def picture(self) -> dict[str, Any]:
        """Return everything that must not depend on crashes: queues, epochs, tables."""
        seen: dict[str, Any] = {}
        for record in self.store.dataflows():
            stages = self.store.stages(record.name)
            seen[f"{record.name} epochs"] = {stage.stage: stage.epoch for stage in stages}
            seen[f"{record.name} queues"] = {
                stage: {i: [q.increment.name for q in c.queue] for i, c in inputs.items()}
                for stage, inputs in self.store.connectors(record.name).items()
            }
            dataflow = self.controller.dataflow(record.name)
            for node in dataflow.stages.values():
                for spec in node.translator.states:
                    rows = self.engine.records.read_state(record.folder, node, spec.name)
                    seen[f"{record.name} {node.name}.{spec.name}"] = sorted(map(repr, rows))
                for output in node.translator.outputs:
                    flow = f"{node.name}.{output.name}"
                    seen[f"{record.name} {flow}"] = self.flow(record.name, flow)
        return seen

    def flow(self, dataflow: str, flow: str) -> list[Record]:
        """Return every record of a flow."""
        records, _ = self.controller.reading.read_flow(dataflow, flow, None, 10_000)
        return [dict(record) for record in records]

    def _entry_points(self) -> list[Any]:
        cbp = SimpleNamespace(name="cbp")
        return [
            SimpleNamespace(name=n, value=f"tests:{n}", dist=cbp, load=lambda c=c: c)
            for n, c in self.translators.items()
        ]


__all__ = [
    "DIAMOND",
    "FUSED",
    "ONE",
    "Crash",
    "Deferred",
    "FileEngine",
    "Inline",
    "ManualClock",
    "World",
]


def until(condition: Callable[[], Any], *, seconds: float = 60) -> None:
    """Poll; what is waited for happens in another thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def only_stage(world: World, name: str = "one") -> Any:
    """Return the only stage of a dataflow, as the store has it."""
    return world.store.stages(name)[0]


def statuses(world: World) -> list[tuple[str, int, int]]:
    """Return (status, epoch, attempt) of every run, oldest first."""
    runs = reversed(world.store.runs(limit=500).items)
    return [(run.status.value, run.epoch, run.attempt) for run in runs]
