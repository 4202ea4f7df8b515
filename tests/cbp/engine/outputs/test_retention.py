"""Retention of outputs: what is left is the end of the flow, readers agree, files stay few.

Nothing that waits or that a roll-back needs goes, and little more stays, whatever crashes. What is
collected is refused or left out by name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.commit.table_entries import horizon, horizon_mark, kind_of
from cbp.engine.delta.actions import AddFile, CommitInfo, RemoveFile
from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import LocalEngine
from cbp.engine.outputs.output_compaction import choose, in_order
from cbp.engine.outputs.retention import PARTS, expired, expired_change, grain_of
from cbp.engine.storage.files import LocalFiles
from cbp.errors import IncrementCollectedError
from cbp.model.flow.retention import FlowRetention, KeptFlow
from tests.cbp.engine.kept_outputs import KEPT, run
from tests.cbp.engine.merged_outputs import driver_on, epochs, feed, file, merged
from tests.planned_faults import Crash, PlannedFaults

HOUR = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs: a crash inside a process loses nothing that was written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def came(one: AddFile, ms: int) -> AddFile:
    return replace(one, modified_ms=ms)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_is_what_is_kept_and_little_more(seed: int) -> None:
    """However it is merged meanwhile: at most an eighth more by age or bytes, and few files."""
    chance = random.Random(seed)
    by_age = chance.random() < 0.5
    kept = KeptFlow(
        FlowRetention(10 * HOUR / 1000) if by_age else FlowRetention(1e12, 400_000),
        first_replayed=10**9,
    )
    sizes = [500, 3_000, 9_000][: chance.randint(1, 3)]
    live: list[AddFile] = []
    gone: set[int] = set()
    for epoch in range(1000):
        now_ms = epoch * 60_000  # a minute each
        if epoch % 8 == 0:
            change = expired_change("t", live, kept, now_ms=now_ms)
            if change is not None:
                left = [one for one in live if one.path not in change.drops]
                gone |= epochs([one for one in live if one.path in change.drops])
                assert change.below == max(gone) + 1
                assert not [one for one in epochs(left) if one < change.below]
                live = left
            grain = grain_of(live, kept, now_ms=now_ms)
            if chosen := choose(live, grain):
                at = in_order(live).index(chosen[0])
                rest = [one for one in in_order(live) if one not in chosen]
                live = [*rest[:at], came(merged(chosen), chosen[-1].modified_ms), *rest[at:]]
            if by_age:
                old = (now_ms - 10 * HOUR) // 60_000
                assert min(epochs(live), default=epoch) >= old - 600 / PARTS * 2 - 8
                assert epoch <= 600 or len(epochs(live)) >= 599
            else:
                size = sum(one.size for one in live)
                assert size <= 400_000 * (1 + 1 / PARTS) + 8 * 9_000
        live.append(came(file(epoch, epoch, chance.choice(sizes)), now_ms))
        assert len(live) <= 4 * 8 * PARTS
    assert gone == set(range(len(gone)))
    assert len(gone) > 100


@pytest.mark.parametrize("limit", ["first_replayed", "first_waiting"])
def test_what_must_stay_stays_however_old(limit: str) -> None:
    """The file that holds it is kept, with all later ones; the reason is given."""
    live = [file(at, at + 1, 100) for at in range(0, 10, 2)]
    kept = KeptFlow(FlowRetention(0.0), **{"first_replayed": 10**9, limit: 5})
    actual = expired(live, kept, now_ms=10**12)
    assert [one.index for one in actual.gone] == [1, 3]
    assert ("roll-back" if limit == "first_replayed" else "queue") in actual.stays
    assert expired_change("t", live, KeptFlow(FlowRetention(0.0)), now_ms=10**12) is None


def test_merges_keep_within_a_grain_that_grows() -> None:
    """A file belongs to one stretch of time, whatever the grain was before; or it would stay."""
    live = [came(file(at, at, 100), at * 10) for at in range(64)]
    for ms in (64, 128, 64, 256):
        kept = KeptFlow(FlowRetention(ms * PARTS / 1000), first_replayed=10**9)
        grain = grain_of(live, kept, now_ms=640)
        assert grain.ms == ms
        while chosen := choose(live, grain):
            live = [one for one in live if one not in chosen]
            live.append(came(merged(chosen), chosen[-1].modified_ms))
        spans = [epochs([one]) for one in live]
        assert all(len({at * 10 // 256 for at in span}) == 1 for span in spans)


def _ways(path: str) -> dict[str, set[tuple[type, bool]]]:
    """Return by operation what its entries hold: kinds of actions, and whether they change data.

    All entries of an operation hold the same.
    """
    log = open_table(path, LocalFiles()).log
    actual: dict[str, set[tuple[type, bool]]] = {}
    for version in log.versions():
        actions = log.entry(version)
        (info,) = [one for one in actions if isinstance(one, CommitInfo)]
        moved = [one for one in actions if isinstance(one, AddFile | RemoveFile)]
        way = {(type(one), one.data_change) for one in moved}
        assert actual.setdefault(info.operation, way) == way
    return actual


@pytest.mark.part(every=2)
@pytest.mark.parametrize("publish_every", [1, 3])
def test_readers_see_the_end_of_the_flow(tmp_path: Path, publish_every: int) -> None:
    """Polars, delta-rs and pages agree; what went is a coded error.

    No entry has both what comes and what goes, so that streams can follow: only a compaction adds
    and removes, and changes no data by either.
    """
    driver = driver_on(tmp_path, publish_every=publish_every)
    driver.kept = {"count.totals": replace(KEPT, first_replayed=0)}
    run(driver, 30)
    driver.kept = {"count.totals": KEPT}
    run(driver, 12)
    driver.publish()
    path = f"{driver.folder}/flows/count.totals"
    table = open_table(path, LocalFiles())
    oldest = horizon(table.snapshot.txns)
    assert 8 < oldest <= 20
    assert driver.engine.increments.horizon(driver.folder, "count.totals") == oldest
    shown = polars.read_delta(path)
    assert sorted(set(shown["_epoch"])) == list(range(oldest, 42))
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT count(*) AS n FROM t")
    assert pa.table(query.read_all()).to_pylist() == [{"n": len(shown)}]
    actual = [
        driver.engine.increments.recall(driver.folder, "count.totals", n).records
        for n in range(20, 42)
    ]
    assert sum(actual) == len(shown.filter(polars.col("_epoch") >= 20))
    with pytest.raises(IncrementCollectedError) as told:
        driver.engine.increments.recall(driver.folder, "count.totals", oldest - 1)
    assert told.value.details["oldest"] == oldest
    other = f"{driver.folder}/flows/split.words"
    assert _ways(path) | _ways(other) == {
        "CBP CREATE": set(),
        "CBP RUN": {(AddFile, True)},
        "CBP COMPACT": {(AddFile, False), (RemoveFile, False)},
        "CBP RETAIN": {(RemoveFile, True)},
    }
    assert horizon(open_table(other, LocalFiles()).snapshot.txns) == 0
    assert sorted(set(polars.read_delta(other)["_epoch"])) == list(range(42))


@pytest.mark.soak
def test_crashes_around_a_retention_change_nothing(tmp_path: Path) -> None:
    """Killed at any log entry, what is published again is what an unbroken run shows."""
    shown = []
    for name in ("a", "b"):
        driver, crashes = driver_on(tmp_path / name, publish_every=2), 0
        driver.kept = {"count.totals": KEPT}
        for number in range(40):
            feed(driver, 1)
            for passage in range(1, 8) if name == "b" else ():
                point = f"log_entry.{'before' if number % 2 else 'after'}"
                engine = LocalEngine(
                    cache=str(tmp_path / "cache"), faults=PlannedFaults(point, passage=passage)
                )
                driver.engine = engine
                try:
                    driver.publish()
                except Crash:
                    crashes += 1
            driver.engine = LocalEngine(cache=str(tmp_path / "cache"))
            driver.run_until_idle()
        driver.publish()
        path = f"{driver.folder}/flows/count.totals"
        txns = open_table(path, LocalFiles()).snapshot.txns
        shown.append((horizon(txns), sorted(map(repr, polars.read_delta(path).rows()))))
        assert name == "a" or crashes > 10
    assert shown[0] == shown[1]
    assert shown[0][0] > 8


def test_records_from_before_all_increments_go_without_a_horizon() -> None:
    """They were built beside, with epochs below 0; no increment is gone when they go."""
    live = [
        AddFile(f"{n}", {}, 10, 1, 0, min_values={"_epoch": n}, max_values={"_epoch": n})
        for n in (-3, -1, 7)
    ]
    kept = KeptFlow(FlowRetention(0.0), first_replayed=7)
    change = expired_change("flows/a.b", live, kept, now_ms=HOUR)
    assert change is not None
    assert change.drops == ("-3", "-1")
    assert kind_of(change) == "retention"
    assert horizon_mark("cbp/d/flows/a.b", change.below, 0) == {}
