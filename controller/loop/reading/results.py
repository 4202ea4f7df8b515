"""Results: a flow's records with the newest increment first, and figures of each increment.

The cursor of a page is `n<increment>.<offset>`. It stays valid while the increment exists, and
increments that arrive later do not move it.

Figures of a column are computed from records that are read when they are asked for. A call reads
at most `RECORDS_MAX` records; what it did not read is said by `read`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from cbp.errors import DefinitionError, IncrementCollectedError, Mistake, NotFoundError
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from controller.loop.reading.flow_increments import (
    INCREMENTS_MAX,
    FlowIncrements,
    cursor_numbers,
)
from controller.loop.records.catalog import Catalog

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

        Records of one increment keep their order.

        Raises:
            NotFoundError: If there is no such dataflow or flow.
            IncrementCollectedError: If retention removed the increment that the cursor names.
            DefinitionError: Rule `cursor_invalid`.
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

        Raises:
            NotFoundError: If there is no such dataflow, flow or column.
            DefinitionError: Rule `column_not_numeric`.
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
