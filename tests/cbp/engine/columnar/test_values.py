"""Values in their declared type, and their total order."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.columnar.values import NAN, order_key, row_order, typed, typed_row, unify
from cbp.model.flow.schema import DataType, Schema


def type_of(text: str) -> DataType:
    return Schema.parse(f"c {text}").fields[0].type


ACCEPTED: list[tuple[str, Any, Any]] = [
    ("BIGINT", 2**63 - 1, 2**63 - 1),
    ("BIGINT", np.int32(7), 7),
    ("TINYINT", -128, -128),
    ("DOUBLE", 3, 3.0),
    ("DOUBLE", np.float64(0.1), 0.1),
    ("FLOAT", 0.1, float(np.float32(0.1))),
    ("FLOAT", math.inf, math.inf),
    ("BOOLEAN", np.True_, True),
    ("STRING", "Straße", "Straße"),
    ("BINARY", bytearray(b"\xff"), b"\xff"),
    ("DECIMAL(10,2)", 3, Decimal("3.00")),
    ("DECIMAL(10,2)", Decimal("1.500"), Decimal("1.50")),
    ("DECIMAL(38,0)", Decimal("9" * 38), Decimal("9" * 38)),
    ("DATE", date(2026, 1, 2), date(2026, 1, 2)),
    (
        "TIMESTAMP",
        datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 1, 2, 1, tzinfo=UTC),
    ),
    ("ARRAY<DOUBLE>", (1, None), [1.0, None]),
    ("MAP<STRING, DOUBLE>", {"a": 1}, {"a": 1.0}),
    ("STRUCT<a: INT, b: STRING>", {"a": 1}, {"a": 1, "b": None}),
    ("STRUCT<a: INT, b: STRING>", (1, "x"), {"a": 1, "b": "x"}),
]

REFUSED: list[tuple[str, Any]] = [
    ("BIGINT", 1.0),
    ("BIGINT", 1.5),
    ("BIGINT", True),
    ("BIGINT", "1"),
    ("BIGINT", 2**63),
    ("TINYINT", 128),
    ("DOUBLE", True),
    ("DOUBLE", "1.0"),
    ("DOUBLE", Decimal(1)),
    ("DOUBLE", 2**53 + 1),
    ("FLOAT", 1e300),
    ("BOOLEAN", 1),
    ("STRING", b"a"),
    ("STRING", 1),
    ("STRING", "\ud800"),
    ("BINARY", "a"),
    ("DECIMAL(10,2)", 1.5),
    ("DECIMAL(10,2)", Decimal("1.555")),
    ("DECIMAL(10,2)", Decimal(10**8)),
    ("DECIMAL(10,2)", Decimal("NaN")),
    ("DATE", datetime(2026, 1, 1, tzinfo=UTC)),
    ("DATE", 5),
    ("TIMESTAMP", datetime.fromisoformat("2026-01-02T03")),
    ("TIMESTAMP", date(2026, 1, 1)),
    ("TIMESTAMP", 5),
    ("ARRAY<STRING>", "ab"),
    ("ARRAY<STRING>", {"a"}),
    ("ARRAY<BIGINT>", [1.5]),
    ("MAP<STRING, INT>", [("a", 1)]),
    ("MAP<STRING, INT>", {None: 1}),
    ("STRUCT<a: INT>", {"b": 1}),
    ("STRUCT<a: INT>", (1, 2)),
]


@pytest.mark.parametrize(("declared", "value", "expected"), ACCEPTED)
def test_a_value_takes_its_declared_type(declared: str, value: Any, expected: Any) -> None:
    """A value that fits becomes the one value of its type; again changes nothing."""
    actual = typed(value, type_of(declared))
    assert (actual, type(actual)) == (expected, type(expected))
    assert typed(actual, type_of(declared)) == actual


@pytest.mark.parametrize(("declared", "value"), REFUSED)
def test_nothing_is_rounded_cut_or_guessed(declared: str, value: Any) -> None:
    """A value that does not fit is refused, and the message names column, type and value."""
    schema = Schema.parse(f"c {declared}")
    with pytest.raises(TypeError, match="column 'c' is declared ") as caught:
        typed_row([value], schema)
    assert type(value).__name__ in str(caught.value)


def test_a_decimal_with_a_huge_exponent_costs_nothing() -> None:
    """It is refused, or a zero, before its digits are written out: they would be gigabytes."""
    money = DataType("DECIMAL", precision=10, scale=2)
    with pytest.raises(OverflowError, match="digits before the decimal point"):
        typed(Decimal("1E+99999999"), money)
    with pytest.raises(OverflowError, match="decimal places"):
        typed(Decimal("1E-99999999"), money)
    for zero in ("0E+99999999", "-0E-99999999"):
        assert typed(Decimal(zero), money).as_tuple() == Decimal("0.00").as_tuple()


def test_digits_are_counted_before_the_decimal_point() -> None:
    """The scale takes two of the ten digits, so nine before the point are too many."""
    with pytest.raises(OverflowError, match="123456789 has more than 8 digits before the decimal"):
        typed(123_456_789, type_of("DECIMAL(10,2)"))


def test_null_fits_every_nullable_column_only() -> None:
    """Null passes through, unless the column is NOT NULL."""
    assert typed_row([None, None], Schema.parse("a STRING, b ARRAY<INT>")) == (None, None)
    with pytest.raises(TypeError, match="column 'b' is declared BIGINT NOT NULL, got None"):
        typed_row(["x", None], Schema.parse("a STRING, b BIGINT NOT NULL"))


def test_a_typed_value_shares_nothing_with_its_origin() -> None:
    """Changing the author's list afterwards does not change the record."""
    given_list = [[1], [2]]
    actual = typed(given_list, type_of("ARRAY<ARRAY<INT>>"))
    given_list[0].append(9)
    assert actual == [[1], [2]]


@pytest.mark.parametrize(
    ("declared", "ordered"),
    [
        ("BIGINT", [None, -1, 0, 2]),
        ("DOUBLE", [None, -math.inf, -1.0, 0.0, math.inf, NAN]),
        ("STRING", [None, "", "A", "a", "ab", "\uffff", "\U0001f600"]),
        ("BINARY", [None, b"", b"\x01", b"\x01\x00", b"\xff"]),
        ("BOOLEAN", [None, False, True]),
        ("ARRAY<INT>", [None, [], [None], [1], [1, 2], [2]]),
        ("STRUCT<a: INT, b: INT>", [None, {"a": None, "b": 9}, {"a": 1, "b": None}]),
        ("MAP<STRING, INT>", [None, {}, {"a": 1}, {"b": 0, "a": 1}, {"a": 2}]),
    ],
)
def test_total_order(declared: str, ordered: list[Any]) -> None:
    """Nulls come first, NaN last, nested values item by item."""
    keys = [order_key(value, type_of(declared)) for value in ordered]
    assert all(a < b for a, b in itertools.pairwise(keys))


@given(st.lists(st.text(), min_size=2))
def test_strings_are_ordered_like_their_bytes(texts: list[str]) -> None:
    """The order by code point is the order of the UTF-8 bytes, as other engines sort them."""
    types = [DataType("STRING")]
    ours = sorted(texts, key=lambda text: row_order([text], types))
    assert ours == sorted(texts, key=str.encode)


def test_equal_floats_make_one_key() -> None:
    """Negative zero and every NaN unify, so that a dict finds the key again."""
    assert math.copysign(1, unify([-0.0])[0]) == 1
    assert {unify([math.inf - math.inf, 1]): "found"}[unify([float("nan"), 1])] == "found"


def test_an_integer_that_does_not_fit_is_told_with_the_range() -> None:
    """Who sees only the type and the value does not see what is wrong with it."""
    with pytest.raises(TypeError, match=r"a value from -9223372036854775808 to 92") as caught:
        typed_row([2**63], Schema.parse("c BIGINT"))
    assert "BIGINT, got 9223372036854775808 (int)" in str(caught.value)
