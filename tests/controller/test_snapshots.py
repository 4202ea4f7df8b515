"""Snapshots: whatever is published meanwhile, the versions belong together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.collect import Retention
from cbp.engine.direct import LocalEngine
from cbp.engine.faults import Crash
from cbp.errors import NotFoundError
from cbp.model.snapshot import Snapshot
from controller.loop.snapshots import Snapshots
from tests.controller.world import DIAMOND, World

WORDS = ("a", "b", "c")
KEPT = Retention(versions_min=0, seconds=3600, attempt_seconds=0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, retention=KEPT)
    yield made
    made.close()


def started(world: World, policy: dict[str, Any] | None = None) -> World:
    document = {**DIAMOND, **({"publish": policy} if policy else {})}
    world.controller.register(document)
    return world


def bystander(world: World) -> Snapshots:
    """Return what another instance of the service would answer from, with memory of its own."""
    engine = LocalEngine(cache=str(world.root / "cache-2"))
    controller = world.controller
    return Snapshots(
        engine=engine,
        catalog=controller._catalog,
        runs=controller._runs,
        retention=KEPT,
        clock=world.clock,
    )


def by_polars(path: str, version: int) -> pl.DataFrame:
    return pl.read_delta(path, version=version)


def by_deltalake(path: str, version: int) -> pl.DataFrame:
    table = DeltaTable(path, version=version)
    return pl.DataFrame(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def check(snapshot: Snapshot, read: Any = by_polars) -> int:
    """Check what holds of every whole epoch: state and the last totals agree, over all stages."""
    tables = {
        name: read(f"{snapshot.folder}/{name}", shown.version)
        for name, shown in snapshot.tables.items()
    }
    for stage, state, output, number in (
        ("left", "sums", "totals", "n"),
        ("right", "sums", "totals", "n"),
        ("join", "pairs", "both", None),
    ):
        kept = tables[f"state/{stage}.{state}"]
        value = pl.col("l") + pl.col("r") if number is None else pl.col(number)
        shown = dict(kept.select("word", value.alias("v")).rows())
        told = tables[f"flows/{stage}.{output}"].sort("_epoch").select("word", "n").rows()
        assert shown == dict(told), (stage, snapshot)
        assert max([*tables[f"flows/{stage}.{output}"]["_epoch"], -1]) <= snapshot.epochs[stage]
    return sum(snapshot.epochs.values())


@pytest.mark.parametrize("policy", [None, {"epochs": 3, "seconds": 60}], ids=["each", "third"])
@pytest.mark.parametrize("read", [by_polars, by_deltalake])
def test_within_publications_only_whole_states_are_seen(world: World, policy: Any, read: Any):
    """At every log entry that is put, a reader in another process sees one publication."""
    started(world, policy)
    reader, seen, draw = bystander(world), [], random.Random(7)

    def look(point: str) -> None:
        if point in ("log_entry.before", "log_entry.after"):
            snapshot = reader.take("diamond")
            seen.append((check(snapshot, read), snapshot.newest))

    for number in range(6):
        world.arrive("diamond", "a", *((draw.choice(WORDS), number) for _ in range(3)))
        world.arrive("diamond", "b", *((draw.choice(WORDS), number) for _ in range(3)))
        world.clock.advance(1)
        world.faults.to = look
        world.ticks()
        world.faults.to = lambda point: None
    epochs = [epochs for epochs, _ in seen]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 2
    assert {newest for _, newest in seen} == {True, False}


@pytest.mark.parametrize("passage", range(1, 7))
def test_a_publication_that_died_is_in_no_snapshot(world: World, passage: int):
    """After a crash between two log entries, before any recovery, the one before is shown."""
    started(world, {"epochs": 2, "seconds": 60})
    for number in range(4):
        world.arrive("diamond", "a", ("a", number), ("b", number))
        world.arrive("diamond", "b", ("a", number))
    passed = [0]

    def crash(point: str) -> None:
        passed[0] += point == "log_entry.after"
        if passed[0] == passage:
            raise Crash(point)

    world.clock.advance(1)
    world.faults.to = crash
    with pytest.raises(Crash):
        world.ticks()
    world.faults.to = lambda point: None
    torn = bystander(world).take("diamond")
    before = check(torn)
    world.restart()
    world.controller.recover()
    world.ticks()
    assert check(world.controller.snapshots.take("diamond")) >= before


def test_any_epoch_that_is_readable_can_be_read_again(world: World):
    """As of each epoch, and as of each time: the state that it left, also with runs since."""
    started(world)
    expected = []
    for number in range(5):
        world.arrive("diamond", "a", ("a", number))
        world.arrive("diamond", "b", ("b", number))
        world.clock.advance(10)
        world.ticks()
        expected.append(world.controller.snapshots.take("diamond"))
    for epoch, then in enumerate(expected):
        assert then.newest
        for found in (
            world.controller.snapshots.take("diamond", epoch=epoch),
            world.controller.snapshots.take("diamond", at_ms=then.at_ms),
        ):
            check(found)
            assert versions(found) == versions(then)
            assert found.newest is False or epoch == 4
    middle = world.controller.snapshots.take("diamond", epoch=2, stage="left")
    assert (middle.epochs["left"], middle.epochs["join"]) == (2, 1)


def versions(snapshot: Snapshot) -> dict[str, int]:
    return {table: shown.version for table, shown in snapshot.tables.items()}


def test_what_is_not_published_or_not_readable_is_not_found(world: World):
    """An epoch to come, a stage that does not exist, a time before the tables."""
    started(world)
    for wrong in ({"epoch": 0}, {"epoch": 0, "stage": "left"}, {"at_ms": 5}):
        with pytest.raises(NotFoundError):
            world.controller.snapshots.take("diamond", **wrong)
    with pytest.raises(NotFoundError):
        world.controller.snapshots.take("diamond", epoch=0, stage="nobody")


def test_collection_leaves_a_snapshot_alone_while_it_is_readable(world: World):
    """Every version that a snapshot names is read until `readable_until`; not for ever."""
    started(world)
    arrive_and_run(world)
    snapshot = world.controller.snapshots.take("diamond")
    for _ in range(60):
        arrive_and_run(world)
    collect(world)
    check(snapshot)
    world.clock.advance(7200)
    arrive_and_run(world)
    collect(world)
    assert int(world.clock().timestamp() * 1000) > snapshot.readable_until_ms
    with pytest.raises(NotFoundError):
        world.controller.snapshots.take("diamond", at_ms=snapshot.at_ms)


def arrive_and_run(world: World) -> None:
    world.arrive("diamond", "a", ("a", 1))
    world.arrive("diamond", "b", ("a", 1))
    world.clock.advance(1)
    world.ticks()


def collect(world: World) -> None:
    folder = world.store.dataflow("diamond").folder
    for node in world.controller.dataflow("diamond").stages.values():
        world.engine.collect(folder, node, queued=set, retention=KEPT)
