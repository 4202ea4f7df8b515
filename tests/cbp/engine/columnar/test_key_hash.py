"""The hash of a key: Python, vectorised and Spark's, over all key types."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.key_hash import SEED, bucket_of, hash_columns, key_hash
from cbp.model.flow.schema import DataType, Schema

NAN_WITH_PAYLOAD = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]

SAMPLES: dict[str, list[Any]] = {
    "STRING": [
        "",
        "a",
        "abcd",
        "abcdefgh",
        "Straße 日本 \U0001f600",
        "x" * 31,
        "y" * 32,
        "z" * 999,
    ],
    "BINARY": [b"", b"\x00", b"\xff\x80", bytes(range(256)) * 5],
    "BIGINT": [0, 1, -1, 2**63 - 1, -(2**63)],
    "INT": [0, 1, -1, 2**31 - 1, -(2**31)],
    "SMALLINT": [0, 1, -1, 2**15 - 1, -(2**15)],
    "TINYINT": [0, 1, -1, 127, -128],
    "BOOLEAN": [True, False],
    "DOUBLE": [0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf, math.nan, NAN_WITH_PAYLOAD],
    "FLOAT": [0.0, -0.0, 1.5, -0.25, math.inf, -math.inf, math.nan],
    "DATE": [date(1970, 1, 1), date(1969, 12, 31), date(2026, 11, 21), date(1, 1, 1)],
    "TIMESTAMP": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 11, 21, 5, 6, 7, 8, tzinfo=UTC),
    ],
    "DECIMAL(10,2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99")],
    "DECIMAL(18,0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    "DECIMAL(38,4)": [
        Decimal("0.0000"),
        Decimal("-0.0128"),
        Decimal("0.0128"),
        Decimal("9" * 34 + ".9999"),
        Decimal("-" + "9" * 34 + ".9999"),
    ],
}


def type_of(text: str) -> DataType:
    return Schema.parse(f"c {text}").fields[0].type


def table_of_everything() -> tuple[list[DataType], list[list[Any]]]:
    """One column per type, each sample and a null; then all columns shifted against each other."""
    rows = max(map(len, SAMPLES.values())) + 1
    types = [type_of(text) for text in SAMPLES]
    columns = [
        [(*values, None)[(row + at) % (len(values) + 1)] for row in range(rows)]
        for at, values in enumerate(SAMPLES.values())
    ]
    return types, columns


def test_many_numbers_hash_as_each_does() -> None:
    """More than are hashed at a time, with a second column and nulls."""
    numbers, number = [*range(40_000)], DataType("BIGINT")
    other = [None if n % 3 else n * n for n in numbers]
    hashes = hash_columns([pa.array(numbers), pa.array(other, pa.int64())], [number] * 2)
    for at in (0, 1, 16_383, 16_384, 16_386, 39_999):
        assert hashes[at] == key_hash([numbers[at], other[at]], [number] * 2)


def test_null_leaves_the_seed_unchanged() -> None:
    """A key of nulls hashes to the seed, and a null between values changes nothing."""
    string, number = DataType("STRING"), DataType("BIGINT")
    assert key_hash([None, None], [string, number]) == SEED
    assert key_hash(["a", None, 1], [string] * 2 + [number]) == key_hash(["a", 1], [string, number])


def test_hash_is_signed_like_a_bigint() -> None:
    """Every hash fits a signed 64-bit column, and some are negative."""
    hashes = [key_hash([n], [DataType("BIGINT")]) for n in range(64)]
    assert min(hashes) < 0 < max(hashes)
    assert all(-(2**63) <= value < 2**63 for value in hashes)


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_equal_floats_hash_equally(kind: str) -> None:
    """Negative zero is zero, and every NaN is the same NaN."""
    type_ = [DataType(kind)]
    assert key_hash([-0.0], type_) == key_hash([0.0], type_)
    assert key_hash([NAN_WITH_PAYLOAD], type_) == key_hash([math.nan], type_)


def test_timestamp_is_an_instant() -> None:
    """The same instant hashes equally in every zone; a naive time counts as UTC."""
    type_ = [DataType("TIMESTAMP")]
    utc = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert key_hash([utc.astimezone(timezone(timedelta(hours=5)))], type_) == key_hash([utc], type_)
    assert key_hash([utc.replace(tzinfo=None)], type_) == key_hash([utc], type_)


def test_decimal_is_hashed_by_value_in_its_scale() -> None:
    """Spelling does not matter; digits beyond the scale are refused, never rounded."""
    type_ = [type_of("DECIMAL(10,2)")]
    assert key_hash([Decimal("1.5")], type_) == key_hash([Decimal("1.50")], type_)
    assert key_hash([1], type_) == key_hash([Decimal("1.00")], type_)
    with pytest.raises(ValueError, match="decimal places"):
        key_hash([Decimal("1.501")], type_)


def test_a_nested_type_is_no_key() -> None:
    """Arrays have no hash here, in both versions."""
    type_ = type_of("ARRAY<STRING>")
    with pytest.raises(TypeError, match="cannot be a key"):
        key_hash([["a"]], [type_])
    with pytest.raises(TypeError, match="cannot be a key"):
        hash_columns([pa.array([["a"]])], [type_])


def test_bucket_is_the_high_bits_of_the_unsigned_hash() -> None:
    """Buckets follow the unsigned order, and doubling their number splits each in two."""
    hashes = [key_hash([n], [DataType("BIGINT")]) for n in range(256)]
    ordered = sorted(hashes, key=lambda value: value & (2**64 - 1))
    assert [bucket_of(value, 1) for value in hashes] == [0] * 256
    assert [bucket_of(v, 8) for v in ordered] == sorted(bucket_of(v, 8) for v in hashes)
    assert {bucket_of(value, 8) for value in hashes} == set(range(8))
    assert all(bucket_of(value, 16) // 2 == bucket_of(value, 8) for value in hashes)


@pytest.mark.parametrize("kind", list(SAMPLES))
@pytest.mark.parametrize("wide", [False, True])
def test_vectorised_hash_equals_the_scalar_one(kind: str, wide: bool) -> None:
    """`hash_columns` gives what `key_hash` gives, also for slices and chunked columns."""
    type_ = type_of(kind)
    values = [None, *SAMPLES[kind], None]
    array = pa.array(values, arrow_type(type_, wide=wide))
    expected = [key_hash([value], [type_]) for value in values]
    assert hash_columns([array], [type_]).tolist() == expected
    assert hash_columns([array.slice(1, 2)], [type_]).tolist() == expected[1:3]
    chunked = pa.chunked_array([array.slice(0, 2), array.slice(2)])
    assert hash_columns([chunked], [type_]).tolist() == expected


def test_vectorised_hash_chains_columns() -> None:
    """Several columns are chained per row, nulls included."""
    types, columns = table_of_everything()
    arrays = [pa.array(c, arrow_type(t)) for c, t in zip(columns, types, strict=True)]
    hashes = hash_columns(arrays, types)
    assert hashes.dtype == np.int64
    assert hashes.tolist() == [key_hash(row, types) for row in zip(*columns, strict=True)]


def test_no_rows() -> None:
    """An empty column gives an empty result, for every type."""
    for kind in SAMPLES:
        assert len(hash_columns([pa.array([], arrow_type(type_of(kind)))], [type_of(kind)])) == 0


@given(st.lists(st.one_of(st.none(), st.text())), st.lists(st.one_of(st.none(), st.floats())))
def test_vectorised_hash_of_any_text_and_number(texts: list[Any], numbers: list[Any]) -> None:
    """Scalar and vectorised hash agree on any text and any double."""
    for kind, values in (("STRING", texts), ("DOUBLE", numbers)):
        type_ = DataType(kind)
        array = pa.array(values, arrow_type(type_))
        assert hash_columns([array], [type_]).tolist() == [key_hash([v], [type_]) for v in values]


@pytest.mark.spark
def test_equal_to_spark(spark: Any) -> None:
    """`xxhash64` of Spark gives the same 64 bits, per type and over all columns at once."""
    from pyspark.sql import functions as F

    types, columns = table_of_everything()
    names = [f"c{i}" for i in range(len(types))]
    ddl = ", ".join(f"{name} {type_}" for name, type_ in zip(names, types, strict=True))
    rows = list(zip(*columns, strict=True))
    hashes = [F.xxhash64(name) for name in names] + [F.xxhash64(*names)]
    arrays = [pa.array(c, arrow_type(t)) for c, t in zip(columns, types, strict=True)]
    frame = spark.createDataFrame(pa.table(arrays, names=names), schema=ddl).coalesce(1)
    actual = [tuple(row) for row in frame.select(*hashes).collect()]
    single = [
        [key_hash([value], [type_]) for value, type_ in zip(row, types, strict=True)]
        for row in rows
    ]
    expected = [(*each, key_hash(row, types)) for each, row in zip(single, rows, strict=True)]
    assert actual == expected


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_few_keys_hash_as_many_do(rows: int) -> None:
    """Also wide strings, nulls, slices of columns, and chunks; and times that Python has not."""
    types = [type_of(text) for text in ("STRING", "BIGINT", "BOOLEAN", "BINARY", "INT")]
    values: list[list[Any]] = [
        ["left out", "Straße", None, "", "abcd", "x" * 99],
        [0, -(2**63), 2**63 - 1, None, 1, -1],
        [None, True, False, None, True, False],
        [b"", None, b"\xff", b"", bytes(40), b"a"],
        [0, -(2**31), None, 2**31 - 1, 7, 8],
    ]
    wanted = [key_hash([column[1 + row] for column in values], types) for row in range(rows)]
    plain = [pa.array(one, arrow_type(type_)) for one, type_ in zip(values, types, strict=True)]
    plain[0] = plain[0].cast(pa.large_string())
    sliced = [column.slice(1, rows) for column in plain]
    chunked = [pa.chunked_array([one.slice(0, 1), one.slice(1)]) for one in sliced]
    for columns in (sliced, chunked):
        hashes = hash_columns(columns, types)
        assert hashes.dtype == np.int64
        assert hashes.tolist() == wanted
    late = pa.array([2**62] * rows, pa.timestamp("us", tz="UTC"))
    assert len(hash_columns([late], [type_of("TIMESTAMP")])) == rows
