"""Every way to look up rows finds and takes the same ones; the choice is by cost.

Index, scan and row groups find the same records.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from cbp.engine.state import bucket_state as bucket
from cbp.engine.state import lookup as access
from cbp.engine.state.bucket_state import BucketState, LiveFile, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.lookup import (
    IndexedFile,
    RowGroups,
    ascending,
    choose_rows,
    choose_search,
    matches,
    spans_of,
)
from cbp.engine.storage.engine_limits import EngineLimits
from tests.cbp.engine.inline_vectors import inline_vector
from tests.sampling import examples

HASHES = st.integers(-6, 6)
SEARCHES = {"index": 10.0**9, "scan": 0.0}


def content_of(hashes: list[int]) -> pa.Table:
    """Return rows that each say where they lie."""
    column = pa.array(hashes, pa.int64())
    texts = [f"row {at}" * 3 for at in range(len(hashes))]
    return pa.table({"text": texts, "nested": [[t] for t in texts], "_hash": column})


@given(hashes=st.lists(HASHES, max_size=30), wanted=st.sets(HASHES))
def test_both_searches_are_those_of_a_test_of_every_row(
    hashes: list[int], wanted: set[int]
) -> None:
    """Every row of a wanted hash, as often as it is there, from either side."""
    column = np.sort(np.array(hashes, np.int64))
    expected = np.flatnonzero(np.isin(column, list(wanted))).tolist()
    for share in SEARCHES.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(access, "_SCAN_FROM", share)
            assert matches(column, np.array(sorted(wanted), np.int64)).tolist() == expected


@given(
    hashes=st.lists(HASHES, max_size=30),
    wanted=st.lists(HASHES, max_size=30),
    same=st.booleans(),
    extent=st.sampled_from([6, 10**6]),
)
def test_spans_are_those_of_two_searches(
    hashes: list[int], wanted: list[int], same: bool, extent: int
) -> None:
    """Whether hashes repeat or not, for few and many wanted ones, and for those of the file."""
    ascending_, asked = (
        np.sort(np.array(some, np.int64) * np.arange(1, len(some) + 1) % extent)
        for some in (hashes, wanted)
    )
    asked = ascending_ if same else asked
    starts, stops = spans_of(ascending_, asked)
    assert (
        starts[starts < stops].tolist()
        == np.searchsorted(ascending_, asked[starts < stops], "left").tolist()
    )
    assert (stops - starts).tolist() == [np.count_nonzero(ascending_ == one) for one in asked]


class CountedBatch:
    """A batch that counts how often its size is asked."""

    asked = 0

    @property
    def nbytes(self) -> int:
        self.asked += 1
        return 7


def test_the_size_of_rows_is_added_up_once() -> None:
    """Every run asks each open file, and Arrow adds up all buffers of all columns at each call."""
    batch = CountedBatch()
    file = IndexedFile(cast(Any, batch))
    assert [file.memory, file.memory, batch.asked] == [7, 7, 1]


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data(), in_order=st.booleans(), statistics=st.booleans())
def test_row_groups_and_copies_give_the_same_rows(
    data: st.DataObject, in_order: bool, statistics: bool
) -> None:
    """Same hashes and records, whether all rows are there or the groups that may have them."""
    hashes = data.draw(st.lists(HASHES, min_size=1, max_size=30))
    content = content_of(sorted(hashes) if in_order else hashes)
    wanted = data.draw(st.one_of(st.none(), st.sets(HASHES)))
    asked = None if wanted is None else np.array(sorted(wanted), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/f.parquet"
        pq.write_table(content, path, row_group_size=4, write_statistics=statistics)
        groups = RowGroups(pq.ParquetFile(path))
        (batch,) = content.combine_chunks().to_batches()
        whole = IndexedFile(batch, sorted_=ascending(batch))
        positions, actual = groups.find(asked)
        assert (positions.tolist(), actual.tolist()) == tuple(a.tolist() for a in whole.find(asked))
        if len(positions):
            chosen = np.array(data.draw(st.permutations(positions.tolist())), np.int64)
            taken = groups.take(chosen, ["nested", "text"])
            assert taken.to_pylist() == whole.take(chosen, ["nested", "text"]).to_pylist()


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_a_bucket_finds_its_live_records_by_every_way(data: st.DataObject) -> None:
    """Files, vectors, duplicates, shared hashes: index and scan give one list of records."""
    files = data.draw(st.lists(st.lists(HASHES, min_size=1, max_size=12).map(sorted), max_size=3))
    dead = [data.draw(st.sets(st.integers(0, len(file) - 1))) for file in files]
    wanted = data.draw(st.one_of(st.none(), st.sets(HASHES)))
    asked = None if wanted is None else np.array(sorted(wanted), np.int64)
    expected = sorted(
        (hash_, at, row)
        for at, file in enumerate(files)
        for row, hash_ in enumerate(file)
        if row not in dead[at] and (wanted is None or hash_ in wanted)
    )
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        live = []
        for at, (file, gone) in enumerate(zip(files, dead, strict=True)):
            path = Path(folder) / f"{at}.parquet"
            pq.write_table(content_of(file), path, row_group_size=3)
            vector = inline_vector(BitMap64(gone)) if gone else None
            live.append(LiveFile(path.name, path.stat().st_size, len(file), vector))
        table = StateTable(folder, "id", {0: tuple(live)})
        for small, share, mask in ((0, 1.0, 64), (0, 0.0, 0), (99, 1.0, 10**9)):
            few = EngineLimits(small_file_rows=small)
            patch.setattr(access, "_SCAN_FROM", share)
            patch.setattr(bucket, "_SEARCH_COST", mask)
            for _ in range(3):  # cold, then with what the first look-ups left behind
                cache = IndexCache(f"{folder}/cache-{small}-{share}", limits=few)
                state = BucketState(table, cache, (0,))
                actual = state.find(asked)
                rows = zip(actual.hashes, actual.file, actual.position, strict=True)
                assert [tuple(map(int, row)) for row in rows] == expected
                if expected:
                    texts = state.take(actual, ["text"]).column("text").to_pylist()
                    assert texts == [f"row {row}" * 3 for _, _, row in expected]
                assert sum(state.lookups.values()) == len(files)


@pytest.mark.parametrize(("length", "most"), [(1, 20), (1000, 6), (100_000, 1)])
def test_all_records_come_few_at_a_time_where_they_are_wide(
    length: int, most: int, tmp_path: Path
) -> None:
    """Over all files by hash; the file with the widest records decides."""
    limits = EngineLimits(read_rows=20, read_bytes=6_500)
    cache = IndexCache(f"{tmp_path}/cache", limits=limits)
    live = []
    for at, width in enumerate((1, length)):
        texts = [f"{n}".ljust(width, "x") for n in range(30)]
        path = tmp_path / f"{at}.parquet"
        pq.write_table(pa.table({"text": texts, "_hash": list(range(30))}), path)
        live.append(LiveFile(path.name, path.stat().st_size, 30))
    table = StateTable(str(tmp_path), "id", {0: tuple(live)})
    read = list(BucketState(table, cache, (0,)).records(["text", "_hash"]))
    assert max(part.num_rows for part in read) == most
    together = pa.concat_tables(read)
    assert together.column("_hash").to_pylist() == [n for n in range(30) for _ in range(2)]
    assert together.column("text").to_pylist()[1::2] == texts
    assert not list(BucketState(table, cache, (1,)).records(["text"]))


def test_the_shorter_side_is_searched() -> None:
    """Few keys of many rows are searched; few rows for many keys are scanned."""
    assert choose_search(rows=1_000_000, wanted=1000) == "index"
    assert choose_search(rows=1000, wanted=1_000_000) == "scan"
    assert choose_search(rows=1000, wanted=1000) == "scan"


def test_a_copy_is_made_once_direct_reads_have_cost_a_part_of_it() -> None:
    """A look-up of few groups of rows rents them; who comes again, or wants much, buys."""
    assert choose_rows(rows=1_000_000, touched=131_072, spent=0) == "groups"
    assert choose_rows(rows=1_000_000, touched=131_072, spent=131_072) == "copy"
    assert choose_rows(rows=1_000_000, touched=500_000, spent=0) == "copy"


def test_adjoining_rows_are_not_copied() -> None:
    """A scan of all rows costs no memory: what it takes is a view."""
    batch = pa.record_batch({"_hash": np.arange(100_000)})
    before = pa.total_allocated_bytes()
    taken = IndexedFile(batch).take(np.arange(10, 90_000), ["_hash"])
    assert taken.num_rows == 89_990
    assert pa.total_allocated_bytes() - before < 10_000
