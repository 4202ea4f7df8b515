"""Count and add up records by windows of time, tumbling or sliding, however late they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cbp import Input, Schema, Translate, View, route
from cbp.errors import DefinitionError, Mistake
from stages.bags import column_at, names_of

__all__ = ["Windows"]

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_TOTALS = {"TINYINT": "BIGINT", "SMALLINT": "BIGINT", "INT": "BIGINT", "BIGINT": "BIGINT"}


class Windows(Translate):
    """How many records each window of time has, and the total of a column.

    A record that arrives late, changes or is removed changes its windows. A window without
    records disappears. A record without a time is in no window.

    Shape, for `Windows("shop STRING, at TIMESTAMP, cents BIGINT", "shop", at="at", seconds=60,
    add="cents")`:
        rows: the changes of a view with these columns, and perhaps more.
        windows: a view `(shop, begin, finish, records, total)` with the key `shop, begin`; without
            `add` it has no `total`. `finish` is the first instant after the window.

    Args:
        schema: DDL of the records.
        by: Columns, separated by commas; each combination of values has its own windows; may be
            empty.
        at: The column of type TIMESTAMP that has the time.
        seconds: Length of a window; windows begin at multiples of `every`, counted from 1970.
        every: Seconds from the begin of a window to that of the next; by default `seconds`
            (tumbling). With a smaller number they overlap (sliding), and a record is in several.
        add: A column of whole numbers or decimals whose total is kept; null counts as 0.
    """

    def __init__(
        self, schema: str, by: str, at: str, seconds: float, every: float = 0.0, add: str = ""
    ) -> None:
        columns, names = Schema.parse(schema, where="windows.schema"), names_of(by)
        self._length, self._every = (timedelta(seconds=n) for n in (seconds, every or seconds))
        if not timedelta() < self._every <= self._length:
            message = (
                f"every={every:g} and seconds={seconds:g}; give seconds above 0, and every above 0 "
                "up to seconds, or leave every out"
            )
            raise DefinitionError(Mistake("parameter_invalid", "windows.every", message))
        total = []
        if add:
            type_ = columns.fields[column_at(columns, add, "windows.add")].type
            if type_.kind not in (*_TOTALS, "DECIMAL"):
                message = f"{add} is {type_}; name a column of whole numbers or decimals"
                raise DefinitionError(Mistake("parameter_invalid", "windows.add", message))
            total = [f"total {_TOTALS.get(type_.kind, f'DECIMAL(38,{type_.scale})')}"]
        self._by = [column_at(columns, name, "windows.by") for name in names]
        self._at = column_at(columns, at, "windows.at", "TIMESTAMP")
        self._add = columns.index(add) if add else None
        grouped = [f"{name} {columns[name].type}" for name in names]
        types = ", ".join([*(str(columns[name].type) for name in names), "TIMESTAMP"])
        self.key = ", ".join([*grouped, "begin TIMESTAMP"])
        self.rows = Input(
            f"{schema}, sign INT", route_by=route(self._windows_of, types), changes="signed"
        )
        self.windows = View(
            ", ".join([self.key, "finish TIMESTAMP, records BIGINT", *total]),
            key=", ".join([*names, "begin"]),
        )

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs, and the values with their signs."""
        records = total = 0
        for row in group.windows:
            records, total = row.records, 0 if self._add is None else row.total
        for row in group.rows:
            records += row.sign
            if self._add is not None:
                total += row.sign * (row[self._add] or 0)
        if records:
            totals = () if self._add is None else (total,)
            out.windows(*key, key[-1] + self._length, records, *totals)

    def _windows_of(self, row: Any) -> list[Any]:
        """Return the keys of the windows that have a record's time."""
        at = row[self._at]
        if at is None:
            return []
        last = (at - _BEGIN) // self._every * self._every + _BEGIN
        begins = []
        while last + self._length > at:
            begins.append(last)
            last -= self._every
        by = [row[i] for i in self._by]
        return [(*by, begin) if by else begin for begin in begins]
