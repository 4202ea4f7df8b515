"""What a vectorised translator may emit, and the error for what it may not."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from cbp import Schema
from cbp.engine.kernel.arrow.groups import Groups, as_table
from cbp.engine.kernel.arrow.type_check import conform, narrow

UTC = datetime.UTC
FITS: list[tuple[str, Any]] = [
    ("BIGINT", pa.array([1, None], pa.int8())),
    ("TINYINT", pa.array([127], pa.int64())),
    ("INT", pa.array([7], pa.uint64())),
    ("DOUBLE", pa.array([1], pa.int64())),
    ("DOUBLE", pa.array([1.5], pa.float32())),
    ("FLOAT", pa.array([1.5], pa.float64())),
    ("STRING", pa.array(["a"]).dictionary_encode()),
    ("STRING", pa.array(["a"], pa.string_view())),
    ("STRING", pa.nulls(2)),
    ("BINARY", pa.array([b"ab"], pa.binary(2))),
    ("DECIMAL(6,2)", pa.array([Decimal("1.5")], pa.decimal128(38, 10))),
    ("DECIMAL(6,2)", pa.array([9999], pa.int64())),
    ("DATE", pa.array([datetime.date(2026, 1, 1)], pa.date64())),
    ("TIMESTAMP", pa.array([datetime.datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("s", "UTC"))),
    ("ARRAY<BIGINT>", pa.array([[1]], pa.large_list(pa.int8()))),
    ("MAP<STRING, DOUBLE>", pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int8()))),
    ("STRUCT<a: INT>", pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))),
]
MISFITS: list[tuple[str, Any]] = [
    ("BIGINT", pa.array([1.0])),
    ("BIGINT", pa.array(["1"])),
    ("BIGINT", pa.array([True])),
    ("TINYINT", pa.array([128])),
    ("DOUBLE", pa.array([2**53 + 1])),
    ("STRING", pa.array([b"a"])),
    ("BINARY", pa.array(["a"])),
    ("BOOLEAN", pa.array([1])),
    ("DECIMAL(6,2)", pa.array([Decimal("1.505")])),
    ("DECIMAL(6,2)", pa.array([10000])),
    ("DECIMAL(6,2)", pa.array([1.5])),
    ("DATE", pa.array([datetime.datetime(2026, 1, 1, tzinfo=UTC)])),
    ("TIMESTAMP", pa.array([datetime.date(2026, 1, 1)])),
    ("TIMESTAMP", pa.array([1], pa.timestamp("ns", "UTC"))),
    ("ARRAY<BIGINT>", pa.array([["a"]])),
    ("MAP<STRING, DOUBLE>", pa.array([{"a": 1.0}])),
    ("STRUCT<a: INT>", pa.array([{"b": 1}])),
    ("BIGINT NOT NULL", pa.array([None], pa.int64())),
    ("DATE", pa.array([2_932_897], pa.date32())),
    ("TIMESTAMP", pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))),
    ("TIMESTAMP", pa.array([-(2**63)], pa.timestamp("us", "UTC"))),
    ("ARRAY<DATE>", pa.array([[2_932_897]], pa.list_(pa.date32()))),
    ("MAP<STRING, BIGINT>", pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))),
]


@pytest.mark.parametrize(("declared", "column"), FITS, ids=lambda v: str(getattr(v, "type", v)))
def test_what_means_the_same_is_taken(declared: str, column: Any) -> None:
    """Another width or encoding of the same values is converted; values stay what they are."""
    schema = Schema.parse(f"v {declared}")
    (column_,) = conform(pa.table({"v": column}), schema).columns
    assert column_.to_pylist() == column.to_pylist()


@pytest.mark.parametrize(("declared", "column"), MISFITS, ids=lambda v: str(getattr(v, "type", v)))
def test_what_would_be_guessed_is_refused(declared: str, column: Any) -> None:
    """The message names the column, the declared type and what came."""
    with pytest.raises(TypeError, match="'v' is declared") as caught:
        conform(pa.table({"v": column}), Schema.parse(f"v {declared}"))
    assert declared in str(caught.value)


def test_columns_are_taken_by_name() -> None:
    """Their order is free; one too many or too few is refused."""
    schema = Schema.parse("a INT, b INT")
    assert conform(pa.table({"b": [2], "a": [1]}), schema).to_pylist() == [{"a": 1, "b": 2}]
    for wrong in ({"a": [1]}, {"a": [1], "b": [2], "c": [3]}, {"a": [1], "B": [2]}):
        with pytest.raises(TypeError, match="expected the columns a, b"):
            conform(pa.table(wrong), schema)


def test_tables_of_every_library_are_taken() -> None:
    """pyarrow, pandas, Polars, and dicts of NumPy arrays hold the same table."""
    schema = Schema.parse("a BIGINT, b STRING")
    columns = {"a": [1, 2], "b": ["x", "y"]}
    pd: Any = importlib.import_module("pandas")  # it ships no types
    odd_index = pd.DataFrame(columns, index=[7, 3])
    arrays = {"a": np.array([1, 2]), "b": columns["b"]}
    tables = [pa.table(columns), pa.RecordBatch.from_pydict(columns), odd_index]
    for value in [*tables, pl.DataFrame(columns), arrays]:
        assert conform(as_table(value), schema).to_pydict() == columns
    with pytest.raises(TypeError, match="got list"):
        as_table([1, 2])


@pytest.mark.parametrize("wide", [range(57), range(50, 57), [0], []])
def test_pieces_of_a_large_table_hold_all_of_it(wide: Sequence[int]) -> None:
    """No row is lost, and no piece is too large: also where wide rows stand side by side."""
    texts = [f"{i:0{60 if i in wide else 3}d}" for i in range(57)]
    table = pa.table({"v": pa.array(texts, pa.large_string())})
    pieces = list(narrow(table, pa.schema([("v", pa.string())]), bytes_max=200))
    assert max(piece.nbytes for piece in pieces) <= 200
    assert pa.concat_tables(pieces).to_pydict() == table.to_pydict()


def test_a_record_is_a_piece_however_wide_it_is() -> None:
    """A record is never cut, and no rows make no piece."""
    schema = pa.schema([("v", pa.string())])
    table = pa.table({"v": pa.array(["x" * 60] * 3, pa.large_string())})
    assert [piece.num_rows for piece in narrow(table, schema, bytes_max=10)] == [1, 1, 1]
    assert not list(narrow(table.slice(0, 0), schema))


def test_a_view_beyond_two_gigabytes_of_a_text_is_narrowed() -> None:
    """A few rows may lie anywhere in a column of any size: where they lie decides nothing.

    The texts are pages that nobody has written to, so they take no memory.
    """
    wide, rows = 1 << 20, 2_200
    texts = pa.py_buffer(np.zeros(wide * rows, np.uint8))
    ends = pa.py_buffer(np.arange(rows + 1) * wide)
    column = pa.Array.from_buffers(pa.large_string(), rows, [None, ends, texts])
    table = pa.table({"v": column, "n": np.arange(rows)}).slice(rows - 2)
    (piece,) = narrow(table, pa.schema([("v", pa.string()), ("n", pa.int64())]))
    assert piece.column("n").to_pylist() == [rows - 2, rows - 1]
    assert [len(text) for text in piece.column("v").to_pylist()] == [wide, wide]


def test_sums_and_sizes_per_group() -> None:
    """A group without records has 0; null counts as 0; a sum of more than 64 bits is refused."""
    table = pa.table({"n": [1, None, 5], "x": [0.5, 0.25, None], "t": ["a", "b", "c"]})
    groups = Groups(pa.table({"k": [0, 1, 2]}), {"rows": (table, np.array([0, 2, 2, 3]))})
    assert groups.sizes("rows").tolist() == [2, 0, 1]
    assert groups.ids("rows").tolist() == [0, 0, 2]
    assert groups.sums("rows", "n").tolist() == [1, 0, 5]
    assert groups.sums("rows", "x").tolist() == [0.75, 0.0, 0.0]
    with pytest.raises(TypeError, match=r"rows\.t is string"):
        groups.sums("rows", "t")
    with pytest.raises(AttributeError, match="use one of rows"):
        groups.sizes("row")
    large = pa.table({"n": [2**62, 2**62]})
    with pytest.raises(OverflowError):
        Groups(pa.table({"k": [0]}), {"rows": (large, np.array([0, 2]))}).sums("rows", "n")
