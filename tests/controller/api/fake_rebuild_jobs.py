"""Rebuild jobs that know one rebuild of each dataflow, which is ready at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.version.version_change import NO_CHOICE, Choice
from controller.loop.operations.version_switch import Changed
from controller.loop.rebuild.build_beside import TableDifference
from controller.loop.rebuild.build_in_progress import RebuildJob, Status
from controller.store.base import DataflowRecord
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_store import FakeStore

__all__ = ["FakeRebuildJobs"]

_TABLES = (
    TableDifference("state/count.counts", 1_000_000, 1_000_001, 2, 1, 30),
    TableDifference("flows/count.totals", 7, 8, because="its columns differ"),
)


class FakeRebuildJobs:
    """Does nothing, and says that it has.

    Args:
        store: Knows the dataflows.
        change: Plans a version.

    Attributes:
        under_way: Whether the rebuild is listed.
        ended: Those that are listed behind it.
        swaps: Goes back.
    """

    def __init__(self, store: FakeStore, change: Callable[..., Changed]) -> None:
        self._store, self._change, self.under_way = store, change, False
        self.ended = list[RebuildJob]()
        self.swaps = SimpleNamespace(back=self._back, back_until=self._back_until)

    def plan(
        self, document: Mapping[str, Any], dataflow: Dataflow, choice: Choice | None = None
    ) -> Changed:
        return self._change(document, choice=choice or NO_CHOICE, dry_run=True)

    def start(
        self, document: Mapping[str, Any], dataflow: Dataflow, *, swaps: bool = False, **chosen: Any
    ) -> RebuildJob:
        self._store.dataflow(dataflow.name)
        if swaps:
            return self.show(dataflow.name, "n1")
        return replace(self.show(dataflow.name, "n0"), status="building", tables=())

    def start_present(self, name: str, **_chosen: Any) -> RebuildJob:
        return replace(self.show(name, "n0"), status="building", tables=())

    def show(self, name: str, id_: str) -> RebuildJob:
        self._store.dataflow(name)
        status: Status = "swapped" if id_ == "n1" else "ready"
        return RebuildJob(
            id=id_, dataflow=name, version=2, began_at=NOON, status=status, tables=_TABLES
        )

    def all(self, name: str) -> list[RebuildJob]:
        return [*([self.show(name, "n0")] if self.under_way else []), *self.ended]

    def swap(self, name: str, id_: str, *, by: str = "") -> RebuildJob:
        return replace(self.show(name, id_), status="swapped", ended_by=by)

    def cancel(self, name: str, id_: str, *, by: str = "") -> RebuildJob:
        return replace(self.show(name, id_), status="cancelled", ended_by=by)

    def _back(self, name: str) -> SimpleNamespace:
        self._store.dataflow(name)
        return SimpleNamespace(version=3)

    def _back_until(self, record: DataflowRecord) -> datetime | None:
        return NOON if self.under_way else None
