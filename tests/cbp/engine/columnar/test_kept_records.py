"""Records that a kept state takes: what passes unchecked is what a check would leave alone."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.columnar.kept_records import kept_shape
from cbp.engine.columnar.values import row_order, typed_row, unify
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema

SCHEMA = Schema.parse(
    "k STRING, small TINYINT, n BIGINT NOT NULL, x DOUBLE, done BOOLEAN, at TIMESTAMP"
)


class Word(StrEnum):
    """Text that is of another class."""

    A = "a"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 127, 128, -129, 1 << 63, -(1 << 63), np.int64(3), np.bool_(True)]),
    st.sampled_from([0.0, -0.0, float("nan"), 1.5, np.float64(2)]),
    st.sampled_from(["", "a", "ä", "\ud800", Word.A, b"a", datetime(2026, 1, 2, tzinfo=UTC)]),
)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Any, ...]:
    """A record that fits, with at most two values of any kind."""
    row: list[Any] = ["a", 1, 2, 1.5, True, datetime(2026, 1, 2, tzinfo=UTC)]
    for _ in range(draw(st.integers(0, 2))):
        row[draw(st.integers(0, len(row) - 1))] = draw(VALUES)
    return tuple(row)


def typed_or_why(row: tuple[Any, ...]) -> tuple[Any, ...] | str:
    try:
        return typed_row(row, SCHEMA)
    except TypeError as error:
        return str(error)


def shape_of(second: tuple[str, ...]) -> Any:
    return kept_shape(StateSpec("kept", SCHEMA, keep=True, second_key=second))


@given(rows())
def test_a_record_is_refused_or_typed_as_by_a_check_of_each_value(row: tuple[Any, ...]) -> None:
    """Also numbers out of range, text that cannot be written, and values of other classes."""
    shape, expected = shape_of(("n",)), typed_or_why(row)
    if isinstance(expected, str):
        with pytest.raises(TypeError) as caught:
            shape.typed(row)
        assert str(caught.value) == expected
        return
    actual = shape.typed(row)
    assert repr(actual) == repr(expected)
    assert list(map(type, actual)) == list(map(type, expected))


def test_columns_can_have_the_names_of_python_types() -> None:
    """What a key is checked by does not depend on the names of its columns."""
    schema = Schema.parse("type STRING, str BIGINT, int BOOLEAN")
    shape = kept_shape(StateSpec("named", schema, keep=True, second_key=schema.names))
    assert shape.getter(tuple)("a", 1, True) == ("a", 1, True)
    with pytest.raises(TypeError, match="'str' is declared BIGINT"):
        shape.given(("a", "1", True), {})


@pytest.mark.parametrize("second", [("n", "k"), ("k", "x"), ()])
@given(rows())
def test_a_second_key_is_compared_by_its_values(
    second: tuple[str, ...], row: tuple[Any, ...]
) -> None:
    """Asked for, found in a record, and ordered, it is the same key."""
    shape, typed = shape_of(second), typed_or_why(row)
    if isinstance(typed, str):
        return
    row = typed
    key = unify([row[SCHEMA.index(name)] for name in second])
    assert repr(shape.getter(tuple)(*key)) == repr(shape.given(key, {})) == repr(key)
    assert repr(shape.second_of(row)) == repr(next(iter(shape.seconds_of([row])))) == repr(key)
    assert shape.order_of(key) == row_order(key, [SCHEMA[name].type for name in second])


PLAIN = Schema.parse("k STRING, name STRING, n INT, v BIGINT NOT NULL")
SECONDS = st.tuples(
    st.sampled_from([None, "", "a", "ab", "ä", "z"]), st.sampled_from([None, -1, 0, 7])
)


@given(st.lists(SECONDS, unique=True))
def test_records_come_in_the_order_of_their_second_keys(seconds: list[tuple[Any, ...]]) -> None:
    """Nulls first, also where some have one and others do not."""
    shape = kept_shape(StateSpec("kept", PLAIN, keep=True, second_key=("name", "n")))
    given = dict.fromkeys(seconds)
    assert shape.in_order(given) == sorted(seconds, key=shape.order_of)


@given(st.lists(st.sampled_from([(None,), ("",), ("a",), ("ab",), ("ä",), ("z",)]), unique=True))
def test_the_null_of_one_column_comes_first(seconds: list[tuple[Any, ...]]) -> None:
    """A second key of one column has at most one null within a group."""
    shape = kept_shape(StateSpec("kept", PLAIN, keep=True, second_key=("name",)))
    assert shape.in_order(dict.fromkeys(seconds)) == sorted(seconds, key=shape.order_of)


@pytest.mark.parametrize(
    ("row", "exact"),
    [
        (("k", "a", 1, 2), True),
        (("k", None, None, None), True),
        (("k", Word.A, 1, 2), False),
        (("k", "a", True, 2), False),
        (("k", "a", 1.0, 2), False),
        (("k", b"a", 1, 2), False),
        (("k", "a", np.int32(1), 2), False),
    ],
)
def test_records_are_exact_if_every_value_has_the_type_of_its_column(
    row: tuple[Any, ...], exact: bool
) -> None:
    """One record of another type makes all be checked one by one."""
    shape = kept_shape(StateSpec("kept", PLAIN, keep=True, second_key=("name", "n")))
    assert shape.are_exact([("k", "a", 1, 2), row]) is exact
