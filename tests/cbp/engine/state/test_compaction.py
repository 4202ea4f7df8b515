"""Which files a bucket merges: few files, each record rewritten rarely."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.state import sizes
from cbp.engine.state.bucket import BucketState, LiveFile, StateTable
from cbp.engine.state.compaction import FANOUT, choose, compact
from cbp.engine.state.index import IndexCache


def choose_of(live: list[int], rows: list[int], *full: int) -> list[int]:
    """Choose among files; those at the positions `full` are as large as files become."""
    return choose(live, rows, [at in full for at in range(len(live))])


def test_few_files_are_left_alone() -> None:
    """Below the fan-out nothing is rewritten."""
    assert choose_of([100] * (FANOUT - 1), [100] * (FANOUT - 1)) == []


def test_a_full_tier_takes_everything_below_it() -> None:
    """Eight files of a tier become one of the next, smaller ones included."""
    live = [100_000] * FANOUT + [10]
    assert choose_of(live, live) == list(range(FANOUT + 1))


def test_a_large_file_is_not_touched_by_small_ones() -> None:
    """What is old and large is not rewritten for what is new and small."""
    live = [5_000_000] + [100] * FANOUT
    assert 0 not in choose_of(live, live)


def test_a_file_that_is_mostly_dead_is_rewritten() -> None:
    """Dead rows do not stay for ever."""
    assert choose_of([10_000], [100_000]) == [0]
    assert choose_of([90_000], [100_000]) == []


def test_a_full_file_is_left_alone_until_it_rots() -> None:
    """What cannot become larger is not rewritten to become larger."""
    live = [100] * FANOUT
    assert choose_of(live, live, *range(FANOUT)) == []
    assert 3 not in choose_of([*live, 10], [*live, 10], 3)
    assert choose_of([10_000], [100_000], 0) == [0]


def test_full_files_that_compress_well_are_not_merged_again(tmp_path: Path) -> None:
    """Full is what is full in memory: else eight such files would be rewritten in every run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "FILE_BYTES_MAX", 10_000)
        live = []
        for at in range(FANOUT):
            content = pa.table({"text": ["x" * 9_000], "_hash": [at]})
            pq.write_table(content, tmp_path / f"{at}.parquet", compression="zstd")
            live.append(LiveFile(f"{at}.parquet", (tmp_path / f"{at}.parquet").stat().st_size, 1))
        cache = IndexCache(str(tmp_path / "cache"))
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
    assert written / 1_000_000 <= 5
