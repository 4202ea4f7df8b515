"""What a task puts aside: no names, coded errors, and no more address space than there may be.

It has no name at any time, a full disk is reported as such, and a bounded address space sorts
everything.
"""

from __future__ import annotations

import errno
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cbp.engine.read.compare import Sides, compare_views
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.multiset_difference import Difference
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.errors import DiskFullError
from tests import machine
from tests.cbp.engine.spooled import LAYOUT, batch
from tests.fresh import run_bounded

ROWS = 20_000
LIMITS = EngineLimits(
    spool_bytes=1000,
    sort_run_bytes=30_000,
    sort_block_bytes=5000,
    pending_rows=1000,
    spill_block_rows=16,
    compared_rows=1000,
)
"""Little is much, so that everything goes to the disk."""
"""Little is much, so that everything goes to the disk."""

NUMBERS = np.random.default_rng(1).permutation(ROWS)

Told = Callable[[], None]


def spooled(told: Told) -> Any:
    """Put the records of a task aside."""

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, ROWS, 2000):
            yield batch([0] * 2000, [0] * 2000, at)
            told()

    with Spool(LAYOUT, LIMITS) as kept:
        kept.take(batches())
        return kept.between(0, 0, 0).column("_seq").to_pylist()


def arrived_out_of_order(told: Told) -> Any:
    """Put a flow in the order of its hashes."""
    with Spool(LAYOUT, LIMITS) as kept:
        kept.take([batch([0] * ROWS, [0] * ROWS, 0)], ordered=False)
        told()
        return kept.between(0, 0, 0).column("_seq").to_pylist()


def sorted_outside(told: Told) -> Any:
    """Sort more than a run holds."""
    actual = []
    parts = (pa.table({"n": NUMBERS[at : at + 2000]}) for at in range(0, ROWS, 2000))
    for table in sorted_tables(parts, ["n"], limits=LIMITS):
        told()
        actual += table.column("n").to_pylist()
    return actual


def cancelled_out(told: Told) -> Any:
    """Emit a group's records in another order than they were read."""
    died: list[RecordPositions] = []
    born: list[Any] = []
    zeros = np.zeros(ROWS, np.int64)
    with Difference(died.append, born.extend, LIMITS) as actual:
        actual.read([(n,) for n in range(ROWS)], RecordPositions(zeros, zeros, zeros))
        actual.emit([(n,) for n in reversed(range(ROWS))])
        told()
        actual.finish()
    assert not died
    assert not born
    return list(range(ROWS))


def compared(told: Told) -> Any:
    """Compare two views by the parts of their keys."""

    def side() -> Iterator[list[tuple[int, int]]]:
        yield [(n, n) for n in range(ROWS)]

    differing = compare_views(Sides(side, side, ROWS, lambda _: told(), LIMITS), [0])
    assert not differing
    return list(range(ROWS))


WAYS = [spooled, arrived_out_of_order, sorted_outside, cancelled_out, compared]


def opened() -> set[str]:
    """Return the files without a name that this process has open."""
    actual = set()
    for handle in os.listdir("/proc/self/fd"):
        try:
            actual.add(os.readlink(f"/proc/self/fd/{handle}"))
        except OSError:
            continue  # the one of the listing
    return {path for path in actual if path.startswith(tempfile.gettempdir())}


@pytest.mark.part(every=2)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("maps", [True, False], ids=["mapped", "refused"])
def test_what_is_put_aside_has_no_name_at_any_time(
    way: Callable[[Told], Any], maps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a worker is killed, nothing stays; and whether it may map or not, it reads all."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[tuple[list[str], int]] = []

    def refuse(_path: str) -> Any:
        message = "Memory mapping file failed: Cannot allocate memory"
        raise OSError(message)

    if not maps:
        monkeypatch.setattr(pa, "memory_map", refuse)
    maps_before = Path("/proc/self/maps").read_text(encoding="utf-8").count(str(tmp_path))

    def told() -> None:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").count(str(tmp_path))
        seen.append((os.listdir(tmp_path), len(opened()) + mapped - maps_before))

    assert way(told) == list(range(ROWS))
    assert [names for names, _ in seen if names] == []
    assert max(files for _, files in seen) > 0, "it was on the disk"
    gc.collect()  # the refused mapping's error holds its frames in a cycle
    assert opened() == set()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_full_disk_is_told_as_such(
    way: Callable[[Told], Any], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a task puts aside what does not fit, the error is the coded one."""
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with pytest.raises(DiskFullError) as caught:
        way(lambda: None)
    assert caught.value.details == {"path": str(small_disk)}
    del caught
    assert os.statvfs(small_disk).f_bavail > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a temporary folder in which nothing of much size fits."""
    with machine.small_disk(tmp_path / "small", "16k") as folder:
        yield folder


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_known_by_its_number_or_its_text(code: int) -> None:
    """A quota is a disk, too; Arrow has lost the number of some of its errors."""
    full = code != errno.EIO
    assert DiskFullError.is_disk_full(OSError(code, "x")) == full
    assert DiskFullError.is_disk_full(OSError(f"Error writing: {os.strerror(code)}")) == full


@pytest.mark.soak
def test_bounded_address_space_sorts_everything_and_refuses_what_it_cannot_hold() -> None:
    """Sorting needs no maps; the error of an input that is too large names the setting."""
    assert run_bounded(_BOUNDED) == [
        "True",
        "address_space_bounded",
        "spark.executor.pyspark.memory",
    ]


_BOUNDED = """
import resource
import numpy as np, pyarrow as pa
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.shuffle.spool import Spool
from cbp.errors import AddressSpaceError
from tests.cbp.engine.spooled import LAYOUT, batch

limits = EngineLimits(sort_run_bytes=4 << 20, sort_block_bytes=64 << 10, spool_bytes=4 << 20)
rows, parts = 100_000, 120
some = np.random.default_rng(1)
list(sorted_tables([pa.table({"n": [1]})], ["n"], limits=limits))
status = open("/proc/self/status").read().split("VmSize:")[1]
limit = int(status.split()[0]) * 1024 + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
last, right, many = -1, True, 0
tables = (pa.table({"n": some.integers(0, 1 << 60, rows)}) for _ in range(parts))
for table in sorted_tables(tables, ["n"], limits=limits):
    n = table.column("n").to_numpy()
    right &= bool(n[0] >= last and np.all(np.diff(n) >= 0))
    last, many = n[-1], many + len(n)
print(right and many == rows * parts)
try:
    with Spool(LAYOUT, limits) as kept:
        kept.take(batch([0] * rows, [0] * rows, 0) for _ in range(30))
except AddressSpaceError as error:
    print(error.code, error.details["setting"])
"""
