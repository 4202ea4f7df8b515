"""Snapshots: whatever is published meanwhile, the versions belong together.

A snapshot shows no part of a publication, however publications die.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import NotFoundError
from cbp.model.flow.snapshot import Snapshot
from tests.controller.diamond import KEPT, by_deltalake, by_polars, bystander, check, started
from tests.controller.world import World
from tests.planned_faults import Crash

WORDS = ("a", "b", "c")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, retention=KEPT)
    yield made
    made.close()


@pytest.mark.part(every=4)
@pytest.mark.parametrize("policy", [{"epochs": 3, "seconds": 60}, None])
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


@pytest.mark.part(every=2)
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
        for actual in (
            world.controller.snapshots.take("diamond", epoch=epoch),
            world.controller.snapshots.take("diamond", at_ms=then.at_ms),
        ):
            check(actual)
            assert versions(actual) == versions(then)
            assert actual.newest is False or epoch == 4
    middle = world.controller.snapshots.take("diamond", epoch=2, stage="left")
    assert (middle.epochs["left"], middle.epochs["join"]) == (2, 1)


def test_an_epoch_that_left_a_table_alone_is_not_a_later_one(world: World):
    """Nothing later is shown; one that changes no table at all is what was before it."""
    started(world)
    for n in (1, 0, 2, None, 3):
        some = () if n is None else (("a", n),)
        world.arrive("diamond", "a", *some)
        world.arrive("diamond", "b", *some)
        world.clock.advance(1)
        world.ticks()
    for epoch, shown in enumerate((0, 1, 2, 2, 4)):
        actual = world.controller.snapshots.take("diamond", epoch=epoch, stage="left")
        assert actual.epochs["left"] == shown
        check(actual)


def test_an_epoch_from_before_a_roll_back_is_read_as_it_was(world: World):
    """Its versions are those of the generation that recorded it."""
    started(world)
    taken = []
    for _ in range(4):
        arrive_and_run(world)
        taken.append(world.controller.snapshots.take("diamond"))
    world.controller.amendments.roll_back("diamond", "9", who="me", why="", pause=True)
    world.ticks()
    assert set(world.controller.snapshots.take("diamond").epochs.values()) == {2}
    for epoch in range(3):
        actual = world.controller.snapshots.take("diamond", epoch=epoch)
        assert actual.epochs == taken[epoch].epochs
        check(actual)


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
    with pytest.raises(NotFoundError, match=r"as of 1970-01-01T00:00:00\.005\+00:00'; the oldest"):
        world.controller.snapshots.take("diamond", at_ms=5)


@pytest.mark.soak
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
        world.engine.garbage.collect(folder, node, queued=set, retention=KEPT)
