"""The change data feed of views' tables, as delta-rs reads it: exact from version to version."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cbp.engine.commit import change_feed
from cbp.engine.commit.change_feed import feed_of_repair, net_changes
from cbp.engine.commit.release import release_table
from cbp.engine.delta.actions import ROWS_UNKNOWN, CommitInfo, encode
from cbp.engine.delta.managed_table import open_table
from cbp.engine.delta.repair import repair
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.files import LocalFiles
from cbp.model.flow.schema import Schema
from tests.cbp.engine.small_limits import small_limits
from tests.change_feeds import (
    UPDATE_AFTER,
    UPDATE_BEFORE,
    epochs_shown,
    feed_by_delta_rs,
    record_of,
    records_at,
    require_exact,
    require_exact_bag,
    versions_of,
)
from tests.driver import Driver
from tests.view_dataflows import SHELF, random_epochs, shelf_dataflow

KEY = ("k", "part", "name")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the syncs."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def driver_on(folder: Path, *, publish_every: int = 1, merge_rows: int = 6) -> Driver:
    limits = replace(small_limits(), state_fanout=3, merge_rows=merge_rows)
    engine = LocalEngine(cache=str(folder / "cache"), limits=limits)
    return Driver(engine, shelf_dataflow(), folder / "t", publish_every=publish_every)


def run(driver: Driver, seed: int, epochs: int = 12) -> str:
    """Run some epochs of random orders; return the path of the view's table."""
    dice = random.Random(seed)
    for _ in range(epochs):
        for orders in random_epochs(dice, epochs=1)[:1]:
            driver.feed("s_orders", orders["orders"])
            driver.run_until_idle()
    driver.publish()
    return f"{driver.folder}/state/shelf.shelf"


def own_changes(driver: Driver) -> list[Counter[Any]]:
    """Return the changes of the view in each epoch, by the names that Delta has for them."""
    columns = Schema.parse(SHELF).names
    deltas = {"update_before": UPDATE_BEFORE, "update_after": UPDATE_AFTER}
    return [
        Counter(
            (deltas.get(row["change_type"], row["change_type"]), record_of(row, columns))
            for row in rows
        )
        for rows in driver.outputs("shelf.shelf")
    ]


def test_the_feed_of_each_epoch_is_its_changes(tmp_path: Path) -> None:
    """Inserts, updates and deletes of an epoch are those of the view's flow; compaction has none.

    Entries without change files give theirs by what they add, and the others do not.
    """
    driver = driver_on(tmp_path)
    path = run(driver, 5)
    feed, own = feed_by_delta_rs(path), own_changes(driver)
    require_exact(path, feed, KEY)
    epochs = epochs_shown(path)
    assert feed == {version: own[epoch] for version, epoch in epochs.items() if own[epoch]}
    kinds = {kind for changes in feed.values() for kind, _ in changes}
    assert kinds == {"insert", "delete", "update_preimage", "update_postimage"}
    assert "CBP COMPACT" in versions_of(path).values()
    assert DeltaTable(path).metadata().configuration["delta.enableChangeDataFeed"] == "true"


@pytest.mark.part(every=2, first=1)
@pytest.mark.parametrize("seed", range(2))
def test_a_version_that_shows_several_epochs_has_one_change_of_a_key(
    seed: int, tmp_path: Path
) -> None:
    """The first record of a key and its last count; in small pieces of memory, too."""
    driver = driver_on(tmp_path, publish_every=3, merge_rows=(6, 500_000)[seed % 2])
    path = run(driver, seed)
    feed = feed_by_delta_rs(path)
    require_exact(path, feed, KEY)
    assert sum(map(len, feed.values())) < sum(map(len, own_changes(driver)))
    bag = f"{driver.folder}/state/sack.sack"
    require_exact_bag(bag, feed_by_delta_rs(bag))
    assert max(records_at(bag).values()) > 1


def test_a_view_that_is_released_shows_the_changes_of_its_last_runs(tmp_path: Path) -> None:
    """What a release publishes has change files, too."""
    driver = driver_on(tmp_path, publish_every=5)
    path = run(driver, 5, epochs=5)
    driver.publish_every = 100
    for orders in random_epochs(random.Random(7), epochs=6):
        driver.feed("s_orders", orders["orders"])
        driver.run_until_idle()
    before = records_at(path)
    release_table(path, files=LocalFiles(), now_ms=1)
    assert records_at(path) != before
    require_exact(path, feed_by_delta_rs(path), KEY)


def test_a_repair_has_the_changes_of_a_file_without_statistics(tmp_path: Path) -> None:
    """Another program need not write how many records it adds; each of them is deleted."""
    path, files = run(driver_on(tmp_path), 5), LocalFiles()
    table = open_table(path, files)
    ours = next(one for one in table.snapshot.live.values() if one.deletion_vector is None)
    rows = pq.ParquetFile(f"{path}/{ours.path}").read()
    pq.write_table(rows, f"{path}/foreign.parquet")
    size = os.path.getsize(f"{path}/foreign.parquet")
    foreign = replace(ours, path="foreign.parquet", size=size, rows=ROWS_UNKNOWN)
    entry = encode([CommitInfo(1, "WRITE", engine="Someone/1"), foreign])
    files.put_if_absent(table.log.entry_path(table.snapshot.version + 1), entry)
    repaired = repair(path, files=files, now_ms=1, feed=feed_of_repair(path, files))
    changes = feed_by_delta_rs(path, repaired.version)[repaired.version]
    assert {kind for kind, _ in changes} == {"delete"}
    assert changes.total() == rows.num_rows


@pytest.mark.part(every=4, first=1)
@pytest.mark.soak
@pytest.mark.parametrize("fault", ["no_files", "not_net", "lost_delete", "no_before"])
def test_a_planted_fault_of_the_feed_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without change files, with each epoch's changes for a version, without deletes or befores."""
    if fault == "no_files":
        monkeypatch.setattr(
            "cbp.engine.direct.publication_writer.is_derivable", lambda *given: True
        )
    elif fault == "not_net":
        monkeypatch.setattr(change_feed.ChangeFeed, "_net", lambda self, read, rows: read())
    else:
        gone = "delete" if fault == "lost_delete" else "update_before"
        as_feed = change_feed._as_feed
        monkeypatch.setattr(
            change_feed,
            "_as_feed",
            lambda changes: as_feed(changes.filter(pa.compute.field("change_type") != gone)),
        )
    path = run(driver_on(tmp_path, publish_every=3), 5, epochs=10)
    with pytest.raises((AssertionError, DeltaError)):
        require_exact(path, feed_by_delta_rs(path), KEY)


def signed(*rows: tuple[str, Any, int]) -> pa.Table:
    names = ("k", "n", "sign")
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})


def test_net_changes_of_a_bag_are_the_sums_of_signs() -> None:
    """Each record as often as it is there oftener, or less often; a key of all columns is a bag."""
    nan = float("nan")
    changes = net_changes(
        signed(
            ("a", 1.0, 1), ("a", 1.0, 1), ("b", 0.0, -1), ("b", -0.0, 1), ("c", nan, -1),
            ("c", nan, -1), ("a", 1.0, 1), ("c", nan, 1), ("d", 2.0, -1), ("d", 3.0, 1),
        ),
        ["k", "n"],
    )  # fmt: skip
    rows = Counter((row["k"], row["change_type"]) for row in changes.to_pylist())
    assert rows == {
        ("a", "insert"): 3,
        ("c", "delete"): 1,
        ("d", "delete"): 1,
        ("d", "insert"): 1,
    }


def test_net_changes_join_what_happened_to_a_key() -> None:
    """From nothing to nothing, and back to the same record, is no change."""
    nan = float("nan")
    changes = net_changes(
        signed(
            ("new", 1.0, 1), ("new", 1.0, -1), ("new", 2.0, 1),
            ("flash", 1.0, 1), ("flash", 1.0, -1),
            ("same", nan, -1), ("same", 2.0, 1), ("same", 2.0, -1), ("same", nan, 1),
            ("gone", 1.0, -1), ("gone", 2.0, 1), ("gone", 2.0, -1),
            ("other", 1.0, -1), ("other", 3.0, 1), ("other", 3.0, -1), ("other", 2.0, 1),
        ),
        ["k"],
    )  # fmt: skip
    assert sorted(map(tuple, zip(*changes.to_pydict().values(), strict=True))) == [
        ("gone", 1.0, "delete"),
        ("new", 2.0, "insert"),
        ("other", 1.0, "update_before"),
        ("other", 2.0, "update_after"),
    ]
    assert changes["change_type"].to_pylist().index("update_before") + 1 == changes[
        "change_type"
    ].to_pylist().index("update_after")


NOW_ONLY = Retention(versions_min=2, versions_max=2, seconds=0, attempt_seconds=0)


def test_a_change_file_packs_only_what_becomes_smaller() -> None:
    """Random numbers lie as they are; so do no columns beside a list, whose values have no name."""
    dice = np.random.default_rng(1)
    columns = {"score": pa.array(dice.random(20_000)), "text": pa.array(["a"] * 20_000)}
    lists = {**columns, "many": pa.array([[1]] * 20_000)}
    packed = []
    for some in (columns, lists):
        table = pa.table({**some, "_change_type": pa.array(["insert"] * 20_000)})
        data = change_feed._packed(table)
        assert pq.read_table(pa.BufferReader(data)).equals(table)
        group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
        packed.append([group.column(at).compression for at in range(2)])
    assert packed == [["UNCOMPRESSED", "SNAPPY"], ["SNAPPY", "SNAPPY"]]


def change_files(path: str) -> set[str]:
    return set(os.listdir(f"{path}/_change_data"))


def test_collection_takes_change_files_with_their_versions(tmp_path: Path) -> None:
    """Those of versions that can still be read stay, and the feed is what it was from there."""
    driver = driver_on(tmp_path)
    open_table(run(driver, 5, epochs=6), LocalFiles()).checkpoint()
    path = run(driver, 6, epochs=6)
    before, files = feed_by_delta_rs(path), set(os.listdir(f"{path}/_change_data"))
    node = driver.dataflow.stages["shelf"]
    driver.engine.garbage.collect(driver.folder, node, queued=list, retention=NOW_ONLY)
    first = min(versions_of(path))
    after = feed_by_delta_rs(path, first)
    assert set(os.listdir(f"{path}/_change_data")) < files
    assert after == {version: changes for version, changes in before.items() if version >= first}
    assert after
