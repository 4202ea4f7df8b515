"""Groups of state that are too large for a window: found as ranges of rows, read in pieces.

A file is sorted by hash, so a group is one range of rows in each file. Ranges need no
memory per record; the positions of a group of 20 M records would need 500 MB. To find the large
groups, every `stride`-th hash of a file is sampled. A run of at least 2 * `stride` equal hashes
gives two equal neighboring samples. This touches few pages of the file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.delta.deletion_vectors import live_in
from cbp.engine.state.bucket_state import BucketState, RecordPositions

_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """The live records of one hash in one bucket.

    A range has the index of a file, and its first row and last row + 1, dead rows included.
    """

    state: BucketState
    hash: int
    ranges: tuple[tuple[int, int, int], ...]
    rows: int

    def positions(self) -> Iterator[RecordPositions]:
        """Yield the places of the live records, in batches."""
        for at, first, last in self.ranges:
            file = self.state.whole(at)
            step = max(1, _READ_BYTES * len(file.hashes) // max(file.memory, 1))
            for start in range(first, last, step):
                rows = live_in(self.state.dead_rows(at), start, min(start + step, last))
                if len(rows):
                    hashes = np.full(len(rows), self.hash, np.int64)
                    yield RecordPositions(hashes, np.full(len(rows), at, np.int64), rows)

    def tables(self, columns: Sequence[str]) -> Iterator[tuple[pa.Table, RecordPositions]]:
        """Yield the records in batches, each batch with its places."""
        for positions in self.positions():
            file = self.state.whole(int(positions.file[0]))
            yield file.take(positions.position, columns), positions


def large_groups(state: BucketState, wanted: Int64s | None, above: int) -> dict[int, LargeGroup]:
    """Return the groups with more than `above` live records, by hash; only wanted ones."""
    if above == sys.maxsize:
        return {}
    hashes, held, files_max = set[int](), state.in_memory, 0
    rows_held = sum(state.files[at].live for at in held)
    for bucket, mine in _by_bucket(state, wanted):
        places = state.places(bucket)
        if rows_held + sum(state.files[at].live for at in places) > above:
            files = len(places) + len(held)
            files_max = max(files_max, files)
            stride = max(1, above // (2 * files))
            hashes.update(*(_repeated(state, at, stride, mine) for at in places))
    if files_max:
        stride = max(1, above // (2 * files_max))
        hashes.update(*(_repeated(state, at, stride, wanted) for at in held))
    if wanted is not None and hashes:
        hashes &= set(np.intersect1d(wanted, np.array([*hashes], np.int64)).tolist())
    groups = (_group(state, hash_) for hash_ in sorted(hashes))
    return {group.hash: group for group in groups if group.rows > above}


def _by_bucket(state: BucketState, wanted: Int64s | None) -> Iterator[tuple[int, Int64s | None]]:
    if wanted is None:
        yield from ((bucket, None) for bucket in state.buckets)
        return
    for bucket, start, stop in state.buckets_of(wanted):
        yield bucket, wanted[start:stop]


def _repeated(state: BucketState, at: int, stride: int, wanted: Int64s | None) -> list[int]:
    """Return hashes that may belong to large groups in one file."""
    filed = None if wanted is None else state.as_filed(at, wanted)
    repeated = [*state.known(at, filed).repeated(stride, filed)]
    hashes: list[int] = state.as_filed(at, np.array(repeated, np.int64)).tolist()
    return hashes


def without(state: BucketState, groups: Sequence[int], wanted: Int64s | None) -> RecordPositions:
    """Return the live records of `wanted` (`None` means all), except those of some groups."""
    if not groups:
        return state.find(wanted)
    gone = np.array(groups, np.int64)
    if wanted is not None:
        return state.find(np.setdiff1d(wanted, gone, assume_unique=True))
    assert not state.flips, "a state with flipped hashes cannot be searched for all groups"
    every = [state.whole(at).others(gone) for at in range(len(state.files))]
    return state.find(np.unique(np.concatenate(every)))


def _group(state: BucketState, hash_: int) -> LargeGroup:
    ranges, rows, wanted = [], 0, np.array([hash_], np.int64)
    for at, _, _ in state.files_of(wanted):
        filed = state.as_filed(at, wanted)
        first, last = state.whole(at).span(int(filed[0]))
        if last > first:
            ranges.append((at, first, last))
            rows += last - first - state.dead_rows(at).range_cardinality(first, last)
    return LargeGroup(state, hash_, tuple(ranges), rows)
