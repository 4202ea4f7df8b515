"""Damaged index copies: found before a row of them is used, named, and made anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.state import copies
from cbp.engine.state import index_cache as index
from cbp.engine.state.bucket_state import BucketState, LiveFile, StateTable
from cbp.engine.state.copies import NOTES_BYTES_MAX, dropped_copies, note_dropped
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.lookup import IndexedFile
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.flow.schema import Schema

ROWS = 6000
BLOCK = 4096
LIMITS = EngineLimits(copy_block_bytes=BLOCK, whole_copy_bytes=0)
"""The copy of a test has many blocks, none of which is checked for being small."""
COLUMNS = ["url", "n", "tags", "flag"]


@pytest.fixture
def content() -> pa.Table:
    """Return records with columns of every layout that a copy can have."""
    random = np.random.default_rng(3)
    return pa.table(
        {
            "url": [None if n % 97 == 0 else f"/k{n}" * (n % 5) for n in range(ROWS)],
            "n": random.integers(0, 9, ROWS),
            "tags": [[f"t{n}"] * (n % 3) for n in range(ROWS)],
            "flag": [n % 3 == 0 for n in range(ROWS)],
            "_hash": np.sort(random.integers(-(2**63), 2**63 - 1, ROWS)),
        }
    )


@pytest.fixture
def table(content: pa.Table, tmp_path: Path) -> StateTable:
    """Write them as the one file of a state's table, and make its copy."""
    folder = tmp_path / "table"
    folder.mkdir()
    pq.write_table(content, folder / "run.parquet")
    file = LiveFile("run.parquet", (folder / "run.parquet").stat().st_size, ROWS)
    table = StateTable(str(folder), "id", {0: (file,)})
    look_up(table, IndexCache(str(tmp_path / "cache"), limits=LIMITS), None)
    return table


def the_copy(tmp_path: Path) -> Path:
    """Return the only copy below the cache folder."""
    (copy,) = (tmp_path / "cache").rglob("*.arrow")
    return copy


def look_up(table: StateTable, cache: IndexCache, wanted: np.ndarray | None) -> pa.Table:
    """Find some keys and take their records, as a task does."""
    state = BucketState(table, cache, (0,))
    return state.take(state.find(wanted), COLUMNS)


def as_written(content: pa.Table, rows: np.ndarray | slice = slice(None)) -> pa.Table:
    """Return some records as a look-up gives them; in memory, since maps may be cut off."""
    wide = {"url": pa.large_string()}
    fields = [f.with_type(wide.get(f.name, f.type)) for f in content.select(COLUMNS).schema]
    return content.take(np.arange(ROWS)[rows]).select(COLUMNS).cast(pa.schema(fields))


def rewrite(copy: Path, content: bytes) -> None:
    """Put other bytes under a copy's name; never in place, since a map of it may live."""
    copy.unlink()
    copy.write_bytes(content)


def test_no_flipped_bit_of_a_copy_reaches_a_look_up(
    table: StateTable, content: pa.Table, tmp_path: Path
) -> None:
    """Wherever it is: rows, hashes, offsets, validity, schema, footer, checksums.

    Each of 300 places is flipped by itself; a process that maps the copy afterwards finds the
    records that were written, and a reader that met the place has dropped the copy and named it.
    """
    copy = the_copy(tmp_path)
    whole = copy.read_bytes()
    random = np.random.default_rng(7)
    hashes = content["_hash"].to_numpy()
    rows = np.sort(random.choice(ROWS, 40, replace=False))
    few = as_written(content, rows)
    named = 0
    ends = [0, 9, len(whole) - 1, len(whole) - 40, len(whole) - 100]
    for place in [*random.integers(0, len(whole), 295).tolist(), *ends]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(random.integers(8))
        rewrite(copy, bytes(flipped))
        records = look_up(table, IndexCache(str(tmp_path / "cache"), limits=LIMITS), hashes[rows])
        assert records.equals(few), place
        if copy.read_bytes() == whole:
            named += 1
    notes = dropped_copies(tmp_path / "cache")
    assert len(notes) == named > 100
    assert {note["copy"] for note in notes} == {str(copy)}
    assert {note["file"] for note in notes} == {f"{table.folder}/run.parquet"}


@pytest.mark.parametrize("wanted", [None, slice(0, ROWS, 3)], ids=["all", "some"])
def test_zeroed_parts_are_found_in_the_middle_of_a_look_up(
    wanted: slice | None, table: StateTable, content: pa.Table, tmp_path: Path
) -> None:
    """A map that was good so far is replaced in its place; what was found before stays right."""
    copy = the_copy(tmp_path)
    whole = copy.read_bytes()
    hashes = None if wanted is None else content["_hash"].to_numpy()[wanted]
    expected = as_written(content, wanted or slice(None))
    for at in range(0, len(whole), 3 * BLOCK):
        end = min(at + BLOCK, len(whole))
        rewrite(copy, whole[:at] + bytes(end - at) + whole[end:])
        state = BucketState(table, IndexCache(str(tmp_path / "cache"), limits=LIMITS), (0,))
        actual = state.find(hashes)
        parts = [
            state.take(actual.part(n, n + 500), COLUMNS) for n in range(0, len(actual.hashes), 500)
        ]
        assert pa.concat_tables(parts).equals(expected)


def cut(copy: Path) -> None:
    """Cut a copy off in place, under the maps of it."""
    os.truncate(copy, 5 * BLOCK)


def vanish(copy: Path) -> None:
    """Take a copy away, as eviction does."""
    copy.unlink()


def replace(copy: Path) -> None:
    """Put another file under the copy's name, as a process that made it anew."""
    rewrite(copy, b"ARROW1" * 10_000)


@pytest.mark.parametrize("change", [cut, vanish, replace])
def test_a_copy_that_changes_under_its_map_kills_nobody(
    change: Callable[[Path], None], table: StateTable, content: pa.Table, tmp_path: Path
) -> None:
    """Cut off, it would answer with a signal: rows are read before the map is touched."""
    hashes = content["_hash"].to_numpy()
    state = BucketState(table, IndexCache(str(tmp_path / "cache"), limits=LIMITS), (0,))
    actual = state.find(hashes[:4])
    change(the_copy(tmp_path))
    everything = state.find(None)
    assert len(everything.hashes) == ROWS
    assert state.take(actual, COLUMNS).num_rows == 4
    assert state.take(everything, COLUMNS).equals(as_written(content))


def test_a_copy_that_was_cut_off_later_is_let_go(
    table: StateTable, content: pa.Table, tmp_path: Path
) -> None:
    """Its size is asked again at each use, also once all was checked."""
    now = [1e9]
    cache = IndexCache(str(tmp_path / "cache"), clock=lambda: now[0], limits=LIMITS)
    look_up(table, cache, None)
    os.truncate(the_copy(tmp_path), 100)
    now[0] += index.TOUCH_SECONDS + 1
    assert look_up(table, cache, None).equals(as_written(content))
    (note,) = dropped_copies(tmp_path / "cache")
    assert note["why"] == "it was truncated"


def test_a_block_is_checked_once_per_map(
    table: StateTable, content: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few keys check few blocks; what was checked is not checked again, and at last all is."""
    read: list[tuple[int, int]] = []
    check = copies.Guard._read

    def recorded(self: copies.Guard, handle: int | None, start: int, stop: int) -> None:
        read.append((start, stop))
        check(self, handle, start, stop)

    monkeypatch.setattr(copies.Guard, "_read", recorded)
    cache = IndexCache(str(tmp_path / "cache"), limits=LIMITS)
    hashes = content["_hash"].to_numpy()
    state = BucketState(table, cache, (0,))
    state.take(state.find(hashes[5:6]), ["n"])
    blocks = [block for a, b in read for block in range(a, b)]
    assert len(blocks) == len(set(blocks))
    assert 0 < len(blocks) < the_copy(tmp_path).stat().st_size // BLOCK
    look_up(table, cache, None)
    blocks = [block for a, b in read for block in range(a, b)]
    assert len(blocks) == len(set(blocks))
    read.clear()
    look_up(table, cache, None)
    assert not read


def test_a_search_of_a_few_groups_finds_damage_only_where_it_searches(
    content: pa.Table, tmp_path: Path
) -> None:
    """Elsewhere it is found by the search that comes there, which reads the data file's rows."""
    (tmp_path / "table").mkdir()
    groups = np.arange(ROWS) // 6
    rows = content.set_column(4, "_hash", pa.array(groups)).append_column("k", pa.array(groups))
    rows = rows.append_column("part", pa.array(np.arange(ROWS)))
    pq.write_table(rows, tmp_path / "table" / "run.parquet")
    size = (tmp_path / "table" / "run.parquet").stat().st_size
    columns = Schema.parse("k BIGINT, part BIGINT")
    wanted = np.array([3, 800])

    def opened() -> IndexedFile:
        cache = IndexCache(str(tmp_path / "cache"), limits=LIMITS)
        return cache.open(str(tmp_path / "table"), "id", "run.parquet", size=size, rows=ROWS)

    def found(file: IndexedFile, group: int) -> list[int]:
        ranges = np.array([6 * group]), np.array([6 * group + 6])
        keys = [pa.array([group]), pa.array([6 * group + 2])]
        starts, stops = file.second_order(columns, ranges=ranges).spans(keys, *ranges)
        return [*map(int, np.concatenate([starts, stops]))]

    opened()
    copy = the_copy(tmp_path)
    whole = copy.read_bytes()
    at = whole.index(np.arange(4800, 4806).tobytes())
    rewrite(copy, whole[:at] + bytes(8) + whole[at + 8 :])
    file = opened()
    assert [found(file, group) for group in wanted] == [[20, 21], [4802, 4803]]
    assert len(dropped_copies(tmp_path / "cache")) == 1
    rewrite(copy, whole[:at] + bytes(8) + whole[at + 8 :])
    assert found(opened(), 3) == [20, 21]
    assert len(dropped_copies(tmp_path / "cache")) == 1


def test_notes_of_dropped_copies_are_bounded(tmp_path: Path) -> None:
    """The newest stay, and a line that is damaged itself hides none of the others."""
    for number in range(3000):
        note_dropped(tmp_path, copy=tmp_path / "c.arrow", source=f"{number}" * 20, why="flipped")
    notes = dropped_copies(tmp_path)
    assert notes[-1]["file"] == "2999" * 20
    assert (tmp_path / "damaged.jsonl").stat().st_size <= NOTES_BYTES_MAX + 1000
    with (tmp_path / "damaged.jsonl").open("ab") as file:
        file.write(b"{\n")
    assert dropped_copies(tmp_path) == notes
