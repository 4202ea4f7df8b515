"""More than 2 GB of strings in one bucket, or in one increment: no record is lost, none is cut.

So it is where a vectorised translator reads, keeps and passes them on. Calls on tables, windows and
what waits to be written are bounded by bytes, not by rows alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateArrow
from cbp.engine.direct import LocalEngine
from cbp.engine.kernel.group_batch import WindowReader
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from tests import flows
from tests.cbp.engine.epochs import assert_same, dataflow_of, epochs_of
from tests.driver import Driver
from tests.fresh import run_fresh
from tests.sampling import examples

MEGABYTE = 1 << 20
EPOCHS, GROUPS = 12, 200


class Latest(TranslateArrow):
    """Passes on the last text of each key; emits how many groups each call has."""

    texts = Input("k BIGINT, text STRING", route_by="k")
    kept = State("k BIGINT, text STRING")
    changes = Output("k BIGINT, text STRING", key="k")

    def __init__(self, calls: list[int]) -> None:
        self._tell = calls.append

    def translate(self, groups: Any, out: Any) -> None:
        self._tell(len(groups))
        out.kept(groups.texts)
        out.changes(groups.texts)


def latest(calls: list[int]) -> Dataflow:
    """Return the dataflow of `Latest` alone; each key arrives once in an epoch."""
    builder = DataflowBuilder("big")
    source = builder.source("arrivals", "k BIGINT, text STRING")
    builder.stage("stage", Latest(calls), buckets=2, texts=source)
    return builder.build()


class Lengths(Translate):
    """How many characters a key's texts have."""

    texts = Input("k BIGINT, text STRING", route_by="k")
    sizes = Output("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.sizes(key.k, sum(len(record.text) for record in group.texts))


def run_big(folder: Path, groups: int) -> None:
    """Run what a fresh process does: see the test of a bucket."""
    from cbp.engine.columnar.key_hash import bucket_of, key_hash
    from cbp.model.flow.schema import DataType

    def bucket_number(key: int) -> int:
        hash_ = key_hash([key], [DataType("BIGINT")])
        return bucket_of(hash_ - (1 << 64) if hash_ >= 1 << 63 else hash_, 2)

    every = [key for key in range(EPOCHS * groups * 3) if bucket_number(key) == 0][
        : EPOCHS * groups
    ]
    builder = DataflowBuilder("big")
    source = builder.source("arrivals", "k BIGINT, mark STRING, copies INT")
    builder.stage("stage", flows.Pages(), buckets=2, arrivals=source)
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), builder.build(), folder / "t")
    for epoch in range(EPOCHS):
        keys = every[epoch::EPOCHS]
        driver.feed("arrivals", [{"k": k, "mark": "x", "copies": MEGABYTE} for k in keys])
        driver.run_until_idle()
    again = every[:: len(every) // 20]
    driver.feed("arrivals", [{"k": k, "mark": "yz", "copies": 10} for k in again])
    driver.run_until_idle()
    sizes = driver.outputs("stage.sizes")[-1]
    assert {row["k"] for row in sizes} == set(again)
    assert {(row["before"], row["after"]) for row in sizes} == {(MEGABYTE, 20)}
    actual = {}
    for row in driver.engine.records.read_state(
        driver.folder, driver.dataflow.stages["stage"], "pages"
    ):
        actual[row["k"]] = len(row["text"]), row["text"][:1], row["text"][-1:]
    assert actual == {k: (20, "y", "z") if k in set(again) else (MEGABYTE, "x", "x") for k in every}


def run_big_increment(folder: Path, records: int) -> None:
    """Run what a fresh process does: see the test of an increment."""
    builder = DataflowBuilder("big")
    source = builder.source("arrivals", "k BIGINT, text STRING")
    builder.stage("stage", Lengths(), buckets=2, texts=source)
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), builder.build(), folder / "t")
    text = "x" * MEGABYTE
    driver.feed("arrivals", [{"k": k % 50, "text": text} for k in range(records)])
    driver.run_until_idle()
    sizes = driver.outputs("stage.sizes")[-1]
    assert {row["k"]: row["n"] for row in sizes} == {
        k: len(range(k, records, 50)) * MEGABYTE for k in range(50)
    }


def run_big_tables(folder: Path, records: int) -> None:
    """Run what a fresh process does: see the test of calls on tables."""
    calls: list[int] = []
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), latest(calls), folder / "t")
    for letter, copies in (("x", MEGABYTE), ("y", 3)):
        calls.clear()
        text = letter * copies
        driver.feed("arrivals", [{"k": k, "text": text} for k in range(records)])
        driver.run_until_idle()
        assert sum(calls) == records
        assert max(calls) < records // 4
        assert found_sizes(driver) == {k: copies for k in range(records)}
    assert {row["k"]: row["text"] for row in driver.state("stage", "kept")} == dict.fromkeys(
        range(records), "yyy"
    )


def found_sizes(driver: Driver) -> dict[int, int]:
    """Return how long each key's text is in the newest increment of `Latest`."""
    actual: dict[int, int] = {}
    for file in driver.increments["stage.changes"][-1].files:
        for batch in pq.ParquetFile(f"{driver.folder}/{file.path}").iter_batches(64):
            lengths = pc.binary_length(batch.column("text"))
            actual.update(zip(batch.column("k").to_pylist(), lengths.to_pylist(), strict=True))
    return actual


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_bucket_holds_more_than_two_gigabytes_of_strings(tmp_path: Path) -> None:
    """Look-ups, replacement, compaction and reading see every record.

    It takes 3.0 GB of resident memory at most, mapped pages included.
    """
    run_fresh("tests.cbp.engine.test_big_strings", "bucket", tmp_path, GROUPS)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_an_increment_holds_more_than_two_gigabytes_of_strings(tmp_path: Path) -> None:
    """Its file is small, since its strings are alike; it is read whole. It takes 5.6 GB."""
    run_fresh("tests.cbp.engine.test_big_strings", "increment", tmp_path, 2200)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_calls_on_tables_take_more_than_two_gigabytes_of_strings(tmp_path: Path) -> None:
    """Arrived, kept and passed on; the views that the author emits end beyond 2 GB. 6.6 GB."""
    run_fresh("tests.cbp.engine.test_big_strings", "tables", tmp_path, 2200)


@pytest.mark.parametrize("case", ["sequences", "tags"])
def test_wide_strings_give_the_same(case: str) -> None:
    """Offsets of 64 bits, in one flow and not in another, change no result."""
    limits = EngineLimits(narrow_bytes=100)
    dataflow = dataflow_of(case)

    @settings(max_examples=examples(8))
    @given(epochs_of(case))
    def same(epochs: list[dict[str, list[dict[str, Any]]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            engine = LocalEngine(cache=f"{folder}/cache", limits=limits)
            driver = Driver(engine, dataflow, Path(folder) / "t")
            assert_same(dataflow, driver, epochs)

    same()


def test_a_window_has_as_many_wide_records_as_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what arrived and by what is kept: both are Python objects at once."""
    limits = EngineLimits(window_bytes=40_000)
    sizes: list[int] = []
    read = WindowReader.read

    def counted(self: WindowReader, start: int, stop: int) -> Any:
        sizes.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(WindowReader, "read", counted)
    builder = DataflowBuilder("wide")
    source = builder.source("arrivals", "k BIGINT, mark STRING, copies INT")
    builder.stage("stage", flows.Pages(), buckets=2, arrivals=source)
    engine = LocalEngine(cache=f"{tmp_path}/cache", limits=limits)
    driver = Driver(engine, builder.build(), tmp_path / "t")
    most = []
    for text in ("x", "y" * 4_000, "z"):
        sizes.clear()
        driver.feed("arrivals", [{"k": k, "mark": text, "copies": 1} for k in range(100)])
        driver.run_until_idle()
        most.append(max(sizes))
    narrow, wide, behind = most
    assert narrow > 30
    assert 1 < wide < 10, "what arrived is wide"
    assert 1 < behind < 10, "what is kept is wide, however well it is packed"


def test_a_call_on_tables_has_as_many_wide_records_as_fit(tmp_path: Path) -> None:
    """By what arrived and by what is kept, however well it is packed; few records are one call."""
    calls: list[int] = []
    engine = LocalEngine(cache=f"{tmp_path}/cache", limits=EngineLimits(call_bytes=40_000))
    driver = Driver(engine, latest(calls), tmp_path / "t")
    most = []
    for width in (1, 4_000, 1):
        calls.clear()
        driver.feed("arrivals", [{"k": k, "text": "x" * width} for k in range(100)])
        driver.run_until_idle()
        assert sum(calls) == 100
        most.append(max(calls))
    narrow, wide, behind = most
    assert narrow > 30
    assert 1 < wide < 10, "what arrived is wide"
    assert 1 < behind < 10, "what is kept is wide"


if __name__ == "__main__":
    run = {"bucket": run_big, "increment": run_big_increment, "tables": run_big_tables}[sys.argv[1]]
    run(Path(sys.argv[2]), int(sys.argv[3]))
    print("equal")
