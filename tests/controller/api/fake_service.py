"""A service without engine and database, for tests of the API and of the client."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from cbp.model.flow.connector import Connector
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.intention import RunStatus
from controller.access.access import Access
from controller.api import create_api
from controller.settings import Settings
from controller.store.base import (
    ClaimRecord,
    IncrementRecord,
    RunRecord,
)
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.api.clicks import DOCUMENT, NOON
from tests.controller.api.fake_controller import FakeController
from tests.controller.api.fake_drop_folder import FakeDropFolder
from tests.controller.api.fake_store import FakeStore
from tests.controller.rest import lead_alone
from tests.simulated_time import ManualClock

__all__ = ["Service"]


class Service:
    """An API over the fakes, and what it was made of."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.settings = Settings(root=root, token=TOKEN, **settings)
        self.store = FakeStore()
        self.controller = FakeController(self.store, root)
        self.drop_folder = FakeDropFolder()
        self.clock = ManualClock(NOON)
        self.access = Access(
            self.settings,
            self.store,  # type: ignore[arg-type]
            now=self.clock.now,
            monotonic=self.clock.seconds,
        )
        self.app = create_api(
            controller=self.controller,  # type: ignore[arg-type]
            store=self.store,  # type: ignore[arg-type]  # the part that the API reads
            drop_folder=self.drop_folder,  # type: ignore[arg-type]
            settings=self.settings,
            access=self.access,
            standing=lead_alone,
            now=self.clock.now,
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
            IncrementRecord("clicks", second, NOON + timedelta(seconds=5), {"files": ["b.jsonl"]}),
            IncrementRecord("clicks", first, NOON, {"files": ["a.jsonl"]}),
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
