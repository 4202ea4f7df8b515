"""Skew: how evenly the records of a state are spread over its buckets; pure.

mean      records per bucket, over all declared buckets, empty ones included
skew      records of the fullest bucket, divided by the mean: 1.0 is even
histogram bins of equal width from 0 to the fullest bucket, and how many buckets are in each
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BINS = 12
"""Bins of a histogram: enough to see two humps, few enough for a small picture."""


@dataclass(frozen=True, slots=True)
class BucketSize:
    """The size of one bucket of a state.

    Attributes:
        rows: Live records.
        dead: Deleted records whose files are not rewritten yet; `bytes` includes them.
    """

    rows: int
    dead: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The size of a state, and how it is spread over its buckets; see the module header.

    Attributes:
        used: Buckets that hold files.
        fullest: The bucket with the most records (the lowest if several have as many); `None`
            if there are no records.
        skew: `None` without records.
        histogram: Number of buckets per bin, `BINS` of them; empty without records.
        bin_rows: Width of a bin in records.
    """

    buckets: int
    used: int
    rows: int
    dead: int
    bytes: int
    files: int
    rows_mean: float
    rows_max: int
    fullest: int | None
    skew: float | None
    histogram: tuple[int, ...]
    bin_rows: float


def spread(sizes: Mapping[int, BucketSize], buckets: int) -> Spread:
    """Return the size of a state and its skew; buckets without files can be left out of `sizes`."""
    counts = [size.rows for size in sizes.values()]
    counts += [0] * max(0, buckets - len(counts))
    rows, rows_max = sum(counts), max(counts)
    mean = rows / len(counts)
    histogram = [0] * BINS if rows_max else []
    for count in counts if rows_max else ():
        histogram[min(BINS - 1, count * BINS // rows_max)] += 1
    fullest = [bucket for bucket, size in sizes.items() if size.rows == rows_max]
    return Spread(
        buckets=buckets,
        used=sum(size.files > 0 for size in sizes.values()),
        rows=rows,
        dead=sum(size.dead for size in sizes.values()),
        bytes=sum(size.bytes for size in sizes.values()),
        files=sum(size.files for size in sizes.values()),
        rows_mean=mean,
        rows_max=rows_max,
        fullest=min(fullest) if rows_max else None,
        skew=rows_max / mean if rows_max else None,
        histogram=tuple(histogram),
        bin_rows=rows_max / BINS,
    )
