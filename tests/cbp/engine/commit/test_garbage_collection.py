"""Collection: bounded files and log entries, and nothing that anybody needs goes.

Needed is what a readable version, a queue, a run under way or an unpublished record names; so it is
wherever collection crashes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import DataflowBuilder
from cbp.engine.commit.garbage_collection import dead_files, oldest_kept
from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.file_names import bucket_file, file_epoch, flow_file, vectors_id
from cbp.engine.storage.files import LocalFiles, StoredFile
from cbp.model.dataflow.dataflow import Dataflow
from tests import flows
from tests.driver import Driver
from tests.planned_faults import Crash, PlannedFaults

SIDES = ("before", "after")
NOW_ONLY = Retention(versions_min=2, versions_max=2, seconds=0, attempt_seconds=0)


@pytest.fixture(scope="module", autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


OFTEN = EngineLimits(checkpoint_entries=5)
"""Limits with which checkpoints are written often, so that there is something to collect."""


def dataflow() -> Dataflow:
    builder = DataflowBuilder("counts")
    urls = builder.source("urls", "url STRING")
    builder.stage("count", flows.UrlCount(), buckets=2, urls=urls)
    return builder.build()


def driver_on(folder: Path, **options: Any) -> Driver:
    engine = LocalEngine(cache=str(folder / "cache"), limits=OFTEN, **options)
    return Driver(engine, dataflow(), folder / "df")


def play(driver: Driver, epochs: int, *, retention: Retention | None = NOW_ONLY) -> None:
    """Run epochs that all touch the same keys and some of their own."""
    for _ in range(epochs):
        number = driver.indexes["urls"]
        urls = [f"u{number % 3}", f"u{number}", "u"]
        driver.feed("urls", [{"url": url} for url in urls])
        driver.run_until_idle()
        if retention is not None:
            collect(driver, retention)


def collect(driver: Driver, retention: Retention = NOW_ONLY, **more: Any) -> Any:
    queued = [
        file.path
        for connectors in driver.connectors.values()
        for connector in connectors.values()
        for waiting in connector.queue
        for file in waiting.increment.files
    ]
    node = driver.dataflow.stages["count"]
    return driver.engine.garbage.collect(
        driver.folder, node, queued=lambda: queued, retention=retention, **more
    )


def stored(driver: Driver) -> list[str]:
    """Return every file of the tables."""
    return sorted(
        str(path.relative_to(driver.folder))
        for kind in ("state", "flows")
        for path in (Path(driver.folder) / kind).rglob("*")
        if path.is_file()
    )


def counts(driver: Driver) -> dict[str, int]:
    return {row["url"]: row["n"] for row in driver.state("count", "counts")}


def test_collected_tables_hold_the_same(tmp_path: Path) -> None:
    """With a collection after each epoch, state and outputs are those of none at all."""
    collected, other = driver_on(tmp_path / "a"), driver_on(tmp_path / "b")
    play(collected, 25)
    play(other, 25, retention=None)
    assert counts(collected) == counts(other)
    assert collected.outputs("count.totals") == other.outputs("count.totals")
    assert len(stored(collected)) < len(stored(other)) / 2
    for table in ("state/count.counts", "flows/count.totals"):
        frames = [
            polars.read_delta(f"{driver.folder}/{table}").sort(polars.all())
            for driver in (collected, other)
        ]
        assert frames[0].equals(frames[1])


def test_kept_versions_stay_readable(tmp_path: Path) -> None:
    """Every version that the log still shows can be read as it was."""
    driver, seen = driver_on(tmp_path), {}
    path = f"{tmp_path}/df/state/count.counts"
    for _ in range(30):
        play(driver, 1, retention=None)
        version = open_table(path, LocalFiles()).snapshot.version
        seen[version] = counts(driver)
        collect(driver)
    log = open_table(path, LocalFiles()).log
    readable = [version for version in log.versions() if version in seen]
    assert 2 < len(readable) < 15
    for version in readable:
        frame = polars.read_delta(path, version=version)
        assert dict(zip(frame["url"], frame["n"], strict=True)) == seen[version]


def test_what_a_queue_names_stays(tmp_path: Path) -> None:
    """A file that is not in the table any more stays while a connector holds it."""
    driver = driver_on(tmp_path)
    play(driver, 12, retention=None)
    node, table = driver.dataflow.stages["count"], "flows/count.totals"
    orphan = f"{table}/_runs/{flow_file(0, 7, 'lost-0')}"
    (tmp_path / "df" / orphan).write_bytes(b"")
    for queued, there in (([orphan], True), ([], False)):
        driver.engine.garbage.collect(driver.folder, node, queued=queued.copy, retention=NOW_ONLY)
        assert (tmp_path / "df" / orphan).exists() is there


def test_a_run_under_way_loses_nothing(tmp_path: Path) -> None:
    """Files of an epoch that is not published yet are never candidates."""
    driver = driver_on(tmp_path)
    play(driver, 10)
    engine, state = driver.engine, "state/count.counts"
    before = counts(driver)
    publish = engine.publisher.publish

    def late(*args: Any, **named: Any) -> Any:
        collect(driver)  # between the record and its publication
        return publish(*args, **named)

    engine.publisher.publish = late  # type: ignore[method-assign]
    play(driver, 12, retention=None)
    assert sum(counts(driver).values()) == sum(before.values()) + 12 * 3
    assert state in collect(driver)


def test_a_crash_during_a_collection_is_harmless(tmp_path: Path) -> None:
    """Interrupted at any passage of any effect, the next collections end the same."""
    unbroken, broken = driver_on(tmp_path / "unbroken"), driver_on(tmp_path / "broken")
    play(unbroken, 15)
    leave = tmp_path / "broken/df/state/count.counts/_delta_log/.left.1.tmp"
    points = [f"{e}.{s}" for e in ("clean_up", "dead_entry", "dead_file") for s in SIDES]
    struck = []
    for number in range(15):
        play(broken, 1, retention=None)
        leave.write_bytes(b"")
        for point in points:
            faults = PlannedFaults(point, passage=1 + number % 3)
            broken.engine = LocalEngine(
                cache=str(tmp_path / "broken/cache"), limits=OFTEN, faults=faults
            )
            try:
                collect(broken)
            except Crash:
                struck.append(point)
        broken.engine = LocalEngine(cache=str(tmp_path / "broken/cache"), limits=OFTEN)
        assert sum(counts(broken).values()) == 3 * (number + 1)
    assert set(struck) == set(points)
    collect(broken)
    assert counts(broken) == counts(unbroken)
    assert len(stored(broken)) == len(stored(unbroken))


def test_a_collection_goes_on_where_one_was_interrupted_with_a_longer_retention(
    tmp_path: Path,
) -> None:
    """Entries that are left of what nobody can open any more are nothing to keep."""
    driver = driver_on(tmp_path)
    play(driver, 18, retention=None)
    faults = PlannedFaults("dead_entry.after", passage=3)
    driver.engine = LocalEngine(cache=str(tmp_path / "cache"), limits=OFTEN, faults=faults)
    with pytest.raises(Crash):
        collect(driver)
    driver.engine = LocalEngine(cache=str(tmp_path / "cache"), limits=OFTEN)
    before = counts(driver)
    plan = collect(driver, Retention(versions_min=100, versions_max=100, seconds=0))
    assert {table.base for table in plan.values()} <= {0, 5}
    assert 5 in {table.base for table in plan.values()}
    assert counts(driver) == before


def test_entries_are_gone_for_good_before_their_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power brings back what was not synced: an entry, and no file that it names."""
    driver = driver_on(tmp_path)
    play(driver, 18, retention=None)
    effects: list[str] = []
    remove, sync_dir = LocalFiles.remove, LocalFiles.sync_dir

    def removed(self: LocalFiles, path: str, *, what: str = "clean_up") -> None:
        effects.append(what)
        remove(self, path, what=what)

    def synced(self: LocalFiles, path: str) -> None:
        effects.append(path.rpartition("/")[2])
        sync_dir(self, path)

    monkeypatch.setattr(LocalFiles, "remove", removed)
    monkeypatch.setattr(LocalFiles, "sync_dir", synced)
    collect(driver)
    orders = [what for what, _ in itertools.groupby(effects)]
    assert "dead_file" in orders
    for before, what in itertools.pairwise(orders):
        assert what != "dead_file" or before == "_delta_log"


def test_a_dry_run_tells_and_removes_nothing(tmp_path: Path) -> None:
    """It names what the next call removes, with a reason for each file."""
    driver = driver_on(tmp_path)
    play(driver, 15, retention=None)
    before = stored(driver)
    told = collect(driver, dry_run=True)
    assert stored(driver) == before
    done = collect(driver)
    assert told == done
    plan = done["state/count.counts"]
    gone = {f"state/count.counts/{dead.path}" for dead in plan.dead}
    assert gone
    assert all("not in the table" in dead.because for dead in plan.dead)
    removed = set(before) - set(stored(driver))
    assert gone == {path for path in removed if path.startswith("state/") and "_log" not in path}


def test_young_versions_and_young_files_stay(tmp_path: Path) -> None:
    """Readers have `seconds` to go on, attempts have `attempt_seconds` to end."""
    driver = driver_on(tmp_path)
    play(driver, 20, retention=None)
    before = stored(driver)
    collect(driver, Retention(versions_min=2, seconds=0))
    assert [p for p in stored(driver) if "_delta_log" not in p] == [
        p for p in before if "_delta_log" not in p
    ]
    assert file_epoch("x") is None


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        (Retention(0, 1000, 0), 99),
        (Retention(20, 1000, 0), 79),
        (Retention(0, 1000, 30), 69),
        (Retention(0, 10, 30), 89),
        (Retention(0, 1000, 1000), 0),
        (Retention(200, 1000, 0), 0),
        (Retention(50, 10, 30), 49),
    ],
)
def test_versions_stay_by_number_and_by_age(retention: Retention, expected: int) -> None:
    """One version a second, 100 of them; now is the time of the last."""
    stamp = {version: version * 1000 for version in range(100)}
    actual = oldest_kept(range(100), stamp.__getitem__, retention, now_ms=99_000)
    assert actual == expected


def test_only_files_of_published_epochs_die() -> None:
    """Names tell the epoch, of data files and of vectors; foreign names are left alone."""
    names = [
        f"_vectors/deletion_vector_{vectors_id(4, b'a')}.bin",
        f"_vectors/deletion_vector_{vectors_id(5, b'a')}.bin",
        bucket_file(1, 4, "r-0", 0),
        bucket_file(1, 5, "r-0", 0),
        f"_runs/{flow_file(3, 0, 'r-0')}",
        "_runs/_bucket=1/somebody.parquet",
        "_runs/.x.tmp",
    ]
    assert [file_epoch(name) for name in names] == [4, 5, 4, 5, 3, None, None]
    files = [StoredFile(name, 1, 10.0, name.endswith(".tmp")) for name in names]
    dead = dead_files(files, {names[2]}, 5, attempt_seconds=5)
    assert [file.path for file in dead] == ["_runs/.x.tmp", names[4], names[0]]
    assert dead_files(files, (), 5, attempt_seconds=11) == []
