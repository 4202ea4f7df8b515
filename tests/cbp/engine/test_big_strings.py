"""More than 2 GB of strings in one bucket, or in one increment: no record is lost, none is cut."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from cbp import DataflowBuilder, Input, Output, Translate
from cbp.engine import arrange, bucket
from cbp.engine.direct import LocalEngine
from cbp.engine.window import WindowReader
from tests import flows
from tests.cbp.engine.test_direct import assert_same, dataflow_of, epochs_of
from tests.driver import Driver
from tests.fresh import run_fresh

MEGABYTE = 1 << 20
EPOCHS, GROUPS = 12, 200


class Lengths(Translate):
    """How many characters a key's texts have."""

    texts = Input("k BIGINT, text STRING", route_by="k")
    sizes = Output("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.sizes(key.k, sum(len(record.text) for record in group.texts))


def run_big(folder: Path, groups: int) -> None:
    """Run what a fresh process does: see the test of a bucket."""
    from cbp.engine.hashing import bucket_of, key_hash
    from cbp.model.schema import DataType

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
    found = {}
    for row in driver.engine.read_state(driver.folder, driver.dataflow.stages["stage"], "pages"):
        found[row["k"]] = len(row["text"]), row["text"][:1], row["text"][-1:]
    assert found == {k: (20, "y", "z") if k in set(again) else (MEGABYTE, "x", "x") for k in every}


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


@pytest.mark.parametrize("case", ["sequences", "tags"])
def test_wide_strings_give_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of 64 bits, in one flow and not in another, change no result."""
    monkeypatch.setattr(arrange, "NARROW_BYTES_MAX", 100)
    dataflow = dataflow_of(case)

    @settings(max_examples=15)
    @given(epochs_of(case))
    def same(epochs: list[dict[str, list[dict[str, Any]]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(LocalEngine(cache=f"{folder}/cache"), dataflow, Path(folder) / "t")
            assert_same(dataflow, driver, epochs)

    same()


def test_a_window_has_as_many_wide_records_as_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what arrived and by what is kept: both are Python objects at once."""
    monkeypatch.setattr(bucket, "WINDOW_BYTES", 40_000)
    sizes: list[int] = []
    read = WindowReader.read

    def counted(self: WindowReader, start: int, stop: int) -> Any:
        sizes.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(WindowReader, "read", counted)
    builder = DataflowBuilder("wide")
    source = builder.source("arrivals", "k BIGINT, mark STRING, copies INT")
    builder.stage("stage", flows.Pages(), buckets=2, arrivals=source)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), builder.build(), tmp_path / "t")
    # What is kept is judged by its file, in which texts that are alike take little.
    chance = random.Random(7)
    long = ["".join(chr(chance.randrange(48, 122)) for _ in range(4_000)) for _ in range(100)]
    most = []
    for texts in (["x"] * 100, long, ["z"] * 100):
        sizes.clear()
        arrivals = [{"k": k, "mark": text, "copies": 1} for k, text in enumerate(texts)]
        driver.feed("arrivals", arrivals)
        driver.run_until_idle()
        most.append(max(sizes))
    narrow, wide, behind = most
    assert narrow > 30
    assert 1 < wide < 10, "what arrived is wide"
    assert 1 < behind < 30, "what is kept is wide"


if __name__ == "__main__":
    run = run_big if sys.argv[1] == "bucket" else run_big_increment
    run(Path(sys.argv[2]), int(sys.argv[3]))
    print("equal")
