"""What arrived, by flow and bucket: in memory or on disk, the same records, few bytes kept.

What a task keeps of a large flow does not grow with it.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.shuffle.spool import Spool
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from tests.cbp.engine.spooled import LAYOUT, batch


@pytest.mark.parametrize("bytes_max", [0, 1 << 30], ids=["disk", "memory"])
@given(
    records=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=30).map(sorted),
    size=st.integers(1, 7),
)
def test_every_bucket_has_its_records_however_they_come(
    bytes_max: int, records: list[tuple[int, int]], size: int
) -> None:
    """Each flow's records of any range of buckets, in their order, cut into any batches."""
    with Spool(LAYOUT, EngineLimits(spool_bytes=bytes_max)) as kept:
        parts = [records[at : at + size] for at in range(0, len(records), size)]
        kept.take(
            batch([f for f, _ in part], [b for _, b in part], at * size)
            for at, part in enumerate(parts)
        )
        assert kept.sizes() == Counter(b for _, b in records)
        for flow in (0, 1):
            mine = [(n, b) for n, (f, b) in enumerate(records) if f == flow]
            assert kept.arrived(flow) == len(mine)
            for first in range(6):
                for last in range(first, 6):
                    wanted = [n for n, b in mine if first <= b <= last]
                    table = kept.between(flow, first, last)
                    assert table.column("_seq").to_pylist() == wanted


def test_what_is_kept_of_a_large_flow_does_not_grow_with_it() -> None:
    """Memory holds less than a byte for each of 400,000 records on disk, and none by bucket."""
    size, many = 2_000, 200

    def made() -> Iterator[pa.RecordBatch]:
        for at in range(many):
            yield batch([0] * size, [at // 50] * size, at * size)

    tracemalloc.start()
    try:
        with Spool(LAYOUT, EngineLimits(spool_bytes=1 << 16)) as kept:
            kept.take(made())
            assert kept.sizes() == dict.fromkeys(range(4), size * many // 4)
            assert kept.between(0, 1, 2).num_rows == size * many // 2
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size * many


@pytest.mark.parametrize("hashes", [[3, 5, -2, -1], [5, 3, -1, -2]], ids=["in order", "in none"])
def test_what_is_in_order_is_not_sorted(hashes: list[int]) -> None:
    """Results often come by unsigned hash; then they stay where they are, and no text is copied."""
    arrived = batch([0] * 4, [0, 0, 1, 1], 0).set_column(2, "_hash", pa.array(hashes))
    with Spool(LAYOUT, DEFAULT_LIMITS) as kept:
        kept.take([arrived], ordered=False)
        actual = kept.between(0, 0, 1)
        assert actual.column("_hash").to_pylist() == [3, 5, -2, -1]
        same = (
            actual.column("k0").chunk(0).buffers()[2].address == arrived["k0"].buffers()[2].address
        )
        assert same == (hashes == [3, 5, -2, -1])
