"""A state that was loaded as files is the state that epochs would have made."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cbp.engine.direct import LocalEngine
from tests.bench.candidates.ours import initial_state as load
from tests.bench.candidates.ours.engine_driver import DataflowDrive
from tests.bench.candidates.ours.initial_state import load_counts, load_state
from tests.bench.workloads.workload import UrlCount, write_arrival

KEYS = 500


def drive_of(folder: Path) -> DataflowDrive:
    """Give a count of URLs without Spark."""
    engine = LocalEngine(cache=str(folder / "cache"))
    dataflow = UrlCount(KEYS).dataflow(grouping="inner", form="groupwise", buckets=4)
    return DataflowDrive(engine, dataflow, folder / "tables")


def counts(drive: DataflowDrive) -> dict[str, int]:
    """Read the whole state."""
    node = drive.dataflow.stages["count"]
    rows = list(drive.engine.records.read_state(str(drive.folder), node, "counts"))
    actual = {row["url"]: row["n"] for row in rows}
    assert len(actual) == len(rows)
    return actual


def test_every_key_is_there_once_and_is_counted_on(tmp_path: Path) -> None:
    """Runs find loaded keys by hash, and add to them."""
    drive = drive_of(tmp_path)
    load_counts(drive.folder, drive.dataflow.stages["count"], KEYS, spark=None)
    urls = UrlCount.urls(np.arange(KEYS))
    assert counts(drive) == dict.fromkeys(urls, 1)
    seen = pa.table({"url": [urls[3], urls[3], urls[499], "new"]})
    drive.offer("urls", write_arrival(seen, tmp_path / "arrival.parquet"))
    drive.run_until_idle()
    assert counts(drive) == {**dict.fromkeys(urls, 1), urls[3]: 3, urls[499]: 2, "new": 1}


def test_a_first_state_is_made_once_and_shared(tmp_path: Path) -> None:
    """Later ones have the same files by hard links; what one of them counts, the others do not."""
    shared, drives = tmp_path / "prepared", [drive_of(tmp_path / name) for name in ("a", "b")]
    for drive in drives:
        node = drive.dataflow.stages["count"]
        load_counts(drive.folder, node, KEYS, spark=None, shared=shared)
    files = [
        {path.stat().st_ino for path in drive.folder.rglob("_runs/**/*.parquet")}
        for drive in drives
    ]
    assert files[0] == files[1]
    assert files[0]
    urls = UrlCount.urls(np.arange(KEYS))
    seen = pa.table({"url": [urls[3]]})
    drives[0].offer("urls", write_arrival(seen, tmp_path / "arrival.parquet"))
    drives[0].run_until_idle()
    assert counts(drives[0]) == {**dict.fromkeys(urls, 1), urls[3]: 2}
    assert counts(drives[1]) == dict.fromkeys(urls, 1)


def test_records_are_made_only_for_the_first_of_those_that_share_a_state(tmp_path: Path) -> None:
    """A later load has the same records, though its own would be others."""
    shared, drives = tmp_path / "prepared", [drive_of(tmp_path / name) for name in ("a", "b")]
    records = [pa.table({"url": ["a", "b"], "n": [n, n]}) for n in (3, 4)]
    for drive, mine in zip(drives, records, strict=True):
        node = drive.dataflow.stages["count"]
        load_state(drive.folder, node, "counts", partial(table_of, mine), shared=shared)
    assert counts(drives[0]) == counts(drives[1]) == {"a": 3, "b": 3}


def table_of(records: pa.Table) -> pa.Table:
    """Make some records."""
    return records


@pytest.mark.spark
@pytest.mark.soak
def test_spark_loads_the_same_in_files_of_bounded_size(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways to load give one state; a bucket may have several files."""
    monkeypatch.setattr(load, "ROWS_MAX", 50)
    drive = drive_of(tmp_path)
    load_counts(drive.folder, drive.dataflow.stages["count"], KEYS, spark=spark)
    assert counts(drive) == dict.fromkeys(UrlCount.urls(np.arange(KEYS)), 1)
