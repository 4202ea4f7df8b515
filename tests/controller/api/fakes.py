"""A service without engine and database, for tests of the API and of the client.

`FakeController` compiles documents with the real registry and SDK; what would need
an engine is canned. `AppTransport` lets a synchronous client talk to an ASGI app.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import httpx
from fastapi import FastAPI

from cbp.engine.interface.garbage_collector import Dead, Kept, TablePlan
from cbp.errors import AlreadyExistsError, NotFoundError, OperatingError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.shape import shape_of
from cbp.model.flow.connector import Connector
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.position import Position
from cbp.model.flow.punctuation import Punctuation
from cbp.model.flow.retention import Expiry, Held
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.waiting import Wait
from cbp.model.version.succession import Succession
from cbp.model.version.version_change import NO_CHOICE, Choice, compare_versions
from cbp.sdk import Input, Output, State, Translate
from controller.api import create_api
from controller.loop.housekeeping.collector import Garbage
from controller.loop.housekeeping.scrubs import Scrub
from controller.loop.operations.version_change import Changed
from controller.loop.reading.reader import AsOf
from controller.loop.runs.isolation import Trouble
from controller.loop.runs.lane_counts import LaneCount
from controller.registry import Registry
from controller.settings import Settings
from controller.store.base import (
    ClaimRecord,
    DataflowRecord,
    IncrementRecord,
    Judged,
    Page,
    RunRecord,
    StageRecord,
    Uploaded,
)
from tests.controller.api.fake_amendments import FakeAmendments
from tests.controller.rest import lead_alone

TOKEN = "the-token-of-the-tests"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)

DOCUMENT: dict[str, Any] = {
    "name": "clicks",
    "sources": {"urls": {"schema": "url STRING, site BIGINT"}},
    "stages": {
        "count": {
            "translator": "url_count",
            "inputs": {"urls": "urls"},
            "buckets": 2,
            "keep": {"totals": {"hours": 72}},
        }
    },
}


class UrlCount(Translate):
    """Count how often each URL was seen."""

    urls = Input("url STRING, site BIGINT", route_by="url, site")
    counts = State("url STRING, site BIGINT, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Is never called here."""


class _Distribution:
    name = "cbp"


def registry(translator: type[Translate] = UrlCount) -> Registry:
    """Return a registry that knows one translator, under the name `url_count`."""
    target = f"{translator.__module__}:{translator.__qualname__}"
    point = EntryPoint("url_count", target, "cbp.translators")
    vars(point).update(dist=_Distribution())
    return Registry(["cbp"], entry_points=lambda: [point])


class FakeStore:
    """The part of the store that the API reads, in memory."""

    def __init__(self) -> None:
        self.records: dict[str, DataflowRecord] = {}
        self.stage_records: list[StageRecord] = []
        self.queues: dict[str, dict[str, Connector]] = {}
        self.increment_records: list[IncrementRecord] = []
        self.claim_records: list[ClaimRecord] = []
        self.run_records: list[RunRecord] = []
        self.punctuation_records: list[Punctuation] = []
        self.broken = False

    def ping(self) -> None:
        if self.broken:
            message = "the database does not answer"
            raise OperatingError(message)

    def dataflows(self) -> list[DataflowRecord]:
        return [self.records[name] for name in sorted(self.records)]

    def dataflow(self, name: str) -> DataflowRecord:
        if name not in self.records:
            raise NotFoundError(kind="dataflow", name=name)
        return self.records[name]

    def stages(self, dataflow: str) -> list[StageRecord]:
        return [stage for stage in self.stage_records if stage.dataflow == dataflow]

    def connectors(self, dataflow: str) -> dict[str, dict[str, Connector]]:
        return self.queues if dataflow in self.records else {}

    def intended_runs(self) -> list[RunRecord]:
        return [run for run in self.run_records if run.status is RunStatus.INTENDED]

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        for record in self.increment_records:
            at = record.dataflow, record.increment.flow, record.increment.index
            if at == (dataflow, flow, index):
                return record
        raise NotFoundError(kind="increment", name=f"{flow}/{index}")

    def increments(
        self,
        dataflow: str,
        flow: str | None = None,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[IncrementRecord]:
        found = [r for r in self.increment_records if flow in (None, r.increment.flow)]
        return _page(found, cursor, limit)

    def claims(
        self,
        dataflow: str,
        source: str | None = None,
        *,
        status: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ClaimRecord]:
        found = [
            claim
            for claim in self.claim_records
            if source in (None, claim.source) and status in (None, claim.status)
        ]
        return _page(found, cursor, limit)

    def runs(
        self,
        dataflow: str | None = None,
        *,
        stage: str | None = None,
        status: RunStatus | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[RunRecord]:
        found = [
            run
            for run in self.run_records
            if dataflow in (None, run.dataflow)
            and stage in (None, run.stage)
            and status in (None, run.status)
        ]
        return _page(found, cursor, limit)

    def punctuations(
        self, dataflow: str, *, cursor: str | None = None, limit: int = 100
    ) -> Page[Punctuation]:
        return _page(self.punctuation_records, cursor, limit)

    def run(self, run_id: str) -> RunRecord:
        for run in self.run_records:
            if run.id == run_id:
                return run
        raise NotFoundError(kind="run", name=run_id)


def _page(found: Sequence[Any], cursor: str | None, limit: int) -> Page[Any]:
    begin = int(cursor or 0)
    end = begin + limit
    return Page(found[begin:end], str(end) if end < len(found) else None)


class NoExplaining:
    """Has nothing to tell of."""

    def plan(self, name: str) -> Any:
        raise NotFoundError(kind="dataflow", name=name)

    def left(self, name: str) -> Mapping[str, str]:
        return {}

    def run(self, run_id: str) -> Any:
        raise NotFoundError(kind="run", name=run_id)


class NoSnapshots:
    """Has none."""

    def take(
        self,
        name: str,
        *,
        epoch: int | None = None,
        stage: str | None = None,
        at_ms: int | None = None,
    ) -> Any:
        raise NotFoundError(kind="dataflow", name=name)


class NoVerifications:
    """Knows none."""

    def start(self, name: str, request: Any) -> Any:
        raise NotFoundError(kind="dataflow", name=name)

    def show(self, id_: str) -> Any:
        raise NotFoundError(kind="verification", name=id_)

    def all(self, name: str) -> Any:
        raise NotFoundError(kind="dataflow", name=name)

    def cancel(self, id_: str) -> Any:
        raise NotFoundError(kind="verification", name=id_)


class FakeScrubs:
    """Of every dataflow nothing was read yet."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store

    def start(self, name: str) -> Scrub:
        self.store.dataflow(name)
        return Scrub(name, "running", "request")

    def show(self, name: str) -> Scrub:
        self.store.dataflow(name)
        return self.last(name)

    def last(self, name: str) -> Scrub:
        return Scrub(name, "never", "idle work")


class FakeReading:
    """Answers look-ups and pages from canned records."""

    def __init__(self) -> None:
        self.state: list[dict[str, Any]] = []
        self.flow: list[dict[str, Any]] = []
        self.asked: list[tuple[Any, ...]] = []

    def look_up(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        as_of: AsOf | None = None,
    ) -> list[dict[str, Any]]:
        self.asked.append(("look_up", dataflow, stage, state, dict(key), as_of))
        return [row for row in self.state if key.items() <= row.items()]

    def page_state(
        self,
        dataflow: str,
        stage: str,
        state: str,
        cursor: str | None,
        limit: int,
        as_of: AsOf | None = None,
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        self.asked.append(("page_state", dataflow, stage, state, as_of))
        page = _page(self.state, cursor, limit)
        return page.items, page.cursor

    def read_flow(
        self, dataflow: str, flow: str, cursor: str | None, limit: int, as_of: AsOf | None = None
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        self.asked.append(("read_flow", dataflow, flow, as_of))
        page = _page(self.flow, cursor, limit)
        return page.items, page.cursor


class FakeController:
    """Registers into the store."""

    def __init__(self, store: FakeStore) -> None:
        self.registry, self.verifications = registry(), NoVerifications()
        self.explaining, self.snapshots = NoExplaining(), NoSnapshots()
        self.store = store
        self.reading = FakeReading()
        self.asked: list[tuple[Any, ...]] = []
        self.amendments = FakeAmendments(store)
        self.housekeeping, self.scrubs = FakeHousekeeping(store), FakeScrubs(store)
        self.problem = ""
        self.lane_counts = (
            LaneCount("clicks", "resident", runs=3, seconds=0.5),
            LaneCount("deleted", "spark", runs=1, seconds=2.0),
        )
        self.fails_with: Exception | None = None
        self.beside: tuple[str, ...] = ()
        self.in_trouble: list[Trouble] = []
        self.reasons: dict[str, str] = {"count": "waits for an increment on urls"}

    def register(
        self, document: Mapping[str, Any], duplicates: Iterable[str] = ()
    ) -> DataflowRecord:
        if self.fails_with is not None:
            raise self.fails_with
        dataflow = self.validate(document, duplicates)
        if dataflow.name in self.store.records:
            raise AlreadyExistsError(kind="dataflow", name=dataflow.name)
        record = DataflowRecord(dataflow.name, 1, document, "/tables/clicks", "running", NOON)
        self.store.records[record.name] = record
        for stage in dataflow.stages.values():
            self.store.stage_records.append(StageRecord(record.name, stage.name, 0, NOON))
            self.store.queues[stage.name] = {name: Connector(name) for name in stage.wiring}
        return record

    def change(
        self,
        document: Mapping[str, Any],
        duplicates: Iterable[str] = (),
        *,
        choice: Choice = NO_CHOICE,
        expected_version: int | None = None,
        dry_run: bool = False,
    ) -> Changed:
        dataflow = self.validate(document, duplicates)
        record = self.store.dataflow(dataflow.name)
        self.asked.append(("change", choice, expected_version, dry_run))
        before = shape_of(self.dataflow(record.name))
        plan = compare_versions(before, shape_of(dataflow), choice)
        position = Position(record.name, {}, ())
        return Changed(
            record.name, 2, plan, Succession(position, (), (), ()), plan.changed, not dry_run
        )

    def validate(self, document: Mapping[str, Any], duplicates: Iterable[str] = ()) -> Dataflow:
        return self.registry.compile(document, duplicates)

    def dataflow(self, name: str) -> Dataflow:
        return self.registry.compile(self.store.dataflow(name).document)

    def troubles(self, name: str | None = None) -> list[Trouble]:
        return [trouble for trouble in self.in_trouble if name in (None, trouble.dataflow)]

    def pause(self, name: str) -> None:
        self.store.records[name] = replace(self.store.dataflow(name), desired="paused")

    def resume(self, name: str) -> None:
        self.store.records[name] = replace(self.store.dataflow(name), desired="running")

    def pause_stage(self, dataflow: str, stage: str) -> None:
        if all(record.stage != stage for record in self.store.stages(dataflow)):
            raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
        self.asked.append(("pause", dataflow, stage))

    def retry(self, dataflow: str, stage: str) -> None:
        if all(record.stage != stage for record in self.store.stages(dataflow)):
            raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
        self.asked.append(("retry", dataflow, stage))

    def delete(self, name: str, purge: bool = False) -> None:
        self.asked.append(("delete", name, purge))
        del self.store.records[name]

    def members(self, name: str) -> Mapping[str, tuple[str, ...]]:
        return {stage: (stage, *self.beside) for stage in self.dataflow(name).stages}

    def waiting(self, name: str) -> Mapping[str, str]:
        return self.reasons

    def waits(self, name: str) -> Mapping[str, Wait]:
        return {stage: Wait("input", words, NOON) for stage, words in self.reasons.items()}

    def cancel(self, run: str) -> None:
        self.asked.append(("cancel", run))

    def close(self, dataflow: str, flow: str, *, key: str | None = None) -> Punctuation:
        if self.fails_with is not None:
            raise self.fails_with
        number = len(self.store.punctuation_records)
        made = Punctuation(number, flow, 2, "request", f"request/{key or number}", 0)
        for known in self.store.punctuation_records:
            if known.key == made.key:
                return known
        self.store.punctuation_records.insert(0, made)
        return made

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        return [f"count.{flow}"]


class FakeHousekeeping:
    """Finds one dead file, and tells whether it was asked to remove it."""

    def __init__(self, store: FakeStore) -> None:
        self.store, self.collected = store, 0

    def look(self, name: str) -> Garbage:
        self.store.dataflow(name)
        dead = Dead("_runs/x", 100, "written by epoch 1")
        kept = Kept("shown by the newest version", 3, 900)
        plan = TablePlan(4, 2, (dead,), (kept,))
        stays = Expiry((), "", "waits in a queue")
        gone = Expiry(
            (Held(3, 70, datetime(2026, 1, 1, tzinfo=UTC), ("x",)),), "is older than it is kept", ""
        )
        return Garbage({"state/count.counts": plan}, {"urls": stays}, {"count.totals": gone})

    def collect(self, name: str) -> Garbage:
        self.collected += 1
        return self.look(name)


LYING: dict[str, Any] = {
    "name": "urls",
    "folder": "/drop/clicks/urls/incoming",
    "waiting": 2,
    "waiting_bytes": 20,
    "oldest_at": None,
    "unclaimed": 1,
    "oldest_unclaimed": [{"name": "a\nb\udcff", "why": "a FIFO", "since": None}],
    "gone": [
        {"name": "b\nc", "claim": "c1", "since": "2026-01-01T12:00:00+00:00", "lost": True},
    ],
    "warning": "links lie there",
    "trouble": {
        "error": {"error_code": "source_failed", "message": "look: the pass failed"},
        "since": "2026-01-01T12:00:00+00:00",
        "tries": 3,
        "retry_at": "2026-01-01T12:00:30+00:00",
    },
}


class FakeDropFolder:
    """Keeps what was uploaded, if it arrived as a whole."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.judged = Judged("accepted")
        self.cleaned: list[bool] = []
        self.lying: list[dict[str, Any]] = [LYING]
        self.trouble: list[str] = []

    def troubled(self, dataflow: str) -> list[str]:
        return self.trouble

    def look(self, record: DataflowRecord, dataflow: Dataflow) -> list[dict[str, Any]]:
        return self.lying

    def clean(
        self, record: DataflowRecord, dataflow: Dataflow, *, dry_run: bool = False
    ) -> dict[str, Expiry]:
        self.cleaned.append(not dry_run)
        old = Held(0, 50, record.created_at, ("x",))
        return {"urls": Expiry((old,), "is older than it is kept", "")}

    def upload(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO,
        key: str = "",
    ) -> Uploaded:
        content = b""
        while chunk := stream.read(1000):
            content += chunk
        self.files[name] = content
        claim = ClaimRecord("c1", record.name, source, 0, name, len(content), "claimed", NOON)
        return Uploaded(claim)

    def foresee(
        self, record: DataflowRecord, dataflow: Dataflow, source: str, name: str, sha256: str
    ) -> Judged:
        return self.judged


class Service:
    """An API over the fakes, and what it was made of."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.settings = Settings(root=root, token=TOKEN, **settings)
        self.store = FakeStore()
        self.controller = FakeController(self.store)
        self.drop_folder = FakeDropFolder()
        self.app = create_api(
            controller=self.controller,  # type: ignore[arg-type]
            store=self.store,  # type: ignore[arg-type]  # the part that the API reads
            drop_folder=self.drop_folder,  # type: ignore[arg-type]
            settings=self.settings,
            standing=lead_alone,
        )

    def client(self, token: str | None = TOKEN) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            transport=AppTransport(self.app), base_url=self.settings.url, headers=headers
        )

    def fill(self) -> None:
        """Register the document, let two increments wait, one run fail and one commit."""
        self.controller.register(DOCUMENT)
        first = _increment(0, records=3)
        second = _increment(1, records=4)
        self.store.queues["count"]["urls"] = Connector("urls").append(first).append(second)
        self.store.increment_records = [
            IncrementRecord("clicks", second, NOON + timedelta(seconds=5), {"paths": ["b.jsonl"]}),
            IncrementRecord("clicks", first, NOON, {"paths": ["a.jsonl"]}),
        ]
        reason = {"code": "type_wrong", "message": "no number", "file": "c.jsonl", "line": 7}
        self.store.claim_records = [
            ClaimRecord(
                "c3", "clicks", "urls", 2, "c.jsonl", 9, "quarantined", NOON, reason=reason
            ),
            ClaimRecord("c2", "clicks", "urls", 1, "b.jsonl", 9, "accepted", NOON, index=1),
        ]
        error = {"error_code": "author_code_failed", "message": "boom", "details": {}}
        self.store.run_records = [
            _run("r3", 1, RunStatus.INTENDED),
            _run("r2", 1, RunStatus.FAILED, error=error),
            _run("r1", 0, RunStatus.COMMITTED, figures={"records_in": 3.0, "groups": 2.0}),
        ]
        self.controller.reading.state = [{"url": "a", "site": 7, "n": 3}]
        self.controller.reading.flow = [{"url": f"u{i}", "n": i} for i in range(5)]


def _increment(index: int, *, records: int) -> Increment:
    file = DataFile(f"sources/urls/{index}.parquet", records, 100)
    return Increment("urls", index, index, (file,))


def _run(id_: str, epoch: int, status: RunStatus, **more: Any) -> RunRecord:
    ended = None if status is RunStatus.INTENDED else NOON + timedelta(seconds=2)
    read = {"urls": (epoch,)}
    return RunRecord(
        id_, "clicks", "count", epoch, 1, status, read, read, NOON, finished_at=ended, **more
    )


class AppTransport(httpx.BaseTransport):
    """Lets a synchronous client call an ASGI application in this process."""

    def __init__(self, app: FastAPI) -> None:
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return anyio.run(self._handle, request)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        # A body whose length the client did not announce must arrive unannounced here too.
        announced = "content-length" in request.headers
        content = body if announced or not body else _in_two(body)
        sent = httpx.Request(
            request.method, request.url, headers=request.headers.raw, content=content
        )
        response = await self._inner.handle_async_request(sent)
        answer = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=answer)


async def _in_two(body: bytes) -> AsyncIterator[bytes]:
    yield body[:-1]
    yield body[-1:]
