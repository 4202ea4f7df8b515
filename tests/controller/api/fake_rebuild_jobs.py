"""Rebuild jobs that know one rebuild of each dataflow, which is ready at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from cbp.model.dataflow.dataflow import Dataflow
from controller.loop.beside.build_beside import TableDifference
from controller.loop.beside.rebuild_job import RebuildJob
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

    Attributes:
        under_way: Whether the rebuild is listed.
    """

    def __init__(self, store: FakeStore) -> None:
        self._store, self.under_way = store, False

    def start(self, document: Mapping[str, Any], dataflow: Dataflow) -> RebuildJob:
        self._store.dataflow(dataflow.name)
        return replace(self.show(dataflow.name, "n0"), status="building", tables=())

    def show(self, name: str, id_: str) -> RebuildJob:
        self._store.dataflow(name)
        return RebuildJob(
            id=id_, dataflow=name, version=2, began_at=NOON, status="ready", tables=_TABLES
        )

    def all(self, name: str) -> list[RebuildJob]:
        return [self.show(name, "n0")] if self.under_way else []

    def swap(self, name: str, id_: str) -> RebuildJob:
        return replace(self.show(name, id_), status="swapped")

    def cancel(self, name: str, id_: str) -> RebuildJob:
        return replace(self.show(name, id_), status="cancelled")

    def back(self, name: str) -> SimpleNamespace:
        self._store.dataflow(name)
        return SimpleNamespace(version=3)

    def back_until(self, record: DataflowRecord) -> datetime | None:
        return NOON if self.under_way else None
