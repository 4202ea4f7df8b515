"""Buckets as ranges of hashes: the bucket of a hash, the buckets of a task."""

from __future__ import annotations

__all__ = ["bucket_shift", "first_bucket"]


def bucket_shift(buckets: int) -> int:
    """Return the number of bits by which an unsigned hash is shifted to give its bucket."""
    return 64 - (buckets.bit_length() - 1)


def first_bucket(part: int, *, tasks: int, buckets: int) -> int:
    """Return the first bucket of task `part`."""
    return -(-part * buckets // tasks)
