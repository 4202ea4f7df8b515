"""A whole service in one thread: real store, real files, an engine that can be steered.

`World` keeps a folder and a database and can be killed and started again; its clock
moves only when a test moves it.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from cbp import Input, Output, State, Translate, TranslateRecords
from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.storage.checked_parquet import seal
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import source_folder
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.schedule.parallel_runs import Places
from cbp.model.schedule.scheduler import Schedule
from controller.loop import (
    DEFAULT_LOOP_LIMITS,
    Arrivals,
    Controller,
    Environment,
    LoopLimits,
    Parts,
    RetryPolicy,
)
from controller.registry import Registry, TranslatorFiles
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, open_store
from tests.controller.file_engine import FileEngine, Record
from tests.new_database import put_new_database
from tests.planned_faults import Crash
from tests.waiting import until


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


T = TypeVar("T")

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


class SettableClock:
    """A clock that the test moves, backward too, as a machine's can."""

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


class Stopped(Executor):
    """Starts nothing: the service stops, or the process cannot have more threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError


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
        database_url: An empty database; by default a SQLite file in the folder.

    Attributes:
        limits, engine_limits: Those of the loop and the engine, from the next restart on.
        translator_files: Paths of authors' files, from the next restart on.
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
        self.root, self.faults, self.clock = root, Switch(), SettableClock()
        self.tables = str(root / "tables")
        self.files = LocalFiles(self.faults)
        if not database_url:
            put_new_database(root / "cbp.db")
        url = database_url or f"sqlite:///{root}/cbp.db"
        self.store = open_store(url, faults=self.faults)
        self.executor, self._parallel_max = executor or Inline(), parallel_max
        self._make_engine, self._more = engine or FileEngine, more
        self.limits, self.engine_limits = limits, engine_limits
        self.translator_files: list[Path] = []
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
        self.parts = Parts(
            Environment(
                store=self.store,
                engine=self.engine,
                registry=Registry(
                    ["cbp"],
                    entry_points=self._entry_points,
                    files=TranslatorFiles(self.translator_files),
                ),
                files=self.files,
                clock=self.clock,
                tables_root=self.tables,
                places=Places(self._parallel_max),
                retry=RetryPolicy(3, (1.0, 5.0)),
                executor=self.executor,
                arrivals=_Forwarded(self),
                faults=self.faults,
                limits=replace(self.limits, settle_seconds=0.002),
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
        self.store.accept_all([(settled, IncrementRecord(dataflow, increment, self.clock()))])

    def ticks(self, most: int = 50) -> Schedule:
        """Tick until nothing starts; the clock does not move."""
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
    "Inline",
    "SettableClock",
    "Stopped",
    "World",
    "until",
]


def only_stage(world: World, name: str = "one") -> Any:
    """Return the only stage of a dataflow, as the store has it."""
    return world.store.stages(name)[0]


def statuses(world: World) -> list[tuple[str, int, int]]:
    """Return (status, epoch, attempt) of every run, oldest first."""
    runs = reversed(world.store.runs(limit=500).items)
    return [(run.status.value, run.epoch, run.attempt) for run in runs]
