"""Buckets of one task that are worked on together; pure.

What a bucket costs before its first record (look-up, window, check of keys) is some
milliseconds; a small run touches all buckets with a few records each. Neighbors that fit in
one window together cost that once. What is written stays apart, by bucket.

Signed hashes ascend from bucket to bucket only on one side of the sign, which the first half
of the buckets has and the second has not: no neighbors stand on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cbp.engine.layout import bucket_shift

__all__ = ["bucket_edges", "neighbors", "parted", "state_weight"]

Int64s = npt.NDArray[np.int64]

_FOUND_SHARE = 512
"""State records that weigh as much as one that arrived: of most, none is found. If all are,
since groups are large, where they lie takes 24 bytes each: 200 MB for a window's weight."""


def neighbors(sizes: Mapping[int, int], *, buckets: int, most: int) -> list[tuple[int, ...]]:
    """Return the buckets to work on, those together that may be; each once, ascending.

    Args:
        sizes: Bucket to its records, as far as they are known before.
        buckets: Of the table.
        most: Records of buckets that are worked on together; a larger one is alone.
    """
    found: list[tuple[int, ...]] = []
    total = 0
    for bucket in sorted(sizes):
        same_side = found and (found[-1][-1] < buckets // 2) == (bucket < buckets // 2)
        if same_side and total + sizes[bucket] <= most:
            found[-1] = (*found[-1], bucket)
            total += sizes[bucket]
        else:
            found.append((bucket,))
            total = sizes[bucket]
    return found


def state_weight(records: int, *, whole: bool) -> int:
    """Return what the state of a bucket counts among the records that arrived.

    Args:
        records: Live ones.
        whole: Whether all of them are called for.
    """
    return records if whole else records // _FOUND_SHARE


def bucket_edges(hashes: Int64s, chosen: Sequence[int], *, buckets: int) -> list[int]:
    """Return where each of some neighbors begins among hashes, and where the last one ends.

    Args:
        hashes: Ascending; of no other buckets than `chosen`.
        chosen: Some neighbors, ascending.
    """
    shift = bucket_shift(buckets)
    lows = np.array([bucket << shift for bucket in chosen[1:]], np.uint64).view(np.int64)
    return [0, *np.searchsorted(hashes, lows).tolist(), len(hashes)]


def parted(
    hashes: Int64s, chosen: Sequence[int], *, buckets: int
) -> Iterator[tuple[int, int, int]]:
    """Yield each of some neighbors that has hashes, with the first one and the one behind the last.

    Args are those of `bucket_edges`.
    """
    edges = pairwise(bucket_edges(hashes, chosen, buckets=buckets))
    for bucket, (start, stop) in zip(chosen, edges, strict=True):
        if stop > start:
            yield bucket, start, stop
