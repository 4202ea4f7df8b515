"""The state of a loop, superstep by superstep, against a dict; its tables keep their files."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.columnar.key_hash import bucket_of, flipped
from cbp.engine.state.bucket_state import BucketState, LiveFile, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.large_groups import large_groups
from cbp.engine.state.lookup import IndexedFile, StateRows
from cbp.engine.state.loop_state import LoopState
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema
from tests.sampling import examples

BUCKETS = 4
SPEC = StateSpec("s", Schema.parse("k STRING, n BIGINT"))
NAMES = ["k", "n", "_hash"]
HASHES = [5, 6, 7, (1 << 62) + 1, (1 << 62) + 2]
"""Keys of the buckets 0 and 1, whose hashes have one sign."""

_records = st.lists(st.tuples(st.sampled_from(HASHES), st.integers(0, 9)), max_size=12)
_step = st.tuples(
    st.lists(st.sampled_from(HASHES), max_size=4, unique=True), _records, st.booleans()
)
"""Keys that are deleted, records that are written, and whether another try goes on afterwards."""


def rows_of(records: list[tuple[int, int]]) -> pa.Table:
    rows = [{"k": f"k{hash_}", "n": n, "_hash": hash_} for hash_, n in sorted(records)]
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("_hash", pa.int64())])
    return pa.Table.from_pylist(rows, schema=schema)


def table_of(
    folder: Path, files: list[list[tuple[int, int]]], order: tuple[str, ...]
) -> StateTable:
    live: dict[int, tuple[LiveFile, ...]] = {}
    for number, records in enumerate(files):
        for bucket in range(BUCKETS):
            rows = rows_of([one for one in records if bucket_of(one[0], BUCKETS) == bucket])
            if rows.num_rows:
                path = folder / f"{number}-{bucket}.parquet"
                pq.write_table(rows, path)
                file = LiveFile(path.name, path.stat().st_size, rows.num_rows)
                live[bucket] = (*live.get(bucket, ()), file)
    return StateTable(str(folder), "id", live, order)


def found(state: BucketState, hashes: list[int] | None) -> list[tuple[int, int]]:
    """Return what a look-up finds; it comes by hash, and `take` gives the rows of its places."""
    wanted = None if hashes is None else np.array(sorted(hashes), np.int64)
    positions = state.find(wanted)
    assert list(positions.hashes) == sorted(positions.hashes)
    if not len(positions.hashes):
        return []
    rows = state.take(positions, NAMES)
    assert rows.column("_hash").to_pylist() == positions.hashes.tolist()
    assert rows.column("k").to_pylist() == [f"k{hash_}" for hash_ in positions.hashes]
    return sorted(zip(positions.hashes.tolist(), rows.column("n").to_pylist(), strict=True))


@pytest.mark.parametrize("order", [(), ("n",)], ids=["any", "ordered"])
@settings(max_examples=examples(40), deadline=None)
@given(
    files=st.lists(_records, max_size=3),
    steps=st.lists(_step, max_size=12),
)
def test_a_superstep_finds_what_those_before_left(
    order: tuple[str, ...],
    files: list[list[tuple[int, int]]],
    steps: list[tuple[list[int], list[tuple[int, int]], bool]],
) -> None:
    """Neither its own records nor its own deletions; the end is reported as if it was one step.

    Also where another try goes on from what the one before it saved.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(Path(folder), files, order)
        cache = IndexCache(f"{folder}/cache")
        state = LoopState(table, cache, (0, 1), BUCKETS, spec=SPEC)
        held = sorted(one for records in files for one in records)
        for hashes, records, breaks in steps:
            wanted = np.array(sorted(hashes), np.int64)
            assert found(state, hashes) == [one for one in held if one[0] in hashes]
            state.kill(state.find(wanted))
            state.add(rows_of(records))
            assert found(state, None) == held
            state.turn()
            held = sorted([*(one for one in held if one[0] not in hashes), *records])
            assert found(state, None) == held
            if breaks:
                changes = state.changes()
                state = LoopState(table, cache, (0, 1), BUCKETS, spec=SPEC)
                state.go_on_from(*changes)
                assert found(state, None) == held
        files_in_memory = len(state.files) - sum(map(len, table.live.values()))
        assert files_in_memory <= 1 + np.log2(1 + sum(len(records) for _, records, _ in steps))
        assert found(after(table, cache, state), None) == held


SIGNED = [5, 6, (1 << 62) + 1, -(1 << 63) + 3, -7]
"""Keys of all buckets; those of the last two have hashes below zero."""

_signed = st.lists(st.tuples(st.sampled_from(SIGNED), st.integers(0, 9)), max_size=12)


@settings(max_examples=examples(40), deadline=None)
@given(
    files=st.lists(_signed, max_size=3),
    steps=st.lists(st.tuples(st.lists(st.sampled_from(SIGNED), unique=True), _signed), max_size=6),
)
def test_flipped_hashes_ascend_over_all_buckets(
    files: list[list[tuple[int, int]]],
    steps: list[tuple[list[int], list[tuple[int, int]]]],
) -> None:
    """A look-up finds records of both halves of the buckets, by bucket; files keep their hashes."""
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(Path(folder), files, ())
        state = LoopState(table, IndexCache(f"{folder}/c"), (0, 1, 2, 3), BUCKETS, True, spec=SPEC)
        held = [one for records in files for one in records]
        for wanted, records in steps:
            hashes = np.sort(flipped(np.array(wanted, np.int64)))
            positions = state.find(hashes)
            assert list(positions.hashes) == sorted(positions.hashes)
            texts, numbers = list[str](), list[int]()
            if len(positions.hashes):
                texts, numbers = (
                    column.to_pylist() for column in state.take(positions, ["k", "n"]).columns
                )
            assert texts == [f"k{hash_}" for hash_ in flipped(positions.hashes)]
            expected = sorted((f"k{one[0]}", one[1]) for one in held if one[0] in wanted)
            assert sorted(zip(texts, numbers, strict=True)) == expected
            state.kill(positions)
            rows = rows_of(records)
            signs = flipped(rows.column("_hash").to_numpy())
            rows = rows.set_column(2, "_hash", pa.array(signs))
            state.add(rows.take(pa.array(np.argsort(signs, kind="stable"))))
            state.turn()
            held = [*(one for one in held if one[0] not in wanted), *records]
        born = pa.concat_tables(state.born()).column("_hash").to_pylist()
        assert born == sorted(born)


class Watched(LoopState):
    """Notes which files are opened, and how many bytes are sorted to merge records."""

    def __post_init__(self) -> None:
        LoopState.__post_init__(self)
        self.opened = set[str]()
        self.merged_bytes = 0

    def reader(self, at: int, wanted: Any) -> StateRows:
        self.opened.add(self.files[at].path)
        return LoopState.reader(self, at, wanted)

    def _sorted(self, table: pa.Table) -> pa.Table:
        self.merged_bytes += table.nbytes
        return LoopState._sorted(self, table)


def test_a_large_group_is_sought_in_the_files_of_its_bucket(tmp_path: Path) -> None:
    """A superstep of few groups opens no file of other buckets; none if no group is too large."""
    table = table_of(tmp_path, [[(hash_, 0) for hash_ in SIGNED]], ())
    cache = IndexCache(str(tmp_path / "c"))
    state = Watched(table, cache, (0, 1, 2, 3), BUCKETS, True, spec=SPEC)
    rows = rows_of([(5, n) for n in range(70)])
    state.add(rows.set_column(2, "_hash", pa.array(flipped(rows.column("_hash").to_numpy()))))
    state.turn()
    wanted = flipped(np.array([5], np.int64))
    assert large_groups(state, wanted, sys.maxsize) == {}
    assert not state.opened
    assert large_groups(state, wanted, 71) == {}
    (group,) = large_groups(state, wanted, 70).values()
    assert (group.hash, group.rows, len(group.ranges)) == (int(wanted[0]), 71, 2)
    assert state.opened == {"0-0.parquet", ""}


def test_wide_records_are_not_copied_in_each_superstep(tmp_path: Path) -> None:
    """A file in memory is merged with each newer one only if it is small in bytes, too."""
    cache = IndexCache(str(tmp_path / "c"))
    state = Watched(table_of(tmp_path, [], ()), cache, (0, 1), BUCKETS, spec=SPEC)
    wide = "x" * 100_000

    def records(first: int, stop: int) -> pa.Table:
        hashes = pa.array(range(first, stop), pa.int64())
        return pa.table({"k": [wide] * len(hashes), "n": hashes, "_hash": hashes})

    state.add(records(0, 200))
    state.turn()
    state.merged_bytes = 0
    for number in range(200, 264):
        state.add(records(number, number + 1))
        state.turn()
    assert len(state.find(None).hashes) == 264
    assert state.merged_bytes < 64 * 16 * len(wide)
    assert len(state.files) <= 1 + np.log2(64)
    state.merged_bytes = 0
    state.add(records(0, 0))
    state.turn()
    assert not state.merged_bytes


def test_a_look_up_opens_only_files_of_wanted_buckets(tmp_path: Path) -> None:
    """Others would be read for nothing; a file read by parts gets its copy in a later superstep."""
    live: dict[int, tuple[LiveFile, ...]] = {}
    for bucket, first in enumerate([5, 1 << 62]):
        rows = rows_of([(first + n, n) for n in range(400)])
        path = tmp_path / f"{bucket}.parquet"
        pq.write_table(rows, path, row_group_size=40)
        live[bucket] = (LiveFile(path.name, path.stat().st_size, rows.num_rows),)
    cache = IndexCache(str(tmp_path / "c"), limits=EngineLimits(small_file_rows=10))
    state = BucketState(StateTable(str(tmp_path), "id", live), cache, (0, 1), BUCKETS)
    assert len(state.find(np.array([5], np.int64)).hashes) == 1
    assert [*state._readers] == [0]
    for number in range(1, 8):
        state.forget_parts()
        assert len(state.find(np.array([5 + 40 * number], np.int64)).hashes) == 1
    assert isinstance(state._readers[0], IndexedFile)


def after(table: StateTable, cache: IndexCache, state: LoopState) -> BucketState:
    """Return the table's files without what the loop deleted, with one file of what it wrote."""
    final = BucketState(table, cache, (0, 1), BUCKETS)
    final.kill(state.gone())
    deaths, folder = final.deaths(), Path(table.folder)
    left = []
    for at, file in enumerate(final.files):
        rows = pq.read_table(folder / file.path)
        alive = [row for row in range(file.rows) if row not in deaths.get(at, ())]
        left.append(rows.take(pa.array(alive, pa.int64())))
    born = pa.concat_tables(state.born())
    hashes = born.column("_hash").to_pylist()
    assert hashes == sorted(hashes)
    if table.order:
        pairs = list(zip(hashes, born.column("n").to_pylist(), strict=True))
        assert pairs == sorted(pairs)
    whole = pa.concat_tables([*left, born.cast(rows_of([]).schema)])
    records = [(row["_hash"], row["n"]) for row in whole.to_pylist()]
    target = folder / "after"
    target.mkdir()
    return BucketState(
        table_of(target, [records], ()), IndexCache(f"{folder}/again"), (0, 1), BUCKETS
    )
