"""Increments of a flow for a reader: from the store, or otherwise from the flow's table.

`Results` has a flow's records with the newest increment first, and figures of each increment. The
cursor of a page is `n<increment>.<offset>`. It stays valid while the increment exists, and
increments that arrive later do not move it.

Figures of a column are computed on request, from the records. A call reads at most `RECORDS_MAX`
records; `IncrementFigures.read` says how many of an increment it read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from cbp.engine.interface.readers import IncrementReader
from cbp.errors import DefinitionError, IncrementCollectedError, Mistake, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from controller.loop.records.compiled_dataflows import Catalog
from controller.store.base import DataflowRecord, Store

INCREMENTS_MAX = 1000
"""Largest number of increments for one page: each costs a look-up, even if it is empty."""


class FlowIncrements:
    """Finds the increments that can be read; safe to use from several threads."""

    def __init__(self, store: Store, increments: IncrementReader) -> None:
        self._store, self._increments = store, increments

    def bounds(self, record: DataflowRecord, compiled: Dataflow, flow: str) -> range:
        """Return the increments of a flow that retention has left; raises `NotFoundError`."""
        if flow not in compiled.flows():
            raise NotFoundError(kind="flow", name=f"{record.name}/{flow}")
        if flow not in compiled.sources:
            first = self._increments.horizon(record.folder, flow)
        else:
            oldest = self._store.oldest_increments(record.name, flow, limit=1)
            first = oldest[0].increment.index if oldest else 0
        return range(first, self._store.next_index(record.name, flow))

    def get(self, record: DataflowRecord, flow: str, index: int) -> Increment:
        """Return an increment, from its table if the store lacks it, as a restored store may."""
        try:
            return self._store.increment(record.name, flow, index).increment
        except NotFoundError:
            return self._increments.recall(record.folder, flow, index)

    def page(
        self, record: DataflowRecord, flow: str, indexes: Iterable[int], offset: int, limit: int
    ) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
        """Return at most `limit` records of increments, and the place of the next record.

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


RECORDS_MAX = 50_000
INCREMENT_RECORDS_MAX = 5_000
_CURSOR = re.compile(r"n([0-9]{1,18})\.([0-9]{1,18})\Z")
_NUMERIC = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})


@dataclass(frozen=True, slots=True)
class IncrementFigures:
    """One increment of a flow, and figures of a column over its records that were read.

    Attributes:
        index: The increment; for the flow of a stage, the epoch.
        read: Number of records that the figures cover.
        nulls: Records without a finite number in the column.
        least, most, mean, total: `None` if there is no number.
    """

    index: int
    records: int
    bytes: int
    read: int = 0
    nulls: int = 0
    least: float | None = None
    most: float | None = None
    mean: float | None = None
    total: float | None = None


class Results:
    """Reads a flow from its end; sees published increments only."""

    def __init__(self, catalog: Catalog, increments: FlowIncrements) -> None:
        self._catalog, self._increments = catalog, increments

    def page(
        self, dataflow: str, flow: str, cursor: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return at most `limit` records, newest increment first, and the next page's cursor.

        Records of one increment keep their order. Raises as `Reader.read_flow`.
        """
        record, compiled = self._catalog.find(dataflow)
        bounds = self._increments.bounds(record, compiled, flow)
        first, offset = (bounds.stop - 1, 0)
        if cursor is not None:
            first, offset = cursor_numbers(_CURSOR, cursor)
            if first < bounds.start:
                raise IncrementCollectedError(flow, first, bounds.start)
        first = min(first, bounds.stop - 1)
        last = max(bounds.start, first - INCREMENTS_MAX)
        indexes = range(first, last - 1, -1)
        page, behind = self._increments.page(record, flow, indexes, offset, limit)
        if behind is None and last > bounds.start:
            behind = last - 1, 0
        return page, None if behind is None else "n{}.{}".format(*behind)

    def figures(
        self, dataflow: str, flow: str, column: str | None, limit: int
    ) -> list[IncrementFigures]:
        """Return the newest increments of a flow, oldest first, with figures of a column.

        Args:
            column: A numeric column; `None` means sizes only, and no record is read.

        Raises `NotFoundError` or `DefinitionError`.
        """
        record, compiled = self._catalog.find(dataflow)
        bounds = self._increments.bounds(record, compiled, flow)
        if column is not None:
            _require_numeric(compiled.flows()[flow], flow, column)
        left, shown = RECORDS_MAX, list[IncrementFigures]()
        for index in reversed(bounds[-limit:]):
            increment = self._increments.get(record, flow, index)
            wanted = min(left, INCREMENT_RECORDS_MAX, increment.records)
            if column is None or not wanted:
                shown.append(IncrementFigures(index, increment.records, increment.bytes))
                continue
            left -= wanted
            rows = self._increments.read(record, increment, offset=0, limit=wanted)
            shown.append(figures_of(increment, [row[column] for row in rows]))
        return shown[::-1]


def figures_of(increment: Increment, values: Iterable[Any]) -> IncrementFigures:
    """Return the figures of a numeric column; pure."""
    given = list(values)
    numbers = [float(one) for one in given if _is_number(one)]
    sizes = IncrementFigures(
        increment.index,
        increment.records,
        increment.bytes,
        read=len(given),
        nulls=len(given) - len(numbers),
    )
    if not numbers:
        return sizes
    total = math.fsum(numbers)
    return replace(
        sizes, least=min(numbers), most=max(numbers), mean=total / len(numbers), total=total
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and math.isfinite(value)


def _require_numeric(schema: Schema, flow: str, column: str) -> None:
    if column not in schema:
        raise NotFoundError(
            kind="column", name=f"{flow}.{column}", hint=f"the columns are {schema}"
        )
    if schema[column].type.kind not in _NUMERIC:
        message = (
            f"column {column!r} has type {schema[column].type}, but figures need a numeric "
            f"column; the columns are {schema}"
        )
        raise DefinitionError(Mistake("column_not_numeric", flow, message))
