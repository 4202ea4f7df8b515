"""Increments of a flow for a reader: from the store, or otherwise from the flow's table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cbp.engine.interface.readers import IncrementReader
from cbp.errors import DefinitionError, Mistake, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import Increment
from controller.store.base import DataflowRecord, Store

# Every empty increment costs a look-up; after this many a page ends with a cursor.
INCREMENTS_MAX = 1000


class FlowIncrements:
    """Finds the increments that can be read; safe to use from several threads."""

    def __init__(self, store: Store, increments: IncrementReader) -> None:
        self._store, self._increments = store, increments

    def bounds(self, record: DataflowRecord, compiled: Dataflow, flow: str) -> range:
        """Return the range of a flow's increments that retention has left.

        Raises:
            NotFoundError: If there is no such flow.
        """
        if flow not in compiled.flows():
            raise NotFoundError(kind="flow", name=f"{record.name}/{flow}")
        if flow not in compiled.sources:
            first = self._increments.horizon(record.folder, flow)
        else:
            oldest = self._store.oldest_increments(record.name, flow, limit=1)
            first = oldest[0].increment.index if oldest else 0
        return range(first, self._store.next_index(record.name, flow))

    def get(self, record: DataflowRecord, flow: str, index: int) -> Increment:
        """Return an increment, if necessary from its table, since a restored store may lack it."""
        try:
            return self._store.increment(record.name, flow, index).increment
        except NotFoundError:
            return self._increments.recall(record.folder, flow, index)

    def page(
        self,
        record: DataflowRecord,
        flow: str,
        indexes: Iterable[int],
        offset: int,
        limit: int,
    ) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
        """Return at most `limit` records of increments, and the place of the next record.

        Args:
            indexes: The increments, in the order in which they are read.
            offset: Number of records to skip in the first increment.

        Returns:
            The records; and the next increment and offset, `None` if no record is left.
        """
        page = list[dict[str, Any]]()
        for index in indexes:
            if len(page) == limit:
                return page, (index, 0)
            increment = self.get(record, flow, index)
            wanted = min(limit - len(page), max(increment.records - offset, 0))
            if wanted:
                page += self.read(record, increment, offset=offset, limit=wanted)
            if offset + wanted < increment.records:
                return page, (index, offset + wanted)
            offset = 0
        return page, None

    def read(
        self, record: DataflowRecord, increment: Increment, *, offset: int, limit: int
    ) -> list[dict[str, object]]:
        """Return at most `limit` records of an increment, starting at `offset`."""
        return self._increments.read(record.folder, [increment], offset=offset, limit=limit)


def cursor_numbers(pattern: re.Pattern[str], cursor: str) -> tuple[int, ...]:
    """Return the numbers of a cursor; raises `DefinitionError` of rule `cursor_invalid`."""
    if (match := pattern.match(cursor)) is None:
        message = (
            f"{cursor!r} is not a cursor of this list; use the cursor that the previous page "
            "returned"
        )
        raise DefinitionError(Mistake("cursor_invalid", "cursor", message))
    return tuple(map(int, match.groups()))
