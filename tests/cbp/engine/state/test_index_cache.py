"""Index copies: a cache that may be lost, cut off or refused, and never changes a result.

Also where a copy is of another file of as many rows, or does not fit the disk or the address space.
A full cache disk recovers, and half of it is left to others. A copy in use is not evicted, and is
made again if it was; a map outlives its copy; what other boots left goes by age.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.state import index_cache as index
from cbp.engine.state.bucket_state import BucketState, LiveFile, StateTable
from cbp.engine.state.cache_eviction import BOOT_SECONDS_MAX, evict
from cbp.engine.state.copies import dropped_copies, write_copy
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.lookup import IndexedFile
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.file_names import bucket_file
from cbp.errors import InvariantError
from tests import machine
from tests.fresh import run_bounded

LONG_AGO = 1_700_000_000
ROWS = 5000  # more than a file that is kept without a copy


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write one data file, sorted by hash, into a table's folder."""
    folder = tmp_path / "table"
    folder.mkdir()
    hashes = np.sort(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, ROWS))
    content = pa.table({"_hash": hashes, "url": [f"u{i}" for i in range(ROWS)]})
    pq.write_table(content, folder / "run.parquet")
    return folder


def open_file(cache: IndexCache, table: Path, *, rows: int = ROWS) -> IndexedFile:
    """Open the fixture's file, as the log describes it."""
    size = (table / "run.parquet").stat().st_size
    return cache.open(str(table), "id", "run.parquet", size=size, rows=rows)


def copies(folder: Path) -> list[Path]:
    """Return the copies below a cache folder."""
    return list(folder.rglob("*.arrow"))


def test_a_copy_is_made_once_and_mapped_again(table: Path, tmp_path: Path) -> None:
    """A second process finds the first one's copy, even when the data file is gone."""
    first = open_file(IndexCache(str(tmp_path / "cache")), table)
    size = (table / "run.parquet").stat().st_size
    (table / "run.parquet").unlink()
    again = IndexCache(str(tmp_path / "cache")).open(
        str(table), "id", "run.parquet", size=size, rows=ROWS
    )
    assert again.batch.equals(first.batch)


@pytest.mark.parametrize("left", [0, 10, -10], ids=["empty", "head", "without its end"])
def test_a_truncated_copy_is_made_anew(table: Path, tmp_path: Path, left: int) -> None:
    """What a full disk or a kill left behind is not trusted."""
    expected = open_file(IndexCache(str(tmp_path / "cache")), table).batch
    (copy,) = copies(tmp_path / "cache")
    content = copy.read_bytes()
    copy.unlink()  # never in place: a map of the old one may live
    copy.write_bytes(content[:left])
    assert open_file(IndexCache(str(tmp_path / "cache")), table).batch.equals(expected)


def plant(copy: Path, content: pa.RecordBatch) -> None:
    """Put an Arrow file in the place of a copy."""
    copy.unlink()  # never in place: a map of the old one may live
    with pa.OSFile(str(copy), "wb") as sink, pa.ipc.new_file(sink, content.schema) as writer:
        writer.write_batch(content)


def test_a_copy_of_another_file_is_not_used(table: Path, tmp_path: Path) -> None:
    """A copy of another file with as many rows, under this file's name, is made anew."""
    cache = tmp_path / "cache"
    size = (table / "run.parquet").stat().st_size
    expected = open_file(IndexCache(str(cache)), table).batch
    (copy,) = copies(cache)
    other = pq.read_table(table / "run.parquet").set_column(1, "url", pa.array(["other"] * ROWS))
    pq.write_table(other, table / "other.parquet")
    for table_id, path in (("id", "other.parquet"), ("another table", "run.parquet")):
        IndexCache(str(cache)).put(table_id, path, size=size, content=other)
        (foreign,) = (actual for actual in copies(cache) if actual != copy)
        foreign.rename(copy)
        assert open_file(IndexCache(str(cache)), table).batch.equals(expected)
    (copy,) = copies(cache)  # the file's own again, which serves without the file
    (table / "run.parquet").unlink()
    own = IndexCache(str(cache)).open(str(table), "id", "run.parquet", size=size, rows=ROWS)
    assert own.batch.equals(expected)


def test_a_copy_of_an_earlier_version_is_made_anew(table: Path, tmp_path: Path) -> None:
    """One without checksums is not believed, whatever it says; and that is no damage."""
    cache = tmp_path / "cache"
    expected = open_file(IndexCache(str(cache)), table).batch
    (copy,) = copies(cache)
    whole = copy.read_bytes()
    other = expected.set_column(1, "url", pa.array(["other"] * ROWS, pa.large_string()))
    for metadata in (None, {b"cbp.copy": copy.name.encode()}):
        plant(copy, other.replace_schema_metadata(metadata))
        assert open_file(IndexCache(str(cache)), table).batch.equals(expected)
        assert copy.read_bytes() == whole
    assert dropped_copies(cache) == []


def test_a_copy_with_other_rows_than_the_log_says_is_made_anew(table: Path, tmp_path: Path) -> None:
    """Also one that bears the right name: what is missing is never a smaller state."""
    expected = open_file(IndexCache(str(tmp_path / "cache")), table).batch
    (copy,) = copies(tmp_path / "cache")
    copy.unlink()
    write_copy(copy, copy.name, expected.slice(0, 7), limits=DEFAULT_LIMITS)
    assert open_file(IndexCache(str(tmp_path / "cache")), table).batch.num_rows == ROWS


def test_a_cache_that_cannot_be_written_falls_back_to_the_file(table: Path, tmp_path: Path) -> None:
    """No space, no folder, no rights: the file itself is read."""
    (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
    indexed = open_file(IndexCache(str(tmp_path / "cache")), table)
    assert indexed.batch.num_rows == ROWS


def test_a_full_cache_falls_back_to_the_file(table: Path, small_cache: Path) -> None:
    """A copy that does not fit on the cache's disk is left out, and leaves nothing behind."""
    indexed = open_file(IndexCache(str(small_cache)), table)
    assert indexed.batch.num_rows == ROWS
    assert not list(small_cache.rglob("*.tmp"))
    assert not copies(small_cache)


def test_bounded_address_space_reads_everything(tmp_path: Path) -> None:
    """A worker that may not map all copies at once lets go of some, and finds every row."""
    assert run_bounded(_BOUNDED, tmp_path) == ["24"]


_BOUNDED = """
import os, resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from cbp.engine.state.index_cache import IndexCache

folder, rows, files = sys.argv[1], 150_000, 24
content = pa.table({"_hash": np.arange(rows), "url": pa.array(["x" * 90] * rows)})
for number in range(files):
    pq.write_table(content, f"{folder}/{number}.parquet")
    size = os.path.getsize(f"{folder}/0.parquet")
    IndexCache(f"{folder}/cache").put("id", f"{number}.parquet", size=size, content=content)
del content
pa.default_memory_pool().release_unused()
status = open("/proc/self/status").read().split("VmSize:")[1]
limit = int(status.split()[0]) * 1024 + (128 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
cache = IndexCache(f"{folder}/cache")
print(sum(
    int(cache.open(folder, "id", f"{n}.parquet", size=size, rows=rows).hashes[-1]) == rows - 1
    for n in range(files)
))
"""


@pytest.fixture
def small_cache(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system on which no copy of the fixture's file fits."""
    with machine.small_disk(tmp_path / "small", "16k") as folder:
        yield folder


def test_a_lost_or_damaged_data_file_stops(table: Path, tmp_path: Path) -> None:
    """A file that the log shows and the disk does not is never an empty one."""
    size = (table / "run.parquet").stat().st_size
    cache = IndexCache(str(tmp_path / "cache"))
    (table / "cut.parquet").write_bytes((table / "run.parquet").read_bytes()[: size // 2])
    for name in ("cut.parquet", "gone.parquet"):
        with pytest.raises(InvariantError) as caught:
            cache.open(str(table), "id", name, size=size, rows=ROWS)
        assert name in caught.value.details["path"]


def test_a_data_file_with_other_rows_than_the_log_stops(table: Path, tmp_path: Path) -> None:
    """Corrupt data is never a smaller state."""
    with pytest.raises(InvariantError):
        open_file(IndexCache(str(tmp_path / "cache")), table, rows=ROWS + 1)


def test_the_least_recently_used_copies_go(tmp_path: Path) -> None:
    """The cache stays within its bytes; what was evicted is made again."""
    cache = IndexCache(str(tmp_path / "cache"), bytes_max=200_000)
    content = pa.table({"_hash": np.arange(ROWS), "n": np.arange(ROWS)})
    for number in range(130):
        cache.put("id", f"run-{number}.parquet", size=1, content=content)
        assert held_bytes(tmp_path / "cache") < 200_000
        assert is_there(tmp_path / "cache", f"run-{number}.parquet")


def test_few_sweeps_keep_many_copies_within_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is listed once for an eighth of the bound, by which the bound may be passed."""
    listed: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        listed.append(1)
        return evict(*args, **options)

    monkeypatch.setattr(index, "evict", counted)
    most = 8_000_000
    cache = IndexCache(str(tmp_path / "cache"), bytes_max=most)
    for number in range(200):
        cache.put("id", f"run-{number}.parquet", size=1, content=CONTENT)
    assert len(listed) < 200 * 100_000 * 8 / most
    assert most // 2 < held_bytes(tmp_path / "cache") < most * 9 / 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a megabyte, on which a few copies of 320 kB fit."""
    with machine.small_disk(tmp_path / "disk", "1m") as folder:
        yield folder


WIDE = pa.table({"_hash": np.arange(20_000), "n": np.arange(20_000)})


def test_copies_leave_half_of_their_disk_to_others(disk: Path) -> None:
    """Whatever the bound in bytes, which is larger than many disks; the newest has its copy."""
    cache = IndexCache(str(disk))
    for number in range(40):
        cache.put("id", f"{number}.parquet", size=1, content=CONTENT)
        assert is_there(disk, f"{number}.parquet")
        assert held_bytes(disk) <= 600_000


@pytest.mark.parametrize("quota", [False, True])
def test_a_full_disk_gets_the_newest_copy(
    quota: bool, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fills it goes, oldest first: copies of ours, mapped or not, and those of earlier boots.

    Where a quota refuses, the disk reports free space that is not to be had.
    """
    earlier = disk / "0f0e0d0c-1111-2222-3333-0123456789ab"
    earlier.mkdir()
    for name in ("a.arrow", "b.arrow", "mine.txt"):
        (earlier / name).write_bytes(b"x" * 100_000)
        os.utime(earlier / name, (LONG_AGO, LONG_AGO))
    cache = IndexCache(str(disk))
    if quota:
        told = os.statvfs_result((4096, 4096, *[1 << 30] * 6, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: told)
    else:
        cache.put("id", "mapped.parquet", size=1, content=CONTENT)
        cache.open("gone", "id", "mapped.parquet", size=1, rows=ROWS)
        (disk / "others").write_bytes(b"x" * 600_000)
    for number in range(10):
        cache.put("id", f"{number}.parquet", size=1, content=WIDE)
        assert is_there(disk, f"{number}.parquet"), number
    assert (earlier / "mine.txt").exists()
    assert not list(disk.rglob("*.tmp"))
    assert not (earlier / "a.arrow").exists()


def test_what_an_earlier_boot_left_makes_room_for_the_first_file_of_this_one(
    tmp_path: Path,
) -> None:
    """A disk may be too full even for the folder of a boot."""
    with machine.small_disk(tmp_path / "disk", "1m,nr_inodes=4") as folder:
        earlier = folder / "0f0e0d0c-1111-2222-3333-0123456789ab"
        earlier.mkdir()
        for name in "ab":
            (earlier / f"{name}.arrow").write_bytes(b"x")
        IndexCache(str(folder)).put("id", "first.parquet", size=1, content=CONTENT)
        assert is_there(folder, "first.parquet")


def test_a_copy_that_never_fits_takes_no_other(disk: Path) -> None:
    """A disk that others fill is not emptied of what is of use."""
    cache = IndexCache(str(disk))
    cache.put("id", "small.parquet", size=1, content=CONTENT)
    (disk / "others").write_bytes(b"x" * 800_000)
    cache.put("id", "large.parquet", size=1, content=WIDE)
    assert is_there(disk, "small.parquet")
    assert not is_there(disk, "large.parquet")


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = float(LONG_AGO)

    def __call__(self) -> float:
        return self.now


CONTENT = pa.table({"_hash": np.arange(ROWS), "n": np.arange(ROWS)})


def held_bytes(folder: Path) -> int:
    """Return the bytes of the copies below a cache folder."""
    return sum(copy.stat().st_size for copy in copies(folder))


def is_there(folder: Path, name: str) -> bool:
    """Tell whether a file has its copy."""
    return any(f"-{name}-" in copy.name for copy in copies(folder))


def test_what_one_process_uses_no_other_evicts(table: Path, tmp_path: Path) -> None:
    """A copy that stays mapped and is asked for is the youngest, however long ago it was mapped."""
    clock, folder = Clock(), tmp_path / "cache"
    reading, writing = (IndexCache(str(folder), bytes_max=2_000_000, clock=clock) for _ in range(2))
    clock.now -= 200 * index.TOUCH_SECONDS  # a copy just written is younger than all
    open_file(reading, table)
    for number in range(130):
        clock.now += index.TOUCH_SECONDS
        open_file(reading, table)
        writing.put("id", f"{number}.parquet", size=1, content=CONTENT)
        written = next(copy for copy in copies(folder) if f"-{number}.parquet-" in copy.name)
        os.utime(written, (clock.now, clock.now))
    assert is_there(folder, "run.parquet")
    assert not is_there(folder, "0.parquet")


def test_a_copy_in_use_is_touched_once_a_minute(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look-ups come by the thousand: hardly one of them is a call of the system."""
    clock = Clock()
    touched: list[float] = []
    begun = clock.now
    cache = IndexCache(str(tmp_path / "cache"), clock=clock)
    open_file(cache, table)
    monkeypatch.setattr(os, "utime", lambda path, times: touched.append(times[0] - begun))
    for _ in range(100):
        clock.now += index.TOUCH_SECONDS / 4
        open_file(cache, table)
    assert touched == [index.TOUCH_SECONDS * minute for minute in range(1, 26)]
    clock.now = begun  # set back: it is not silent until the old time comes again
    open_file(cache, table)
    assert len(touched) == 26


@pytest.mark.parametrize("ordered", [True, False])
def test_a_copy_in_use_that_was_taken_is_made_again(
    ordered: bool, table: Path, tmp_path: Path
) -> None:
    """From its map, without the data file, in whatever order its rows lie; it is mapped anew."""
    if not ordered:
        content = pq.read_table(table / "run.parquet").take(np.arange(ROWS)[::-1])
        pq.write_table(content, table / "run.parquet")
    clock, folder = Clock(), tmp_path / "cache"
    cache = IndexCache(str(folder), clock=clock)
    size = (table / "run.parquet").stat().st_size
    expected = open_file(cache, table).batch
    (table / "run.parquet").unlink()
    (copy,) = copies(folder)
    copy.unlink()
    clock.now += index.TOUCH_SECONDS
    place = (str(table), "id", "run.parquet")
    for each in (cache, cache, IndexCache(str(folder))):
        actual = each.open(*place, size=size, rows=ROWS)
        assert actual.batch.equals(expected)
        assert actual.in_order == ordered
    held = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    del expected, actual
    assert sum(str(copy) in line and "(deleted)" not in line for line in held) == 2


def test_a_map_outlives_its_copy(tmp_path: Path) -> None:
    """Made anew and evicted by another process, a mapped copy reads whole.

    A file that shrinks under a map kills its reader, so a process of its own reads.
    """
    done = subprocess.run(
        [sys.executable, "-c", _OUTLIVES, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout.split() == ["True", "1", "True"]


_OUTLIVES = """
import os, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from cbp.engine.state.index_cache import IndexCache

folder, rows = sys.argv[1], 200_000
content = pa.table({"_hash": np.arange(rows), "n": np.arange(rows)})
IndexCache(folder).put("id", "a", size=1 << 20, content=content)
(copy,) = Path(folder).rglob("*.arrow")
kept = IndexCache(folder).open("gone", "id", "a", size=1 << 20, rows=rows).batch
inode = copy.stat().st_ino
other = IndexCache(folder, bytes_max=1)
other.put("id", "a", size=1 << 20, content=content)
print(copy.stat().st_ino != inode)
other.put("id", "b", size=1 << 20, content=content)
print(len(list(Path(folder).rglob("*.arrow"))))
print(kept.equals(pa.record_batch({"_hash": np.arange(rows), "n": np.arange(rows)})))
"""


def test_copies_of_superseded_files_are_unmapped(tmp_path: Path) -> None:
    """A look at the newest files of a bucket unmaps the others; what is in use stays readable."""
    cache = IndexCache(str(tmp_path / "cache"))
    content = pa.table({"_hash": np.arange(ROWS), "n": np.arange(ROWS)})
    files = [LiveFile(bucket_file(3, epoch, "run", 0), 1 << 20, ROWS) for epoch in range(4)]
    other = LiveFile(bucket_file(2, 0, "run", 0), 1 << 20, ROWS)

    def look(*live: LiveFile, bucket: int = 3) -> pa.RecordBatch:
        state = BucketState(StateTable("gone", "id", {bucket: live}), cache, (bucket,))
        return [state.whole(at).batch for at in range(len(live))][-1]

    for file in (*files, other):
        cache.put("id", file.path, size=file.size, content=content)
    look(other, bucket=2)
    kept = look(*files[:2])
    for epoch in (2, 3):
        look(files[epoch])
    assert kept.column("n").to_numpy()[-1] == ROWS - 1
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    # Other tests of this process may have maps of their own.
    mapped = set(re.findall(rf"{re.escape(str(tmp_path))}\S*_bucket=(\d)_(\d+)", maps))
    assert {(int(bucket), int(epoch)) for bucket, epoch in mapped} == {(2, 0), (3, 1), (3, 3)}


def test_what_boots_of_the_past_left_goes(tmp_path: Path) -> None:
    """By age: a shared folder holds the boots of several machines. What is not ours stays."""
    clock = Clock()
    boot = "0f0e0d0c-1111-2222-3333-0123456789ab"
    old = clock.now - BOOT_SECONDS_MAX - 60
    left = {
        f"{boot[:-1]}1": ("a.arrow", "b.tmp"),
        f"{boot[:-1]}1-scratch": ("c.called", "c.own"),
        "process-7": ("a.arrow",),
        f"{boot[:-1]}2": ("thesis.txt", "a.arrow"),
        "somebody": ("a.arrow",),
    }
    for name, files in {**left, f"{boot[:-1]}3": ("a.arrow", "new.arrow")}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_bytes(b"x")
            os.utime(tmp_path / name / file, (old, old))
        os.utime(tmp_path / name, (old, old))
    used = tmp_path / f"{boot[:-1]}3" / "new.arrow"
    os.utime(used, (clock.now, clock.now))
    cache = IndexCache(str(tmp_path), clock=clock)
    own = cache.scratch("x").parent
    own.mkdir()
    os.utime(own, (old, old))
    cache.put("id", "a", size=1, content=CONTENT)
    actual = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in actual if "id-a-" not in name} == {
        f"{boot[:-1]}2/thesis.txt",
        "somebody/a.arrow",
        f"{boot[:-1]}3/a.arrow",
        f"{boot[:-1]}3/new.arrow",
    }
    assert not any((tmp_path / name).exists() for name in list(left)[:3])
    assert own.exists()


def test_a_small_file_gets_no_copy(table: Path, tmp_path: Path) -> None:
    """What Parquet reads as fast as a copy is mapped is kept in memory, and read again."""
    content = pa.table({"_hash": np.arange(10), "n": np.arange(10)})
    pq.write_table(content, table / "small.parquet")
    size = (table / "small.parquet").stat().st_size
    cache = IndexCache(str(tmp_path / "cache"))
    cache.put("id", "small.parquet", size=size, content=content)
    for each in (cache, IndexCache(str(tmp_path / "cache"))):
        actual = each.open(str(table), "id", "small.parquet", size=size, rows=10)
        assert actual.batch.column("n").to_pylist() == list(range(10))
    assert not copies(tmp_path / "cache")


def test_what_is_kept_in_memory_is_bounded(table: Path, tmp_path: Path) -> None:
    """Small files of many tables do not fill a worker; what went is read again."""
    cache = IndexCache(str(tmp_path / "cache"), limits=EngineLimits(held_bytes=100_000))
    content = pa.table({"_hash": np.arange(10), "n": np.arange(10)})
    for number in range(50):
        cache.put("id", f"{number}.parquet", size=1, content=content)
    assert 0 < cache.held_bytes <= 100_000
    # Tiny ones too: what holds their rows is most of what they cost.
    assert len(cache._held) <= 100_000 // index.HELD_OVERHEAD


def test_a_few_keys_of_a_cold_file_make_no_copy(table: Path, tmp_path: Path) -> None:
    """One look-up reads a row group; look-ups that read much of the file make the copy."""
    hashes = pq.read_table(table / "run.parquet").column("_hash").to_numpy()
    content = pq.read_table(table / "run.parquet")
    pq.write_table(content, table / "groups.parquet", row_group_size=ROWS // 20)
    size = (table / "groups.parquet").stat().st_size
    cache = IndexCache(str(tmp_path / "cache"))
    made = []
    for _ in range(6):
        wanted = hashes[7:8]
        place = (str(table), "id", "groups.parquet")
        rows = cache.reader(*place, size=size, rows=ROWS, wanted=wanted)
        positions, _ = rows.find(wanted)
        assert positions.tolist() == [7]
        assert rows.take(positions, ["url"]).column("url").to_pylist() == ["u7"]
        made.append(len(copies(tmp_path / "cache")))
    assert made == [0, 0, 0, 0, 0, 1]


def test_a_file_out_of_order_is_read_by_physical_position(table: Path, tmp_path: Path) -> None:
    """A position is the row in the Parquet file, also where the rows are not sorted by hash."""
    content = pq.read_table(table / "run.parquet").take(np.arange(ROWS)[::-1])
    pq.write_table(content, table / "mixed.parquet")
    size = (table / "mixed.parquet").stat().st_size
    wanted = np.sort(content.column("_hash").to_numpy()[[3, 40]])
    for _ in range(2):
        cache = IndexCache(str(tmp_path / "cache"))
        actual = cache.open(str(table), "id", "mixed.parquet", size=size, rows=ROWS)
        assert sorted(actual.find(wanted)[0].tolist()) == [3, 40]
    assert copies(tmp_path / "cache")
