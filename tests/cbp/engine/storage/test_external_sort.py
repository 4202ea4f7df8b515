"""Sorting outside of memory: the order of records, whatever the size of runs and blocks.

State of groups larger than memory is the reference's in any order of reading and emitting.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.columnar.values import row_order
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.model.flow.schema import Schema
from tests.sampling import examples

SCHEMA = Schema.parse("x DOUBLE, s STRING, n INT")
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, float("nan"), -1.0, 0.0, 2.5, float("inf")]),
        st.sampled_from([None, "", "a", "ä", "zz" * 20]),
        st.integers(-2, 2),
    ),
    max_size=40,
)
ARROW = pa.schema([("x", pa.float64()), ("s", pa.large_string()), ("n", pa.int32())])


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    """Return rows as a table of the wide types."""
    columns = list(zip(*rows, strict=True)) or [()] * 3
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], schema=ARROW
    )


@settings(max_examples=examples(30), deadline=None)
@given(parts=st.lists(ROWS, max_size=5), run=st.integers(1, 600), block=st.integers(1, 200))
def test_rows_come_in_the_order_of_records(
    parts: list[list[tuple[object, ...]]], run: int, block: int
) -> None:
    """Nulls first, then ascending, NaN last, in every column: as the reference orders them."""
    types = [f.type for f in SCHEMA.fields]
    rows = [row for part in parts for row in part]
    limits = EngineLimits(sort_run_bytes=run, sort_block_bytes=block)
    actual = list(sorted_tables(map(table_of, parts), ["x", "s", "n"], limits=limits))
    got = [tuple(row.values()) for table in actual for row in table.to_pylist()]
    assert repr(got) == repr(sorted(rows, key=lambda row: row_order(row, types)))


def test_memory_is_bounded_by_a_run() -> None:
    """Ten times as many rows as a run holds: what is in memory stays near a few runs."""
    limits = EngineLimits(sort_run_bytes=1 << 20, sort_block_bytes=64 << 10)
    peak = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal peak
        for part in range(100):
            column = [(i * 7919 + part * 31) % 100_003 for i in range(13_000)]
            yield pa.table({"n": pa.array(column, pa.int64())})
            peak = max(peak, pa.total_allocated_bytes() - before)

    before, last, rows = pa.total_allocated_bytes(), -1, 0
    for table in sorted_tables(tables(), ["n"], limits=limits):
        peak = max(peak, pa.total_allocated_bytes() - before)
        assert table.column("n")[0].as_py() >= last
        last, rows = table.column("n")[-1].as_py(), rows + table.num_rows
    assert rows == 1_300_000
    assert peak < 6 << 20
