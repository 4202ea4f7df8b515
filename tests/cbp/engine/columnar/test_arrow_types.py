"""Tables in the types of a schema: as Arrow casts them, without work for what has its type."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cbp.engine.columnar.arrow_types import with_types


def test_a_table_gets_the_types_of_a_schema() -> None:
    """A column that has its type already is taken as it is; others are cast."""
    table = pa.table({"k": pa.array(["a", None], pa.large_string()), "n": [1, 2]})
    schema = pa.schema([("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    typed = with_types(table, schema)
    assert typed.schema.equals(schema)
    assert typed.equals(table.cast(schema))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([("n", pa.int64()), ("k", pa.string())]), "expected the columns"),
        (pa.schema([pa.field("k", pa.string(), nullable=False), ("n", pa.int64())]), "a null"),
        (pa.schema([("k", pa.string()), ("n", pa.int8())]), "not in range"),
    ],
)
def test_what_does_not_fit_is_refused(schema: pa.Schema, why: str) -> None:
    """Other names, a null where none may be, a number that is too large: nothing is cut."""
    table = pa.table({"k": ["a", None], "n": [1, 1_000]})
    with pytest.raises(ValueError, match=why):
        with_types(table, schema)
