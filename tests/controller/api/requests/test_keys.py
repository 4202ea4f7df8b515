"""Keys: what a record shows of its key finds the record again."""

from __future__ import annotations

import math
from datetime import UTC
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.model.flow.schema import Schema
from controller.api.answers.json_values import json_value
from controller.api.answers.request_errors import RequestInvalidError
from controller.api.requests.keys import parse_key

_WIDE = Context(prec=80)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "STRING": st.text(st.characters(exclude_categories=["Cs"])),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(),
    "FLOAT": st.floats(width=32),
    "BOOLEAN": st.booleans(),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
    "DECIMAL(38,38)": st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: Decimal(n).scaleb(-38, context=_WIDE)
    ),
    "DECIMAL(10,2)": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
}


@pytest.mark.parametrize("type_", VALUES)
@given(data=st.data())
def test_a_key_that_goes_out_comes_in_again(type_: str, data: st.DataObject) -> None:
    """For every type that a key may have, text made from a value gives the value."""
    value = data.draw(VALUES[type_])
    shown = json_value(value)
    text = {True: "true", False: "false"}[shown] if isinstance(shown, bool) else str(shown)
    key = parse_key(Schema.parse(f"k {type_}"), [("k", text)])["k"]
    if isinstance(value, float) and math.isnan(value):
        assert math.isnan(key)
    else:
        assert key == value
        assert type(key) is type(value)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("INT", "2147483648"),
        ("INT", "1.0"),
        ("INT", "1_0"),
        ("INT", ""),
        ("INT", "+-1"),
        ("BIGINT", "9223372036854775808"),
        ("BIGINT", "9" * 5000),
        ("DOUBLE", "1_0"),
        ("DOUBLE", "x"),
        ("BOOLEAN", "True"),
        ("BINARY", "%%%"),
        ("DATE", "2026-13-01"),
        ("TIMESTAMP", "noon"),
        ("DECIMAL(4,2)", "100"),
        ("DECIMAL(4,2)", "1.234"),
        ("DECIMAL(4,2)", "NaN"),
        ("DECIMAL(4,2)", "1e999999"),
    ],
)
def test_text_of_another_type_is_refused(type_: str, text: str) -> None:
    """Nothing is rounded, wrapped or guessed."""
    with pytest.raises(RequestInvalidError) as caught:
        parse_key(Schema.parse(f"k {type_}"), [("k", text)])
    assert [m["where"] for m in caught.value.details["mistakes"]] == ["query.k"]


def test_every_wrong_column_is_listed() -> None:
    """Missing, unknown, repeated and wrong ones in one answer."""
    schema = Schema.parse("a INT, b INT, c INT")
    with pytest.raises(RequestInvalidError) as caught:
        parse_key(schema, [("a", "x"), ("b", "1"), ("b", "2"), ("d", "1")])
    assert {m["code"] for m in caught.value.details["mistakes"]} == {
        "key_column_invalid",
        "key_column_twice",
        "key_column_unknown",
        "key_column_missing",
    }


def test_a_null_column_has_a_word_of_its_own() -> None:
    """Null differs from the empty string."""
    schema = Schema.parse("a STRING, b STRING")
    assert parse_key(schema, [("a", ""), ("_null", "b")]) == {"a": "", "b": None}


def test_a_time_without_a_zone_is_utc() -> None:
    """And one with a zone is the same instant in UTC."""
    schema = Schema.parse("at TIMESTAMP")
    plain = parse_key(schema, [("at", "2026-11-01T12:00:00")])
    zoned = parse_key(schema, [("at", "2026-11-01T14:00:00+02:00")])
    assert plain == zoned


def test_a_number_of_32_bits_is_the_one_that_is_stored() -> None:
    """What a person types is rounded as the table rounds it; a larger one is refused."""
    schema = Schema.parse("k FLOAT")
    assert parse_key(schema, [("k", "0.1")]) == {"k": 0.10000000149011612}
    assert parse_key(schema, [("k", "inf")]) == {"k": math.inf}
    with pytest.raises(RequestInvalidError):
        parse_key(schema, [("k", "1e39")])


def test_columns_of_the_second_key_may_be_left_out() -> None:
    """Given ones are typed and differ from null; the key's own columns stay required."""
    schema, second = Schema.parse("site STRING"), Schema.parse("rank INT, url STRING")
    for query, expected in (
        ([("site", "a")], {"site": "a"}),
        ([("site", "a"), ("url", "2")], {"site": "a", "url": "2"}),
        ([("rank", "2"), ("site", "a"), ("_null", "url")], {"site": "a", "rank": 2, "url": None}),
    ):
        assert parse_key(schema, query, optional=second) == expected
    with pytest.raises(RequestInvalidError) as caught:
        parse_key(schema, [("rank", "x"), ("url", "1"), ("url", "2"), ("n", "1")], optional=second)
    assert {(m["where"], m["code"]) for m in caught.value.details["mistakes"]} == {
        ("query.site", "key_column_missing"),
        ("query.rank", "key_column_invalid"),
        ("query.url", "key_column_twice"),
        ("query.n", "key_column_unknown"),
    }
