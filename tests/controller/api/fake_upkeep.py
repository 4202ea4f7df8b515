"""House-keeping and scrubs that say what they were asked for, and remove nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cbp.engine.interface.garbage_collector import Dead, Kept, TablePlan
from cbp.model.flow.retention import Expiry, Held
from controller.loop.housekeeping.collector import Garbage, LastCollection
from controller.loop.housekeeping.scrubbing import Scrub
from controller.loop.reading.reach import Reach, SourceReach
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_store import FakeStore

__all__ = ["FakeHousekeeping", "FakeScrubs"]


class FakeScrubs:
    """Has read nothing of any dataflow yet."""

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


class FakeHousekeeping:
    """Finds one dead file, and answers whether it was asked to remove it."""

    def __init__(self, store: FakeStore) -> None:
        self.store, self.collected = store, 0

    def look(self, name: str) -> Garbage:
        self.store.dataflow(name)
        dead = Dead("_runs/x", 100, "written by epoch 1")
        kept = Kept("in the newest version of the table", 3, 900)
        plan = TablePlan(4, 2, (dead,), (kept,))
        stays = Expiry((), "", "waits in a queue")
        gone = Expiry(
            (Held(3, 70, datetime(2026, 1, 1, tzinfo=UTC), ("x",)),),
            "is older than the number of hours that its flow keeps",
            "",
        )
        return Garbage({"state/count.counts": plan}, {"urls": stays}, {"count.totals": gone})

    def reach(self, name: str) -> Reach:
        self.store.dataflow(name)
        return Reach((SourceReach("urls", 0, NOON, 5),), 3)

    def last(self, name: str) -> Any:
        return LastCollection(NOON, "request", 1, 100) if self.collected else None

    def collect(self, name: str) -> Garbage:
        self.collected += 1
        return self.look(name)
