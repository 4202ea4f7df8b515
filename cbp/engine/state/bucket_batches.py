"""Batches of small buckets (neighbors) that a task processes together; pure.

A bucket costs some milliseconds before its first record (look-up, window, check of keys). A small
run touches all buckets with a few records each. Neighbors that fit in one window together pay
that cost once. What is written stays separate by bucket.

Signed hashes ascend from bucket to bucket only among hashes of one sign. The first half of the
buckets has one sign, the second half the other, so no batch has buckets of both halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cbp.engine.columnar.key_hash import bucket_shift

__all__ = ["bucket_edges", "neighbors", "parted", "state_weight"]

Int64s = npt.NDArray[np.int64]

_STATE_RECORDS_PER_INPUT = 512
"""Number of state records that weigh as much as one arrived record, since most are not found. If
all are found, because the groups are large, their places take 24 bytes each: 200 MB a window."""


def neighbors(sizes: Mapping[int, int], *, buckets: int, most: int) -> list[tuple[int, ...]]:
    """Return the buckets in batches to process together; each bucket once, ascending.

    Args:
        sizes: Bucket to its number of records, as far as known beforehand.
        buckets: Number of buckets of the table.
        most: Maximum number of records of a batch; a bucket with more is alone.
    """
    batches: list[tuple[int, ...]] = []
    total = 0
    for bucket in sorted(sizes):
        same_side = batches and (batches[-1][-1] < buckets // 2) == (bucket < buckets // 2)
        if same_side and total + sizes[bucket] <= most:
            batches[-1] = (*batches[-1], bucket)
            total += sizes[bucket]
        else:
            batches.append((bucket,))
            total = sizes[bucket]
    return batches


def state_weight(records: int, *, whole: bool) -> int:
    """Return how many arrived records the state of a bucket weighs.

    Args:
        records: Number of live state records.
        whole: Whether the groups of all of them are called.
    """
    return records if whole else records // _STATE_RECORDS_PER_INPUT


def bucket_edges(hashes: Int64s, chosen: Sequence[int], *, buckets: int) -> list[int]:
    """Return where the hashes of each neighbor begin, and where those of the last one end.

    Args:
        hashes: Ascending hashes, all in buckets of `chosen`.
        chosen: Some neighbors, ascending.
        buckets: Number of buckets of the table.
    """
    shift = bucket_shift(buckets)
    lows = np.array([bucket << shift for bucket in chosen[1:]], np.uint64).view(np.int64)
    return [0, *np.searchsorted(hashes, lows).tolist(), len(hashes)]


def parted(
    hashes: Int64s, chosen: Sequence[int], *, buckets: int
) -> Iterator[tuple[int, int, int]]:
    """Yield each neighbor that has hashes, with the range (start, stop) of its hashes.

    The arguments are those of `bucket_edges`.
    """
    edges = pairwise(bucket_edges(hashes, chosen, buckets=buckets))
    for bucket, (start, stop) in zip(chosen, edges, strict=True):
        if stop > start:
            yield bucket, start, stop
