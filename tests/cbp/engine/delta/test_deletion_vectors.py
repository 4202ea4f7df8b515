"""Deletion vectors: what was written is read, or an error; never a damaged vector."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from cbp.engine.delta.deletion_vectors import (
    read_vector,
    vector_path,
    z85_decode,
    z85_encode,
)
from cbp.errors import FileDamagedError, FileLostError, InvariantError
from tests.cbp.engine.delta.harness import write_vectors
from tests.cbp.engine.inline_vectors import inline_vector

SETS = {
    "one": BitMap64([0]),
    "sparse": BitMap64([3, 70_000, 2**31 + 5]),
    "runs": BitMap64(range(100, 90_000)),
    "beyond 32 bits": BitMap64([1, 2**33, 2**40 + 1]),
}


def test_many_vectors_of_one_file_come_back(tmp_path: Path) -> None:
    """Each vector is read from its own offset of the shared file."""
    name = uuid.uuid4()
    written = write_vectors(str(tmp_path), "_vectors", name, SETS)
    assert [p.name for p in (tmp_path / "_vectors").iterdir()] == [f"deletion_vector_{name}.bin"]
    for key, bitmap in SETS.items():
        assert written[key].cardinality == len(bitmap)
        assert vector_path(written[key]) == f"_vectors/deletion_vector_{name}.bin"
        assert read_vector(str(tmp_path), written[key]) == bitmap


def test_a_vector_without_a_folder_lies_in_the_table(tmp_path: Path) -> None:
    """The folder is optional, as for tables that others wrote."""
    written = write_vectors(str(tmp_path), "", uuid.uuid4(), {1: SETS["runs"]})
    assert len(written[1].path_or_inline) == 20
    assert read_vector(str(tmp_path), written[1]) == SETS["runs"]


@given(st.sets(st.integers(0, 2**40), min_size=1, max_size=30))
def test_an_inline_vector_comes_back(rows: set[int]) -> None:
    """An inline vector carries all its rows, whatever the padding."""
    vector = inline_vector(BitMap64(rows))
    assert vector_path(vector) is None
    assert read_vector("/nowhere", vector) == BitMap64(rows)


@pytest.mark.parametrize("at", [1, 7, 30, -2])
def test_a_damaged_byte_is_noticed(tmp_path: Path, at: int) -> None:
    """Length, data and checksum are all covered."""
    written = write_vectors(str(tmp_path), "_vectors", uuid.uuid4(), {1: SETS["runs"]})
    file = next((tmp_path / "_vectors").iterdir())
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(InvariantError):
        read_vector(str(tmp_path), written[1])


def test_files_of_one_size_cannot_be_exchanged(tmp_path: Path) -> None:
    """Checksum, length and number of rows fit, and yet other rows would be dead."""
    one, two = uuid.uuid4(), uuid.uuid4()
    first = write_vectors(str(tmp_path), "_vectors", one, {1: BitMap64([3]), 2: SETS["runs"]})
    write_vectors(str(tmp_path), "_vectors", two, {1: BitMap64([4]), 2: SETS["runs"]})
    files = [tmp_path / "_vectors" / f"deletion_vector_{name}.bin" for name in (one, two)]
    files[0].write_bytes(files[1].read_bytes())
    for vector in first.values():
        with pytest.raises(FileDamagedError) as damaged:
            read_vector(str(tmp_path), vector)
        assert damaged.value.details["path"] == str(files[0])


def test_files_of_earlier_versions_are_read_as_they_are(tmp_path: Path) -> None:
    """Their first vector begins behind the first byte, as in files that others write."""
    name = uuid.uuid4()
    vectors = write_vectors(str(tmp_path), "_vectors", name, {1: SETS["one"], 2: SETS["runs"]})
    file = tmp_path / "_vectors" / f"deletion_vector_{name}.bin"
    data, before = file.read_bytes(), vectors[1].offset or 0
    file.write_bytes(data[:1] + data[before:])
    for key, bitmap in ((1, SETS["one"]), (2, SETS["runs"])):
        old = replace(vectors[key], offset=(vectors[key].offset or 0) - before + 1)
        assert read_vector(str(tmp_path), old) == bitmap


def test_a_descriptor_that_does_not_fit_is_noticed(tmp_path: Path) -> None:
    """Another cardinality, a short file, a missing file, an absolute path."""
    vector = write_vectors(str(tmp_path), "_vectors", uuid.uuid4(), {1: SETS["one"]})[1]
    wrong = (
        replace(vector, cardinality=2),
        replace(vector, offset=9),
        replace(vector, size_bytes=10_000),
        replace(vector, storage_type="p"),
    )
    for descriptor in wrong:
        with pytest.raises(InvariantError):
            read_vector(str(tmp_path), descriptor)
    next((tmp_path / "_vectors").iterdir()).unlink()
    with pytest.raises(FileLostError):
        read_vector(str(tmp_path), vector)


def test_nothing_to_write_writes_nothing(tmp_path: Path) -> None:
    """No vectors, no file; an empty vector is a bug."""
    assert write_vectors(str(tmp_path), "_vectors", uuid.uuid4(), {}) == {}
    with pytest.raises(InvariantError):
        write_vectors(str(tmp_path), "_vectors", uuid.uuid4(), {1: BitMap64()})
    assert list(tmp_path.iterdir()) == []


@given(st.binary(max_size=64))
def test_z85_comes_back_padded(data: bytes) -> None:
    """Decoding gives the bytes, padded with zeros to a multiple of four."""
    text = z85_encode(data)
    assert z85_decode(text) == data + b"\0" * (-len(data) % 4)


def test_z85_is_the_published_alphabet() -> None:
    """The test vector of ZeroMQ RFC 32."""
    assert z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    for text in ("abc", "~~~~~", "#####"):
        with pytest.raises(InvariantError):
            z85_decode(text)
