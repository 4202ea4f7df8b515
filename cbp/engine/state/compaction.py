"""Compaction of a bucket, inside a run that touches it; there is no second writer.

Run files are merged by size tiers: as soon as `FANOUT` files of one tier lie in a
bucket, they become one file of the next tier. Each record is therefore rewritten at
most once per tier, that is O(log n) times in its life, and a bucket holds at most
`FANOUT` files per tier. A file most of whose rows are dead is rewritten too.

The merged file holds the records that are live after this run, sorted by hash: the
same records, another layout (`dataChange` is false).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cbp.engine.state.bucket import BucketState
from cbp.engine.state.vectors import rows_of

__all__ = ["FANOUT", "Merged", "compact"]

FANOUT = 8
_TIER_ZERO_ROWS = 4096
_DEAD_SHARE_MAX = 0.5
_ROWS_MAX = 8_000_000


@dataclass(frozen=True, slots=True)
class Merged:
    """Records of some files, and the positions of the files that they replace."""

    table: pa.Table
    replaces: tuple[int, ...]


def compact(state: BucketState, died: Mapping[int, BitMap64]) -> Merged | None:
    """Merge what is worth merging; `None` when nothing is.

    Args:
        died: Rows that this run deleted, by file; they belong to the same commit.
    """
    chosen = choose(
        [_live_rows(state, at, died) for at in range(len(state.files))],
        [file.rows for file in state.files],
    )
    if not chosen:
        return None
    parts = [_live(state, at, died) for at in chosen]
    table = pa.concat_tables(parts)
    order = np.argsort(table.column("_hash").to_numpy(), kind="stable")
    return Merged(table.take(pa.array(order)), tuple(chosen))


def choose(live: list[int], rows: list[int]) -> list[int]:
    """Return the files to merge: a full tier with everything below it, or rotten files; pure.

    Args:
        live: Live rows of every file; a file without any is dropped by the run itself.
        rows: Physical rows of every file.
    """
    tiers = [_tier(count) if count else -1 for count in live]
    for tier in sorted({t for t in tiers if t >= 0}, reverse=True):
        members = [at for at, t in enumerate(tiers) if t == tier]
        if len(members) >= FANOUT and sum(live[at] for at in members) <= _ROWS_MAX:
            return [at for at, t in enumerate(tiers) if 0 <= t <= tier]
    rotten = [
        at
        for at, count in enumerate(live)
        if 0 < count < rows[at] * (1 - _DEAD_SHARE_MAX) and rows[at] > _TIER_ZERO_ROWS
    ]
    return rotten[:1]


def _tier(rows: int) -> int:
    return max(0, math.ceil(math.log(max(rows, 1) / _TIER_ZERO_ROWS, FANOUT)))


def _live_rows(state: BucketState, at: int, died: Mapping[int, BitMap64]) -> int:
    dead = state.files[at].dead + (len(died[at]) if at in died else 0)
    return state.files[at].rows - dead


def _live(state: BucketState, at: int, died: Mapping[int, BitMap64]) -> pa.Table:
    dead = state.dead_rows(at) | died[at] if at in died else state.dead_rows(at)
    keep = np.ones(state.files[at].rows, np.bool_)
    keep[rows_of(dead)] = False
    batch = state.open(at).batch.filter(pa.array(keep))
    return pa.Table.from_batches([batch])
