"""The difference of tables is that of multisets, whatever their columns hold."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.columnar.row_codes import subtract_rows
from cbp.model.dataflow.equality import identity
from tests.sampling import examples

SCHEMA = pa.schema([("a", pa.float64()), ("b", pa.list_(pa.string())), ("c", pa.int64())])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0.0, -0.0, math.nan, None, 1.5]),
        st.sampled_from([None, [], ["x"], ["x", None]]),
        st.sampled_from([None, 1, 2]),
    ),
    max_size=12,
)


def table(rows: list[Any]) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_pylist([dict(zip("abc", row, strict=True)) for row in rows], SCHEMA)


def counted(made: pa.Table) -> Counter[Any]:
    """Return how often each row is there."""
    return Counter(identity(tuple(row.values())) for row in made.to_pylist())


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, ROWS)
def test_equal_rows_take_each_other_out(rows: list[Any], gone: list[Any]) -> None:
    """Nulls, NaN, both zeros and nested values included; what is not there is handed back."""
    left, lacking = subtract_rows(table(rows), table(gone))
    have, want = counted(table(rows)), counted(table(gone))
    assert counted(left) == have - want
    assert counted(lacking) == want - have
