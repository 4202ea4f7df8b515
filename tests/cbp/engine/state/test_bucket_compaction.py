"""Which files a bucket merges: few files, each record rewritten rarely."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.state.bucket_compaction import FANOUT_LARGE, choose, compact
from cbp.engine.state.bucket_state import BucketState, LiveFile, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits

FANOUT = DEFAULT_LIMITS.state_fanout


def choose_of(live: list[int], rows: list[int], *full: int) -> list[int]:
    """Choose among files; those at the positions `full` are as large as files become."""
    return choose(live, rows, [at in full for at in range(len(live))], DEFAULT_LIMITS)


def test_few_files_are_left_alone() -> None:
    """Below the fan-out, of large files a smaller one, nothing is rewritten."""
    for rows, fanout in ((100, FANOUT), (100_000, FANOUT_LARGE)):
        assert choose_of([rows] * (fanout - 1), [rows] * (fanout - 1)) == []
        assert choose_of([rows] * fanout, [rows] * fanout) == list(range(fanout))


def test_a_full_tier_takes_everything_below_it() -> None:
    """Files of a tier become one, smaller ones included, larger ones not."""
    live = [100_000] * FANOUT_LARGE + [10, 1_500_000]
    assert choose_of(live, live) == list(range(FANOUT_LARGE + 1))


def test_a_large_file_is_not_touched_by_small_ones() -> None:
    """What is old and large is not rewritten for what is new and small."""
    live = [5_000_000] + [100] * FANOUT
    assert 0 not in choose_of(live, live)


def test_a_file_that_is_mostly_dead_is_rewritten() -> None:
    """Dead rows do not stay for ever."""
    assert choose_of([10_000], [100_000]) == [0]
    assert choose_of([90_000], [100_000]) == []


def test_a_file_that_is_mostly_dead_takes_up_what_is_smaller() -> None:
    """What replaces it is the only file of its size and below; full and larger ones stay."""
    live, rows = [60_000, 20_000, 100, 70_000, 50_000], [130_000, 20_000, 100, 70_000, 50_000]
    assert choose_of(live, rows, 4) == [0, 1, 2]
    assert choose_of(live, rows, 0) == [0]


def test_of_several_mostly_dead_files_the_largest_takes_up_the_others() -> None:
    """They are rewritten once, not one after the other."""
    assert choose_of([10_000, 60_000], [100_000, 130_000]) == [0, 1]


def test_a_file_without_live_rows_is_not_taken_up() -> None:
    """The run itself drops it, also beside one that is rewritten."""
    assert choose_of([60_000, 0], [130_000, 500]) == [0]


def test_a_full_file_is_left_alone_until_it_rots() -> None:
    """What cannot become larger is not rewritten to become larger."""
    live = [100] * FANOUT
    assert choose_of(live, live, *range(FANOUT)) == []
    assert 3 not in choose_of([*live, 10], [*live, 10], 3)
    assert choose_of([10_000], [100_000], 0) == [0]


def test_full_files_that_compress_well_are_not_merged_again(tmp_path: Path) -> None:
    """Full is what is full in memory: else eight such files would be rewritten in every run."""
    live = []
    for at in range(FANOUT):
        content = pa.table({"text": ["x" * 9_000], "_hash": [at]})
        pq.write_table(content, tmp_path / f"{at}.parquet", compression="zstd")
        live.append(LiveFile(f"{at}.parquet", (tmp_path / f"{at}.parquet").stat().st_size, 1))
    cache = IndexCache(str(tmp_path / "cache"), limits=EngineLimits(file_bytes=10_000))
    state = BucketState(StateTable(str(tmp_path), "id", {0: tuple(live)}), cache, (0,))
    assert compact(state, state.places(0), {}) is None


def test_a_file_without_live_rows_is_not_merged() -> None:
    """It is dropped by the run itself."""
    assert 0 not in choose_of([0] + [100] * FANOUT, [500] + [100] * FANOUT)


def test_files_and_rewrites_stay_logarithmic() -> None:
    """A thousand epochs of a thousand new records: few files, few rewrites of a record."""
    live: list[int] = []
    written = 0
    for _ in range(1000):
        chosen = set(choose_of(live, live))
        merged = sum(live[at] for at in chosen)
        live = [rows for at, rows in enumerate(live) if at not in chosen]
        live += [merged] if merged else []
        live.append(1000)
        written += 1000 + merged
    assert len(live) <= FANOUT * math.ceil(math.log(1_000_000 / 4096, FANOUT) + 1)
    assert written / 1_000_000 <= 6.5


def test_updates_hit_as_few_files_after_a_thousand_epochs_as_at_first() -> None:
    """A bucket of 125,000 keys, 125 of them changed in every epoch, at random: the files that
    a run hits, each with a vector and two actions of the log, and what is rewritten for that."""
    keys, changed = 125_000, 125
    random = np.random.default_rng(20261122)
    home = np.zeros(keys, int)
    live, rows = {0: keys}, {0: keys}
    hit, rewritten = [], 0
    for epoch in range(1, 1_001):
        wanted = np.unique(random.integers(0, keys, changed))
        files, lost = np.unique(home[wanted], return_counts=True)
        hit.append(len(files))
        for file, n in zip(files.tolist(), lost.tolist(), strict=True):
            live[file] -= n
        live = {file: n for file, n in live.items() if n}
        home[wanted] = -epoch
        chosen = choose_of(list(live.values()), [rows[file] for file in live])
        if gone := [list(live)[at] for at in chosen]:
            moved = np.isin(home, gone)
            home[moved] = epoch
            live = {file: n for file, n in live.items() if file not in gone}
            live[epoch] = rows[epoch] = int(moved.sum())
            rewritten += rows[epoch]
        live[-epoch] = rows[-epoch] = len(wanted)
    first, later = np.mean(hit[:100]), np.mean(hit[-500:])
    assert later <= 1.35 * first, f"{later:.1f} files are hit, {first:.1f} at first"
    assert rewritten <= 6.5 * changed * len(hit)
