"""Old increments, found in the files that compaction made of theirs.

They are found with the same records in the same order, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate, framed
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import DataFile, Increment
from tests import flows
from tests.cbp.engine.merged_outputs import collect, driver_on, feed
from tests.driver import Driver

EPOCHS = 40


@pytest.fixture(scope="module", autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs: no test here cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


class Lengths(Translate):
    """Counts the frames of a flow, which end where a word is shorter than the one before."""

    words = Input(
        "url STRING",
        route_by="url",
        frame_by=framed(lambda record, memo: (len(record.url), None), memo=True),
    )
    seen = State("url STRING, n BIGINT")
    calls = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.words) + sum(row.n for row in group.seen)
        out.seen(key.url, n)
        out.calls(key.url, n)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> tuple[Driver, list[list[Any]]]:
    """Return a driver after many epochs, and what each wrote before its files went."""
    driver = driver_on(tmp_path_factory.mktemp("old"))
    feed(driver, EPOCHS)
    while driver.run("split"):
        pass
    rows = driver.outputs("split.words")
    driver.run_until_idle()
    collect(driver)
    return driver, rows


def gone(driver: Driver, increment: Increment) -> bool:
    return not all((Path(driver.folder) / file.path).exists() for file in increment.files)


def test_increments_whose_files_are_gone_are_slices_of_others(old: Any) -> None:
    """As many records, in the same order; none of a file that is not there."""
    driver, rows = old
    was = driver.increments["split.words"]
    assert sum(gone(driver, increment) for increment in was) > 20
    now = driver.engine.increments.locate(driver.folder, "split.words", was)
    assert not any(gone(driver, increment) for increment in now)
    assert [(i.name, i.framing_key, i.records) for i in now] == [
        (i.name, i.framing_key, i.records) for i in was
    ]
    assert {file.whole for increment in now for file in increment.files} == {True, False}
    for increment, expected in zip(now, rows, strict=True):
        read = driver.engine.increments.read(driver.folder, [increment], offset=0, limit=10**9)
        assert [{k: v for k, v in row.items() if k != "_epoch"} for row in read] == expected
    pages = [
        driver.engine.increments.read(driver.folder, now, offset=at, limit=7)
        for at in range(0, 160, 7)
    ]
    assert [row["url"] for page in pages for row in page] == [
        row["url"] for epoch in rows for row in epoch
    ]


def reader(translator: Translate, name: str, flow: str) -> Dataflow:
    builder = DataflowBuilder("words")
    lines = builder.source("lines", "text STRING")
    split = builder.stage("split", flows.Split(), lines=lines)
    wiring: dict[str, Any] = {flow: split.words}
    builder.stage(name, translator, buckets=2, **wiring)
    return builder.build()


@pytest.mark.parametrize(
    ("translator", "flow", "output"),
    [(flows.UrlCount, "urls", "totals"), (Lengths, "words", "calls")],
)
def test_a_stage_reads_them_as_it_would_have(
    old: Any, translator: type[Translate], flow: str, output: str, tmp_path: Path
) -> None:
    """Framed or not: every epoch gives what the reference gives from the first one on."""
    driver, rows = old
    dataflow = reader(translator(), "later", flow)
    builder = DataflowBuilder("direct")
    wiring: dict[str, Any] = {flow: builder.source("s", "url STRING")}
    builder.stage("later", translator(), buckets=2, **wiring)
    reference = ReferenceEngine(builder.build())
    for epoch in rows:
        reference.feed("s", epoch)
    reference.run_until_idle()
    engine = LocalEngine(cache=str(tmp_path / "cache"))
    later = Driver(engine, dataflow, Path(driver.folder))
    for increment in engine.increments.locate(
        driver.folder, "split.words", driver.increments["split.words"]
    ):
        later._enqueue(increment)
    later.run_until_idle()
    assert later.outputs(f"later.{output}") == reference.outputs(f"later.{output}")
    assert later.epochs["later"] > EPOCHS - 2


def test_what_is_not_there_as_it_was_is_not_made_up(old: Any) -> None:
    """Another number of records, or an epoch that the table does not hold: left as it was given."""
    driver, _ = old
    first = driver.increments["split.words"][0]
    more = replace(first, files=(replace(first.files[0], records=99, stop=99),))
    later = Increment("split.words", EPOCHS + 7, 0, (DataFile("flows/split.words/x", 1, 1),))
    assert driver.engine.increments.locate(driver.folder, "split.words", [more, later]) == [
        more,
        later,
    ]
