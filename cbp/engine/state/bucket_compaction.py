"""Compaction of a bucket by tiers of size, inside a run that touches it; there is no second writer.

As soon as a tier has as many files as its fan-out, they and all smaller files become one file, of
this tier or the next: a record is rewritten O(log n) times in its life. A *rotten* file, with
mostly dead rows, is rewritten together with all smaller files. Full files
(`cbp.engine.storage.file_sizes`) are not merged. The package README explains why.

The merged file has the records that are live after this run, sorted by hash, and by the columns
of `StateTable.order` if there are any: the same records in another layout (`dataChange` is false).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from cbp.engine.state.bucket_state import BucketState, in_order
from cbp.engine.state.lookup import IndexedFile
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.storage.file_sizes import is_full

FANOUT_LARGE = 3
"""Number of files that start a merge, in every tier except the lowest. The trade-off:
`tests/cbp/engine/state/test_bucket_compaction.py`."""

_TIER_FACTOR = 8
_DEAD_SHARE_MAX = 0.5
_HASH_MAX = 2**63 - 1
_PIECE_BYTES = 32 << 20
"""Bytes of the pieces that are merged at a time; a larger group is merged file by file."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Merged records ordered by hash, and the indexes of the files that they replace."""

    tables: Iterator[pa.Table]
    replaces: tuple[int, ...]


def compact(
    state: BucketState, places: Sequence[int], died: Mapping[int, BitMap64]
) -> Merged | None:
    """Merge the files of a bucket, at `places`, that are worth merging; `None` if there are none.

    `died` are rows that this run deleted, by file; they belong to the same commit.
    """
    limits = state.cache.limits
    files = [state.files[at] for at in places]
    live = [state.files[at].live - len(died.get(at, ())) for at in places]
    rows = [file.rows for file in files]
    full = [is_full(limits, rows=file.rows, size=file.size) for file in files]
    chosen = choose(live, rows, full, limits)
    if len(chosen) > 1:
        # The log has only the size in Parquet. A file that compresses well can be full although it
        # is small there, and merging it would result in as many files again, run after run.
        full = [
            full[at]
            or (at in chosen and is_full(limits, rows=rows[at], memory=state.open(place).memory))
            for at, place in enumerate(places)
        ]
        chosen = choose(live, rows, full, limits)
    merged = tuple(places[at] for at in chosen)
    return Merged(_merged(state, merged, died), merged) if merged else None


def live_records(state: BucketState) -> Iterator[pa.Table]:
    """Yield all records of a bucket, ascending by hash, in batches; see `_merged`."""
    if state.files:
        yield from _merged(state, range(len(state.files)), {})


def _merged(
    state: BucketState, chosen: Sequence[int], died: Mapping[int, BitMap64]
) -> Iterator[pa.Table]:
    """Yield the live records of some files, ascending by hash, in batches.

    All files are cut at the same hashes, so the pieces follow each other.
    """
    files = [state.open(at) for at in chosen]
    dead = [state.dead_rows(at) | died[at] if at in died else state.dead_rows(at) for at in chosen]
    limits, order = state.cache.limits, state.table.order
    longest = max((file.hashes for file in files), key=len)
    most = limits.merge_rows
    size = max(file.memory / max(len(file.hashes), 1) for file in files)
    step = min(most // len(files), int(_PIECE_BYTES / len(files) / max(size, 1)))
    step = max(1, step)
    starts = [0] * len(files)
    for cut in [*_cuts(longest[step::step]), None]:
        spans = []
        for i, file in enumerate(files):
            stop = len(file.hashes) if cut is None else int(np.searchsorted(file.hashes, cut))
            if stop > starts[i]:
                spans.append((i, starts[i], stop))
            starts[i] = stop
        ends = {int(files[i].hashes[at]) for i, a, b in spans for at in (a, b - 1)}
        pieces = (piece for span in spans for piece in _live(files, dead, span, most))
        if len(ends) == 1:  # one group, perhaps a huge one
            yield from sorted_tables(pieces, order, limits=limits) if order else pieces
        elif parts := list(pieces):
            table = pa.concat_tables(parts)
            yield in_order(table, order) if len(parts) > 1 or order else table


def _live(
    files: Sequence[IndexedFile], dead: Sequence[BitMap64], span: tuple[int, int, int], most: int
) -> Iterator[pa.Table]:
    i, first, last = span
    for start in range(first, last, most):
        rows = files[i].live(start, min(start + most, last), dead[i])
        if len(rows):
            yield files[i].take(rows, files[i].columns)


def _cuts(samples: npt.NDArray[np.int64]) -> list[int]:
    """Return hashes at which to cut; a group with several samples becomes a piece of its own."""
    repeated = samples[1:][samples[1:] == samples[:-1]]
    behind = repeated[repeated < _HASH_MAX] + 1
    cuts: list[int] = np.unique(np.concatenate([samples, behind])).tolist()
    return cuts


def choose(live: list[int], rows: list[int], full: list[bool], limits: EngineLimits) -> list[int]:
    """Choose files to merge: a full tier or a mostly dead file, and all smaller files; pure."""
    lowest = limits.state_tier_rows
    tiers = [
        -1 if full[at] or not rows_ else max(0, math.ceil(math.log(rows_ / lowest, _TIER_FACTOR)))
        for at, rows_ in enumerate(live)
    ]
    for tier in sorted({t for t in tiers if t >= 0}, reverse=True):
        members = [at for at, t in enumerate(tiers) if t == tier]
        if len(members) >= (FANOUT_LARGE if tier else limits.state_fanout):
            return [at for at, t in enumerate(tiers) if 0 <= t <= tier]
    rotten = [
        at
        for at, count in enumerate(live)
        if 0 < count < rows[at] * (1 - _DEAD_SHARE_MAX) and rows[at] > lowest
    ]
    if not rotten:
        return []
    largest = max(rotten, key=live.__getitem__)
    if full[largest]:
        return [largest]
    return [at for at, n in enumerate(live) if 0 < n <= live[largest] and not full[at]]
