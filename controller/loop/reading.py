"""Reading what is published: records of a flow, page by page, and state by key.

A flow's cursor is `<increment>.<offset>`: it stays good while the increment exists,
and new increments come behind it, so that a reader can follow a flow.

Invariant: pages of any size, put together, are the flow (tests/controller/test_reading.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cbp.engine.base import Engine
from cbp.errors import DefinitionError, Mistake, NotFoundError
from cbp.model.dataflow import StageNode
from cbp.model.increment import Increment
from controller.loop.catalog import Catalog
from controller.store.base import DataflowRecord, Store

__all__ = ["Reading"]

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\Z")
# Empty increments cost a look-up each: a page ends after so many, with a cursor.
INCREMENTS_MAX = 1000


class Reading:
    """Reads tables through the engine; sees published epochs only."""

    def __init__(self, *, store: Store, engine: Engine, catalog: Catalog) -> None:
        self._store, self._engine, self._catalog = store, engine, catalog

    def read_flow(
        self, dataflow: str, flow: str, cursor: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return at most `limit` records of a flow and the cursor of the next page.

        Args:
            dataflow: Its name.
            flow: `source` or `stage.output`.
            cursor: Of the page before; `None` for the first page.
            limit: Most records of the page (> 0).

        Returns:
            Records in the order of the flow; the cursor is `None` at its end.

        Raises:
            NotFoundError: If there is no such flow.
            DefinitionError: Rule `cursor_invalid`.
        """
        record, compiled = self._catalog.find(dataflow)
        if flow not in compiled.flows():
            raise NotFoundError(kind="flow", name=f"{dataflow}/{flow}")
        index, offset = _position(cursor)
        if flow in compiled.sources and index < (oldest := self._oldest(dataflow, flow)):
            index, offset = oldest, 0
        end = self._store.next_index(dataflow, flow)
        page: list[dict[str, Any]] = []
        last = min(end, index + INCREMENTS_MAX)
        while index < last and len(page) < limit:
            increment = self._increment(record, flow, index)
            wanted = min(limit - len(page), max(increment.records - offset, 0))
            if wanted:
                page += self._engine.read(record.folder, [increment], offset=offset, limit=wanted)
                offset += wanted
            if offset >= increment.records:
                index, offset = index + 1, 0
        return page, None if index >= end else f"{index}.{offset}"

    def look_up(
        self, dataflow: str, stage: str, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key; empty when there is none.

        Args:
            dataflow: Its name.
            stage: Of the dataflow.
            state: Of the stage.
            key: Every column of the stage's key, with values of its types.

        Raises:
            NotFoundError: If there is no such dataflow, stage or state.
            CodeDriftedError: If what is installed would search it by other columns.
            DefinitionError: Rule `key_invalid`, naming the key's columns.
        """
        record, node = self._state(dataflow, stage, state)
        columns = node.translator.key
        if columns is None or set(key) != set(columns.names):
            message = f"expected the columns ({columns}), got ({', '.join(key)})"
            raise DefinitionError(Mistake("key_invalid", f"stages.{stage}.{state}", message))
        return self._engine.look_up(record.folder, node, state, key)

    def read_state(self, dataflow: str, stage: str, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; raises as `look_up`."""
        record, node = self._state(dataflow, stage, state)
        return self._engine.read_state(record.folder, node, state)

    def _oldest(self, dataflow: str, source: str) -> int:
        """Return the first increment of a source that retention has left."""
        found = self._store.oldest_increments(dataflow, source, limit=1)
        return found[0].increment.index if found else 0

    def _increment(self, record: DataflowRecord, flow: str, index: int) -> Increment:
        """Return an increment; one that a restored store does not know, from its table."""
        try:
            return self._store.increment(record.name, flow, index).increment
        except NotFoundError:
            return self._engine.recall(record.folder, flow, index)

    def _state(self, dataflow: str, stage: str, state: str) -> tuple[DataflowRecord, StageNode]:
        record, node = self._catalog.stage(dataflow, stage)
        self._catalog.require_same(record)
        if all(spec.name != state for spec in node.translator.states):
            raise NotFoundError(kind="state", name=f"{dataflow}/{stage}.{state}")
        return record, node


def _position(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    match = _CURSOR.match(cursor)
    if match is None:
        message = f"{cursor!r} is no cursor of a flow; use the one that the page before gave"
        raise DefinitionError(Mistake("cursor_invalid", "cursor", message))
    return int(match[1]), int(match[2])
