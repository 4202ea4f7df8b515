"""Tables of a changed stage: other buckets, grown columns, a new beginning.

The stage runs on after every change, on the same connectors, and is compared with the
reference engine, which knows no buckets and no files. Small tiers and several epochs leave
vectors, unpublished changes and merged files behind for the change to find.

Buckets split and merged, columns added and widened: the same records under Spark, Polars and
delta-rs, and runs go on.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from tests.cbp.engine.epochs import order_free
from tests.cbp.engine.wide_state import FLOW, STATE, Life, Narrow, Wide, dataflow_of
from tests.driver import Driver
from tests.planned_faults import Crash, PlannedFaults

POINTS = [
    f"{effect}.{side}"
    for effect in ("data_file", "data_sync", "log_entry")
    for side in ("before", "after")
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the syncs: no test here cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize("publish_every", [1, 3])
def test_buckets_are_split_and_merged_on_live_data(tmp_path: Path, publish_every: int) -> None:
    """Whatever number of buckets follows another, the state is the same, and runs go on."""
    life = Life(tmp_path, dataflow_of(Wide()), publish_every=publish_every)
    life.count(5)
    for buckets in (8, 16, 2, 64, 4):
        life.change(dataflow_of(Wide(), buckets=buckets))
        assert life.counts() == life.expected()
        places = {p.parent.name for p in (tmp_path / "t" / STATE).glob("_runs/*/*-change.parquet")}
        assert places, "files were written"
        life.count(2)
        life.driver.publish()
        life.check()
        node = life.driver.dataflow.stages["stage"]
        records = life.driver.engine.records.look_up(
            life.driver.folder, node, "counts", {"word": "w1"}
        )
        assert [row["n"] for row in records] == [life.expected()["w1"]]


def test_a_split_writes_each_record_once_and_into_the_bucket_of_its_hash(tmp_path: Path) -> None:
    """The files of the new version hold the live records, sorted, where a look-up searches."""
    life = Life(tmp_path, dataflow_of(Wide()))
    life.count(6)
    life.change(dataflow_of(Wide(), buckets=16))
    rows = 0
    for path in (tmp_path / "t" / STATE).glob("_runs/_bucket=*/*-change-*.parquet"):
        pytest.fail(f"an unexpected name: {path}")
    for path in (tmp_path / "t" / STATE).glob("_runs/_bucket=*/*-change.parquet"):
        hashes = pq.ParquetFile(path).read(columns=["_hash"]).column(0).to_pylist()
        assert hashes == sorted(hashes)
        bucket = int(path.parent.name.removeprefix("_bucket="))
        assert {(hash_ % 2**64) >> 60 for hash_ in hashes} == {bucket}
        rows += len(hashes)
    assert rows == len(life.expected())


def test_columns_are_added_and_types_widened_under_every_reader(tmp_path: Path) -> None:
    """Old records keep their values, have null in what is new, and count on."""
    life = Life(tmp_path, dataflow_of(Narrow()))
    life.count(4)
    before = life.counts()
    life.change(dataflow_of(Wide(), buckets=8))
    assert life.counts() == before
    assert {row["by"] for row in life.driver.state("stage", "counts")} == {None}
    assert life.seen()["polars"] == order_free(life.driver.state("stage", "counts"))
    life.count(9)
    life.check()
    assert "wide" in {row["by"] for row in life.driver.state("stage", "counts")}
    flows = life.seen(FLOW)
    assert flows["polars"] == flows["delta-rs"]
    totals = pl.scan_delta(str(tmp_path / "t" / FLOW)).collect()
    assert totals.schema["n"] == pl.Int64
    assert totals.filter(pl.col("_epoch") < 4)["by"].null_count() == len(
        totals.filter(pl.col("_epoch") < 4)
    )
    assert totals["_epoch"].n_unique() == 13


def test_an_increment_of_the_old_columns_is_read_by_the_new_version(tmp_path: Path) -> None:
    """What waits in a queue while its flow's columns grow is widened, and null where it must be."""
    life = Life(tmp_path, dataflow_of(Narrow()))
    life.count(1)
    both = dataflow_of(Wide(), reader=True)
    life.change(dataflow_of(Wide()))
    driver = Driver(life.driver.engine, both, tmp_path / "t")
    waiting = life.driver.increments["stage.totals"][0]
    driver._enqueue(waiting)
    driver.epochs["stage"] = 1
    driver.run("reader")
    (copies,) = driver.outputs("reader.copies")
    assert {row["word"]: row["n"] for row in copies} == life.expected()
    assert {row["by"] for row in copies} == {None}


def test_a_state_that_begins_anew_is_empty_in_one_entry(tmp_path: Path) -> None:
    """Nothing of the old state is live, whatever columns it had; runs begin from nothing."""
    life = Life(tmp_path, dataflow_of(Narrow()))
    life.count(3)
    life.change(dataflow_of(Wide(), buckets=2), anew=True)
    assert life.counts() == {}
    assert life.seen() == {"polars": [], "delta-rs": []}
    life.reference = ReferenceEngine(dataflow_of(Wide()))
    life.count(3)
    life.check()


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_in_a_change_leaves_the_old_or_the_new_table(tmp_path: Path, point: str) -> None:
    """Killed at any passage: all records are there, under the old buckets or the new ones."""
    passage = 0
    while True:
        passage += 1
        life = Life(tmp_path / str(passage), dataflow_of(Narrow()))
        life.count(2, words=6)
        faults = PlannedFaults(point, passage=passage)
        life.faults.to = faults
        try:
            life.change(dataflow_of(Wide(), buckets=8))
        except Crash:
            pass
        else:
            break
        life.faults.to = NO_FAULTS
        for reader, rows in life.seen(columns=("word", "n")).items():
            expected = [{"word": word, "n": n} for word, n in life.expected().items()]
            assert rows == order_free(expected), reader
        life.driver.engine = life.engine()
        life.version -= 1
        life.change(dataflow_of(Wide(), buckets=8))
        life.count(2, words=6)
        life.check()
    assert passage > 1, f"{point} is never passed"


def test_an_unchanged_version_touches_no_table(tmp_path: Path) -> None:
    """A stage whose tables are as declared writes no file and no entry."""
    life = Life(tmp_path, dataflow_of(Wide()))
    life.count(2)
    before = sorted(p for p in (tmp_path / "t").rglob("*") if p.is_file())
    engine = life.driver.engine
    assert isinstance(engine, DirectEngine)
    node = replace(life.driver.dataflow.stages["stage"], fuse=False)
    assert engine.tables.rewrite(life.driver.folder, "d", node, epoch=2, run="c", anew=False) == []
    assert sorted(p for p in (tmp_path / "t").rglob("*") if p.is_file()) == before
