"""Compaction of outputs: few files, the same records in the same order, at bounded cost."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import LocalEngine
from cbp.engine.outputs.output_compaction import choose, in_order, merged_change
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import LocalFiles
from cbp.errors import NotFoundError
from cbp.model.flow.increment import DataFile, Increment
from tests.cbp.engine.merged_outputs import collect, driver_on, epochs, feed, file, merged
from tests.planned_faults import Crash, PlannedFaults

FANOUT = DEFAULT_LIMITS.output_fanout


@pytest.fixture(scope="module", autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs: a crash inside a process loses nothing that was written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.mark.parametrize("seed", range(20))
def test_files_stay_few_and_in_order(seed: int) -> None:
    """Any sizes, any parts: neighbours only, whole epochs, and each tier below full."""
    chance = random.Random(seed)
    sizes = [500, 9_000, 100_000, 3 << 20, 20 << 20][: chance.randint(1, 5)]
    live: list[AddFile] = []
    for epoch in range(200):
        while chosen := choose(live):
            everything = in_order(live)
            at = everything.index(chosen[0])
            rest = everything[:at], everything[at + len(chosen) :]
            assert [*rest[0], *chosen, *rest[1]] == everything
            assert not epochs(chosen) & (epochs(rest[0]) | epochs(rest[1]))
            live = [*rest[0], merged(chosen), *rest[1]]
        parts = range(chance.randint(0, 3))
        live += [file(epoch, epoch, chance.choice(sizes), part) for part in parts]
        assert live == in_order(live)
    large = sum(f.size > 8 << 20 for f in live)
    assert len(live) <= (large + 1) * 3 * 4 * FANOUT


def test_a_record_is_rewritten_at_most_once_per_tier() -> None:
    """A thousand equal epochs: bytes written are a few times the bytes that came."""
    live: list[AddFile] = []
    written = most = 0
    for epoch in range(1000):
        if chosen := choose(live):
            written += sum(f.size for f in chosen)
            live = [f for f in live if f not in chosen] + [merged(chosen)]
        live.append(file(epoch, epoch, 20_000))
        most = max(most, len(live))
    assert written <= 4 * 1000 * 20_000
    assert most <= 4 * FANOUT


@pytest.mark.part(every=2)
@pytest.mark.parametrize("publish_every", [1, 3])
def test_old_increments_read_the_same_out_of_the_table(tmp_path: Path, publish_every: int) -> None:
    """Their files are gone; records, order and pages are what they were."""
    driver = driver_on(tmp_path, publish_every=publish_every)
    seen: dict[str, list[list[dict[str, Any]]]] = {}
    for _ in range(6):
        feed(driver, 8)
        driver.run_until_idle()
        for flow in ("split.words", "split.lengths", "count.totals"):
            for increment in driver.increments[flow][len(seen.get(flow, [])) :]:
                rows = driver.engine.increments.read(
                    driver.folder, [increment], offset=0, limit=10**9
                )
                seen.setdefault(flow, []).append(rows)
    driver.publish()
    collect(driver)
    for flow, read_before in seen.items():
        increments = driver.increments[flow]
        gone = [i for i in increments if not (Path(driver.folder) / i.files[0].path).exists()]
        assert len(gone) > 30
        for increment, rows in zip(increments, read_before, strict=True):
            read = [
                driver.engine.increments.read(driver.folder, [increment], offset=at, limit=1)
                for at in range(len(rows) + 1)
            ]
            assert [row for page in read for row in page] == rows
        together = driver.engine.increments.read(driver.folder, increments, offset=3, limit=40)
        assert together == [row for rows in read_before for row in rows][3:43]
        stage, _, output = flow.partition(".")
        table = f"{driver.folder}/flows/{stage}.{output}"
        everything = sorted(repr(row) for rows in read_before for row in rows)
        assert sorted(map(repr, polars.read_delta(table).to_dicts())) == everything
        live = open_table(table, LocalFiles()).snapshot.live
        assert len(live) <= 3 * FANOUT
        assert len(DeltaTable(table).file_uris()) == len(live)


def test_a_slow_consumer_finds_its_increments(tmp_path: Path) -> None:
    """Files in a queue outlive compaction and collection; then they go."""
    driver, other = driver_on(tmp_path / "a"), driver_on(tmp_path / "b")
    for each in (driver, other):
        feed(each, 40)
        while each.run("split"):
            pass
    for _ in range(3):
        collect(driver)
    waiting = driver.increments["split.words"]
    assert all((Path(driver.folder) / f.path).exists() for i in waiting for f in i.files)
    for each in (driver, other):
        each.run_until_idle()
    assert driver.outputs("count.totals") == other.outputs("count.totals")
    feed(driver, 8)
    driver.run_until_idle()
    collect(driver)
    assert not all((Path(driver.folder) / f.path).exists() for i in waiting for f in i.files)


def test_crashes_around_a_merge_change_nothing(tmp_path: Path) -> None:
    """Killed while it writes or publishes a merge, the run is repeated or redone."""
    other = driver_on(tmp_path / "other")
    feed(other, 20)
    other.run_until_idle()
    driver, crashes = driver_on(tmp_path / "a"), 0
    feed(driver, 20)
    points = [f"{e}.{s}" for e in ("data_file", "data_sync") for s in ("before", "after")]
    while any(any(c.queue for c in many.values()) for many in driver.connectors.values()):
        for point in points:
            engine = LocalEngine(
                cache=str(tmp_path / "cache"), faults=PlannedFaults(point, passage=3)
            )
            driver.engine = engine
            try:
                driver.run_until_idle()
            except Crash:
                crashes += 1
        driver.engine = LocalEngine(cache=str(tmp_path / "cache"))
        for stage in driver.dataflow.stages:
            driver.run(stage)
    assert crashes > 3
    collect(driver)
    assert driver.outputs("count.totals") == other.outputs("count.totals")


def test_what_cannot_be_read_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged old file is reported, and does not stop later epochs."""
    files = [file(epoch, epoch, 100) for epoch in range(FANOUT)]
    change = merged_change("flows/a.b", str(tmp_path), files, epoch=9, run="r", faults=NO_FAULTS)
    assert change is None
    assert "was not compacted" in caplog.text


def test_a_lost_increment_of_a_source_is_told(tmp_path: Path) -> None:
    """A source has no table: an input that is gone is an error, not an empty page."""
    driver = driver_on(tmp_path)
    lost = Increment("lines", 0, 0, (DataFile("sources/lines/x.parquet", 1, 1),))
    with pytest.raises(NotFoundError):
        driver.engine.increments.read(driver.folder, [lost], offset=0, limit=1)
