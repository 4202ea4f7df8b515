"""Damaged Parquet files: found wherever the damage is, and named with the next step."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.delta.live_records import read_batches
from cbp.engine.storage.checked_parquet import check_parquet, open_parquet, sealed
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.parquet_writer import ParquetSink
from cbp.errors import FileDamagedError, FileLostError

CONTENT = pa.table(
    {
        "url": [f"/k{n}" for n in range(3000)],
        "n": np.arange(3000) % 7,
        "_hash": np.sort(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 3000)),
    }
)


@pytest.fixture(params=[300, 3000], ids=["snappy", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Write a file of a state's table as a task does."""
    path = f"{tmp_path}/clicks/state/by_site.counts/_runs/_bucket=1/run.parquet"
    sink = ParquetSink(path, CONTENT.schema, faults=NO_FAULTS)
    sink.write(CONTENT.slice(0, request.param))
    written = sink.close()
    assert written is not None
    assert written.bytes == Path(path).stat().st_size
    return path


def read_groups(path: str) -> pa.Table:
    """Read a file group by group, as a look-up of few keys does."""
    file = open_parquet(path)
    return pa.concat_tables([file.read_row_group(g) for g in range(file.num_row_groups)])


def read_whole(path: str) -> pa.Table:
    """Read a file as the maker of an index copy does."""
    return open_parquet(path, mapped=True).read()


def read_streamed(path: str) -> pa.Table:
    """Read a file batch by batch, as compaction and people do."""
    return pa.Table.from_batches(read_batches(path, limits=DEFAULT_LIMITS))


@pytest.mark.parametrize("read", [read_groups, read_whole, read_streamed])
def test_no_flipped_bit_of_a_data_file_is_read(path: str, read: type, tmp_path: Path) -> None:
    """Wherever it is, a reader gets the records that were written, or an error with a code.

    A scrub finds each flip, but those in the mark of the seal, without which there is none.
    """
    whole = Path(path).read_bytes()
    expected = pq.read_table(path)
    random = np.random.default_rng(5)
    unsealed = 0
    for place in random.permutation(len(whole))[:250].tolist():
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(random.integers(8))
        Path(path).write_bytes(flipped)
        with suppress(FileDamagedError):
            assert read(path).equals(expected), place
        try:
            check_parquet(path)
        except FileDamagedError:
            continue
        assert not open_parquet(path).is_sealed
        assert read(path).equals(expected)
        unsealed += 1
    assert unsealed < 5


def test_an_error_says_whose_file_it_is_and_what_mends_it(path: str) -> None:
    """Table, stage and next step are read off the path; a file that is gone has its own code."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 3] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(FileDamagedError) as damaged:
        read_whole(path)
    assert damaged.value.as_dict() == {
        "error_code": "file_damaged",
        "message": f"{path} is damaged: a checksum of its pages is wrong. Restore the file from a "
        "backup, or recompute the state from retained input with `cbp backfill clicks "
        "by_site`. To look for more damage, run `cbp doctor`",
        "details": {
            "path": path,
            "why": "a checksum of its pages is wrong",
            "kind": "state",
            "dataflow": "clicks",
            "table": "by_site.counts",
            "stage": "by_site",
        },
    }
    assert not damaged.value.retryable
    Path(path).unlink()
    for read in (read_groups, read_whole, read_streamed, check_parquet):
        with pytest.raises(FileLostError) as lost:
            read(path)
        place = lost.value.details
        assert (lost.value.code, place["kind"], place["stage"]) == ("file_lost", "state", "by_site")


def test_files_of_earlier_versions_and_of_others_are_read(tmp_path: Path) -> None:
    """Without a seal, with or without checksums of pages; their rows are decoded by a check."""
    path = f"{tmp_path}/old.parquet"
    for options in ({}, {"write_page_checksum": True}):
        pq.write_table(CONTENT, path, use_dictionary=False, compression="none", **options)
        assert not open_parquet(path).is_sealed
        assert read_whole(path).equals(CONTENT)
        assert check_parquet(path) == 3000
    data = bytearray(Path(path).read_bytes())
    data[5000] ^= 1
    Path(path).write_bytes(data)
    for read in (read_groups, check_parquet):
        with pytest.raises(FileDamagedError) as damaged:
            read(path)
        assert (damaged.value.code, damaged.value.details["path"]) == ("file_damaged", path)


def test_other_readers_pass_over_the_seal(path: str) -> None:
    """Polars, and Arrow without a word of ours, read the same records; so do bytes in memory."""
    assert open_parquet(path).is_sealed
    expected = read_whole(path)
    assert pq.read_table(path).equals(expected)
    assert pl.read_parquet(path).to_arrow().cast(expected.schema).equals(expected)
    data = pa.BufferOutputStream()
    pq.write_table(expected, data)
    assert pq.read_table(pa.BufferReader(sealed(data.getvalue().to_pybytes(), ""))).equals(expected)


def test_nothing_is_written_by_spark_itself() -> None:
    """Every file of a table is written by Python, with its seal: the JVM's writers have none."""
    writers = re.compile(r"\.write(?:To|Stream)?\b(?!\()|\.(?:saveAsTable|insertInto|writeTo)\(")
    sources = [*(Path(__file__).parents[4] / "cbp" / "engine" / "spark").rglob("*.py")]
    assert len(sources) > 10
    for source in sources:
        assert not writers.search(source.read_text()), source.name
