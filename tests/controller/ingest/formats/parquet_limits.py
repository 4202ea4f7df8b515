"""Values of every type that Parquet can hold, at and beyond the limits of Python, pandas and Spark.

A value is given as Parquet stores it, with what it means as a Python value, or `REFUSED`. The
meaning is written down, not computed by Arrow. `WRAPPERS` put each value into nested columns.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["CASES", "REFUSED", "WRAPPERS", "Case", "Wrapper", "parquet"]

REFUSED: Any = type("REFUSED", (), {"__repr__": lambda _: "REFUSED"})()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Seconds from 1970 to the beginning of the year 1, and to the last second of 9999."""
_INFINITY = (1 << 63) - 1


@dataclass(frozen=True)
class Case:
    """Values of one type of a file.

    Attributes:
        declared: Type in the source's schema.
        stored: Type in the file.
        values: As they are stored, and what they mean.
        int96: Whether times are stored as INT96.
    """

    declared: str
    stored: pa.DataType
    values: Sequence[tuple[Any, Any]]
    int96: bool = False

    @property
    def name(self) -> str:
        return f"{self.declared} of {'INT96' if self.int96 else self.stored}"

    @property
    def sound(self) -> list[tuple[Any, Any]]:
        return [(stored, means) for stored, means in self.values if means is not REFUSED]

    def sound_in(self, wrapper: str) -> list[tuple[Any, Any]]:
        """Return the sound values that a wrapper takes: null, too, but where it is a key."""
        return [*self.sound, *([] if wrapper == "map key" else [(None, None)])]

    @property
    def refused(self) -> list[Any]:
        return [stored for stored, means in self.values if means is REFUSED]

    def array(self, stored: Sequence[Any]) -> pa.Array:
        """Return values as a column; times are given as their numbers."""
        if pa.types.is_date32(self.stored):
            return pa.array(stored, pa.int32()).view(self.stored)
        if pa.types.is_timestamp(self.stored):
            return pa.array(stored, pa.int64()).view(self.stored)
        return pa.array(stored, self.stored)


def _same(*values: Any) -> list[tuple[Any, Any]]:
    return [(value, value) for value in values]


def _wrong(*values: Any) -> list[tuple[Any, Any]]:
    return [(value, REFUSED) for value in values]


def _integers(bits: int) -> list[tuple[int, int]]:
    return _same(0, -1, -(1 << bits - 1), (1 << bits - 1) - 1)


def _moment(seconds: int, micros: int = 0) -> datetime:
    return _EPOCH + timedelta(seconds=seconds, microseconds=micros)


def _times(unit: str, per_second: int) -> list[tuple[int, Any]]:
    """Return times in a unit; those of nanoseconds end in 1677 and 2262."""
    if unit == "ns":
        ends = [-9_223_372_036, 9_223_372_036]
        sound = [(second * per_second, _moment(second)) for second in (0, *ends)]
        finest = [(1_000, _moment(0, 1)), (-1_000, _moment(-1, 999_999))]
        return [*sound, *finest, *_wrong(1, -1, 999, 1_001, _INFINITY, -(1 << 63))]
    sound = [(second * per_second, _moment(second)) for second in (0, -1, _FIRST, _LAST)]
    # 1582 and 1900 are where Spark's calendars differ, 1677 and 2262 where pandas ends.
    sound += [(s * per_second, _moment(s)) for s in (-12_219_292_800, -2_208_988_800)]
    sound += [(s * per_second, _moment(s)) for s in (-9_223_372_037, 9_223_372_037)]
    if unit == "us":
        sound.append((_LAST * per_second + 999_999, _moment(_LAST, 999_999)))
    beyond = ((_LAST + 1) * per_second, _FIRST * per_second - 1, _INFINITY, -_INFINITY, -(1 << 63))
    return [*sound, *_wrong(*beyond)]


_DAYS = [
    *[(0, date(1970, 1, 1)), (-719_162, date(1, 1, 1)), (2_932_896, date(9999, 12, 31))],
    *[(-141_428, date(1582, 10, 14)), (-141_427, date(1582, 10, 15)), (-1, date(1969, 12, 31))],
    # 10000-01-01, the last day before the year 1, and infinity as DuckDB writes it.
    *_wrong(2_932_897, -719_163, (1 << 31) - 1, -(1 << 31) + 1, -(1 << 31)),
]
_REALS = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]
_SINGLES = [*_REALS, 2.0**-149, (2 - 2.0**-23) * 2.0**127, 0.10000000149011612]
_DOUBLES = [*_REALS, 5e-324, 1.7976931348623157e308, 0.1]
_MAP = pa.map_(pa.string(), pa.int64())
_NAN_KEYS = pa.map_(pa.float64(), pa.int64())
_DIGITS = (Decimal("9" * 38), Decimal("-" + "9" * 38))
"""By text: a sum, and even a sign, is rounded to 28 digits by the usual context."""

CASES: tuple[Case, ...] = (
    Case("BIGINT", pa.int64(), _integers(64)),
    Case("BIGINT", pa.uint64(), [*_same(0, (1 << 63) - 1), *_wrong(1 << 63, (1 << 64) - 1)]),
    Case("BIGINT", pa.int8(), _integers(8)),
    Case("INT", pa.int32(), _integers(32)),
    Case("INT", pa.int64(), [*_integers(32), *_wrong(1 << 31, -(1 << 31) - 1, (1 << 63) - 1)]),
    Case("INT", pa.uint32(), [*_same(0, (1 << 31) - 1), *_wrong(1 << 31, (1 << 32) - 1)]),
    Case("SMALLINT", pa.int16(), _integers(16)),
    Case("SMALLINT", pa.uint16(), [*_same(0, (1 << 15) - 1), *_wrong(1 << 15, (1 << 16) - 1)]),
    Case("TINYINT", pa.int8(), _integers(8)),
    Case("TINYINT", pa.int32(), [*_integers(8), *_wrong(128, -129)]),
    Case("TINYINT", pa.uint8(), [*_same(0, 127), *_wrong(128, 255)]),
    Case("DOUBLE", pa.float64(), _same(*_DOUBLES)),
    Case("DOUBLE", pa.float32(), _same(*_SINGLES)),
    Case("FLOAT", pa.float32(), _same(*_SINGLES)),
    Case("BOOLEAN", pa.bool_(), _same(False, True)),
    Case("STRING", pa.string(), _same("", "\0", "a\r\n\u2028\ufeff", "\U0010ffff", "é" * 70_000)),
    Case("STRING", pa.large_string(), _same("", "漢😀")),
    Case("BINARY", pa.binary(), _same(b"", bytes(range(256)), b"\xed\xa0\x80")),
    Case("BINARY", pa.binary(3), _same(b"\0\0\0", b"\xff\xfe\xfd")),
    Case("DATE", pa.date32(), _DAYS),
    Case("TIMESTAMP", pa.timestamp("us", "UTC"), _times("us", 1_000_000)),
    Case("TIMESTAMP", pa.timestamp("ms", "UTC"), _times("ms", 1_000)),
    Case("TIMESTAMP", pa.timestamp("ns", "UTC"), _times("ns", 1_000_000_000)),
    Case("TIMESTAMP", pa.timestamp("us"), _times("us", 1_000_000)),
    Case("TIMESTAMP", pa.timestamp("ms"), _times("ms", 1_000)),
    Case("TIMESTAMP", pa.timestamp("ns"), _times("ns", 1_000_000_000)),
    Case("DECIMAL(38,0)", pa.decimal128(38, 0), _same(Decimal(0), *_DIGITS)),
    Case(
        "DECIMAL(38,38)",
        pa.decimal128(38, 38),
        _same(*(Decimal((sign, (9,) * 38, -38)) for sign in (0, 1)), Decimal((0, (1,), -38))),
    ),
    Case(
        "DECIMAL(9,2)",
        pa.decimal128(38, 4),
        [
            (Decimal("9999999.9900"), Decimal("9999999.99")),
            (Decimal("-0.0100"), Decimal("-0.01")),
            *_wrong(Decimal("0.0010"), Decimal("10000000.0000"), Decimal((0, (9,) * 38, -4))),
        ],
    ),
    Case(
        "DECIMAL(38,0)",
        pa.decimal256(76, 0),
        [*_same(*_DIGITS), *_wrong(Decimal("1" + "0" * 38), Decimal("9" * 76))],
    ),
    Case(
        "MAP<STRING, BIGINT>",
        _MAP,
        [
            ([], {}),
            ([("a", 1), ("b", None)], {"a": 1, "b": None}),
            *_wrong([("a", 1), ("a", 2)], [("a", 1), ("b", 2), ("a", 1)], [("", 1), ("", 1)]),
        ],
    ),
    Case(
        "MAP<DOUBLE, BIGINT>",
        _NAN_KEYS,
        [
            ([(0.0, 1), (5e-324, 2)], {0.0: 1, 5e-324: 2}),
            *_wrong([(0.0, 1), (-0.0, 2)], [(math.nan, 1), (math.nan, 1)]),
        ],
    ),
)
INT96 = (
    Case(
        "TIMESTAMP",
        pa.timestamp("us"),
        [(n, means) for n, means in _times("us", 1_000_000) if means is not REFUSED],
        int96=True,
    ),
)


@dataclass(frozen=True)
class Wrapper:
    """Puts a value into a column.

    Attributes:
        declared: The declared type, with `{}` for that of the value.
        build: Returns the column of values.
        means: Returns what a row is, given what its value is.
    """

    declared: str
    build: Callable[[pa.Array], pa.Array]
    means: Callable[[Any], Any]

    def type_of(self, case: Case) -> str:
        return self.declared.format(case.declared)


def _each(count: int) -> pa.Array:
    return pa.array(range(count + 1), pa.int32())


def _list(leaf: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_each(len(leaf)), leaf)


def _struct(leaf: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([leaf], ["f"])


def _map_value(leaf: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(_each(len(leaf)), pa.array(["k"] * len(leaf)), leaf)


def _map_key(leaf: pa.Array) -> pa.Array:
    numbers = pa.array([7] * len(leaf), pa.int64())
    return pa.MapArray.from_arrays(_each(len(leaf)), leaf, numbers)


WRAPPERS: dict[str, Wrapper] = {
    "plain": Wrapper("{}", lambda leaf: leaf, lambda value: value),
    "list": Wrapper("ARRAY<{}>", _list, lambda value: [value]),
    "struct": Wrapper("STRUCT<f: {}>", _struct, lambda value: {"f": value}),
    "map value": Wrapper("MAP<STRING, {}>", _map_value, lambda value: {"k": value}),
    "map key": Wrapper("MAP<{}, BIGINT>", _map_key, lambda value: {value: 7}),
    "deep": Wrapper(
        "ARRAY<STRUCT<f: MAP<STRING, ARRAY<{}>>>>",
        lambda leaf: _list(_struct(_map_value(_list(leaf)))),
        lambda value: [{"f": {"k": [value]}}],
    ),
}


def parquet(table: pa.Table, *, int96: bool = False, **options: Any) -> bytes:
    """Return a table as a file; text that is not Arrow's, so that readers see Parquet's types."""
    sink = io.BytesIO()
    pq.write_table(
        table, sink, use_deprecated_int96_timestamps=int96, store_schema=False, **options
    )
    return sink.getvalue()
