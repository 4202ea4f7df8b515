"""Wide records are read few at a time, narrow ones many; together they are the file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.delta.live_records import read_batches
from cbp.engine.storage.engine_limits import EngineLimits


@pytest.mark.parametrize(("length", "most"), [(1, 40), (1000, 5), (100_000, 1)])
def test_a_batch_has_as_many_records_as_fit(length: int, most: int, tmp_path: Path) -> None:
    """By bytes or by number, whichever ends first; and one record at least."""
    limits = EngineLimits(read_rows=40, read_bytes=6_000)
    texts = [f"{n:06d}".ljust(length, "x") for n in range(100)]
    table = pa.table({"n": list(range(100)), "text": texts})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=50)
    batches = list(read_batches(str(tmp_path / "f.parquet"), ["n", "text"], limits=limits))
    assert max(batch.num_rows for batch in batches) == most
    assert pa.Table.from_batches(batches).equals(table)
    narrow = read_batches(str(tmp_path / "f.parquet"), ["n"], limits=limits)
    (only,) = {tuple(batch.schema.names) for batch in narrow}
    assert only == ("n",)
