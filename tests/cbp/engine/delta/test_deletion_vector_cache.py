"""Vectors in memory: the ones of the disk, few enough, and no file is kept for them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from pyroaring import BitMap64

from cbp.engine.delta.actions import DeletionVector
from cbp.engine.delta.deletion_vectors import OVERHEAD, VectorCache, vector_path
from cbp.errors import FileLostError
from tests.cbp.engine.delta.harness import write_vectors


def written(table: Path, *rows: set[int]) -> list[DeletionVector]:
    """Write one file of vectors, as a publication does."""
    vectors = write_vectors(
        str(table), "_vectors", uuid.uuid4(), dict(enumerate(map(BitMap64, rows)))
    )
    return list(vectors.values())


def remove(table: Path, vector: DeletionVector) -> None:
    """Collect the file of a vector."""
    (table / str(vector_path(vector))).unlink()


def test_a_vector_is_read_once(tmp_path: Path) -> None:
    """The second time nothing is read, each vector of a file by itself."""
    one, other = written(tmp_path, {1, 2}, {3})
    cache = VectorCache()
    assert set(cache.read(str(tmp_path), one)) == {1, 2}
    remove(tmp_path, one)
    assert set(cache.read(str(tmp_path), one)) == {1, 2}
    with pytest.raises(FileLostError):
        cache.read(str(tmp_path), other)


def test_what_was_written_is_not_read(tmp_path: Path) -> None:
    """A publication hands over what it wrote; another table's vector of that name is another."""
    (vector,) = written(tmp_path, {1})
    cache = VectorCache()
    cache.put(str(tmp_path), vector, BitMap64([1]))
    remove(tmp_path, vector)
    assert set(cache.read(str(tmp_path), vector)) == {1}
    with pytest.raises(FileLostError):
        cache.read(f"{tmp_path}/other", vector)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    """There is room for two; what was asked for again stays, and bytes are counted down."""
    vectors = written(tmp_path, {1}, {2}, {3})
    size = vectors[0].size_bytes + OVERHEAD
    cache = VectorCache(bytes_max=2 * size)
    for at in (0, 1, 0, 2):
        cache.read(str(tmp_path), vectors[at])
    assert cache.held_bytes == 2 * size
    remove(tmp_path, vectors[0])
    assert set(cache.read(str(tmp_path), vectors[0])) == {1}
    with pytest.raises(FileLostError):
        cache.read(str(tmp_path), vectors[1])


def test_a_vector_larger_than_the_room_is_not_kept(tmp_path: Path) -> None:
    """It is read each time, and drives out nothing."""
    small, large = written(tmp_path, {1}, set(range(0, 4000, 2)))
    cache = VectorCache(bytes_max=small.size_bytes + OVERHEAD)
    cache.read(str(tmp_path), small)
    assert len(cache.read(str(tmp_path), large)) == 2000
    assert cache.held_bytes == small.size_bytes + OVERHEAD
    remove(tmp_path, small)
    assert set(cache.read(str(tmp_path), small)) == {1}


def test_a_file_that_was_collected_is_not_kept_open(tmp_path: Path) -> None:
    """Its vector stays in memory for a while, and its space on the disk is free."""
    (vector,) = written(tmp_path, {1})
    cache = VectorCache()
    cache.read(str(tmp_path), vector)
    handles = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    opened = {os.path.realpath(handle) for handle in handles if os.path.exists(handle)}
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    name = str(vector_path(vector))
    assert not any(path.endswith(name) for path in opened)
    assert name not in maps
