"""How evenly records are spread over buckets."""

from __future__ import annotations

import pytest

from cbp.model.flow.skew import BINS, BucketSize, spread


def rows(count: int) -> BucketSize:
    return BucketSize(count, dead=1, bytes=10 * count, files=2)


def test_an_even_state_has_skew_one() -> None:
    """Every bucket is the fullest one, and all are in the last bin."""
    even = spread({n: rows(5) for n in range(4)}, 4)
    assert (even.skew, even.rows, even.rows_mean, even.fullest) == (1.0, 20, 5.0, 0)
    assert even.histogram == (*[0] * (BINS - 1), 4)
    assert (even.dead, even.bytes, even.files, even.used) == (4, 200, 8, 4)


def test_empty_buckets_count_in_the_mean() -> None:
    """All records in one of eight buckets is a skew of 8, and the fullest bucket is named."""
    uneven = spread({3: rows(24)}, 8)
    assert (uneven.skew, uneven.fullest, uneven.used) == (8.0, 3, 1)
    assert uneven.histogram == (7, *[0] * (BINS - 2), 1)
    assert uneven.bin_rows == 24 / BINS


@pytest.mark.parametrize("sizes", [{}, {0: BucketSize(0, 5, 100, 1)}])
def test_a_state_without_records_has_no_skew(sizes: dict[int, BucketSize]) -> None:
    """Whether it has no files, or only deleted records."""
    none = spread(sizes, 2)
    assert (none.skew, none.fullest, none.histogram, none.rows_mean) == (None, None, (), 0.0)
