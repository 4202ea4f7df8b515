"""What reads tables and plans, without tables: canned records, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cbp.engine.interface.readers import KeyChanges
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.skew import BucketSize
from controller.loop.reading.reader import AsOf
from controller.loop.records.version_log import Description
from controller.store.base import DataflowRecord, Page
from tests.controller.api.fake_pages import page_of

__all__ = [
    "EmptyTables",
    "FakeReading",
    "NoExplaining",
    "NoSnapshots",
    "NoVerifications",
    "Unrecorded",
]


class NoExplaining:
    """Has nothing to tell of."""

    def plan(self, name: str) -> Any:
        raise NotFoundError(kind="dataflow", name=name)

    def versions(self, name: str, *, below: int, limit: int, **times: Any) -> list[Any]:
        return []

    def left(self, name: str, waits: object = None) -> Mapping[str, str]:
        return {}

    def run(self, run_id: str) -> Any:
        raise NotFoundError(kind="run", name=run_id)


class EmptyTables:
    """Every state is empty."""

    def state_size(self, folder: str, node: StageNode, state: str) -> Mapping[int, BucketSize]:
        return {}


class Unrecorded:
    """Knows of a version no more than its document, as of those of early releases."""

    def of(self, record: DataflowRecord) -> Description:
        return Description(record.version, record.document)


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


class NoFigures:
    """Every flow is empty."""

    def figures(self, dataflow: str, flow: str, column: str | None, limit: int) -> list[Any]:
        return []


class FakeReading:
    """Answers look-ups and pages from canned records."""

    def __init__(self) -> None:
        self.state: list[dict[str, Any]] = []
        self.flow: list[dict[str, Any]] = []
        self.results = NoFigures()
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

    def page_key(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        cursor: str | None,
        limit: int,
        as_of: AsOf | None = None,
        among: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        records = self.look_up(dataflow, stage, state, {**key, **among}, as_of)
        page = page_of(records, cursor, limit)
        return page.items, page.cursor

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
        page = page_of(self.state, cursor, limit)
        return page.items, page.cursor

    def history(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        cursor: str | None,
        limit: int,
        among: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[KeyChanges, str | None]:
        self.asked.append(("history", dataflow, stage, state, dict(key), dict(among)))
        page: Page[Any] = page_of((), cursor, limit)
        return KeyChanges((), "begin"), page.cursor

    def set_aside(self, dataflow: str, stage: str) -> list[dict[str, Any]]:
        self.asked.append(("set_aside", dataflow, stage))
        return []

    def read_increment(
        self, dataflow: str, flow: str, index: int, offset: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        self.asked.append(("read_increment", dataflow, flow, index))
        end = offset + limit
        return self.flow[offset:end], end if end < len(self.flow) else None

    def read_flow(
        self, dataflow: str, flow: str, cursor: str | None, limit: int, as_of: AsOf | None = None
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        self.asked.append(("read_flow", dataflow, flow, as_of))
        page = page_of(self.flow, cursor, limit)
        return page.items, page.cursor
