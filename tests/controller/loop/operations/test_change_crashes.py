"""A change that is killed, or that fails halfway: what a restart and a second try find.

A restart leads to the old version or the new one; kept stages lose and repeat nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import CodeDriftedError, DiskFullError, LogConflictError
from tests.controller.changing import ONE, POINTS, Changing, Double, document
from tests.controller.lost import SourceLogs
from tests.controller.world import Sum
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


VERSIONS = [
    (document(sum="sum", more="sum"), {}),
    (document(sum={"translator": "sum", "buckets": 8}, more="double"), {"keep": ["more"]}),
    (document(sum={"translator": "sum", "buckets": 4}), {"rebuild": ["sum"]}),
    (document(sum="sum", more="double", third="sum"), {"retained": ["third"]}),
]


def play(world: Changing, *faults: PlannedFaults) -> int:
    """Change from version to version with arrivals between; return the crashes."""
    crashes, left = 0, list(faults)
    world.faults.to = left.pop(0) if left else NO_FAULTS

    def attempt(step: Any) -> None:
        nonlocal crashes
        recover = False
        while True:
            try:
                if recover:
                    world.controller.recover()
                step()
                return
            except Crash:
                crashes, recover = crashes + 1, True
                world.faults.to = left.pop(0) if left else NO_FAULTS
                world.restart()

    def register() -> None:
        if not world.store.dataflows():
            world.controller.register(ONE)

    def arrive(index: int) -> None:
        if world.store.next_index("d", "a") <= index:
            world.arrive("d", "a", ("x", index), (f"w{index}", 1))

    attempt(register)
    for number, (version, choice) in enumerate(VERSIONS):
        attempt(lambda n=number: arrive(3 * n))
        attempt(world.ticks)
        attempt(lambda n=number: arrive(3 * n + 1))

        def change(number: int = number, version: Any = version, choice: Any = choice) -> None:
            if world.store.dataflow("d").version < number + 2:
                assert world.change(version, **choice).version == number + 2

        attempt(change)
        attempt(lambda n=number: arrive(3 * n + 2))
        attempt(world.ticks)
    world.faults.to = NO_FAULTS
    return crashes


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = Changing(tmp_path_factory.mktemp("unbroken"))
    play(world)
    assert world.sums()["x"] == sum(range(12))
    assert world.sums("third") == world.sums()
    assert world.sums("more") == {"x": 22, "w11": 2}
    picture = world.picture()
    world.close()
    return picture


@pytest.mark.part(every=12)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_of_a_change_a_restart_leads_to_the_same(
    point: str, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """At early and late passages of every durable effect: queues, epochs, tables of no crash."""
    world = Changing(tmp_path / "world")
    passages = (1, 3, 1, 2, 5, 1, 4, 8)
    assert play(world, *[PlannedFaults(point, passage=n) for n in passages]), f"{point}: never"
    assert world.picture() == unbroken
    world.close()


@pytest.mark.soak
def test_a_lost_store_begins_with_the_newest_version(
    world: Changing, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """Descriptions and logs beside the tables bring back versions, queues and epochs."""
    play(world)
    world.arrive("d", "a", ("late", 1))
    late = world.picture()
    increments = [item.increment for item in world.store.increments("d", "a", limit=500).items]
    world.store.delete("d")
    world.restart()

    world.arrivals = SourceLogs(world, "d", reversed(increments))
    assert world.controller.rebuild() == ["d"]
    assert world.store.dataflow("d").version == len(VERSIONS) + 1
    assert world.picture() == late
    world.ticks()
    assert world.sums()["late"] == 1


def test_who_dies_while_a_later_version_is_brought_back_finishes_that(world: Changing) -> None:
    """Killed behind every commit, a rebuild leads to the queues and increments of no crash."""
    world.controller.register(ONE)
    for number in range(2):
        world.arrive("d", "a", ("x", number))
    world.ticks()
    world.change(document(sum="sum", more="sum"))
    world.arrive("d", "a", ("x", 2))
    wanted = world.picture()
    page = world.store.increments("d", "a", limit=500)
    increments = [item.increment for item in reversed(page.items)]
    for passage in itertools.count(1):
        world.store.delete("d")
        world.restart()
        world.arrivals = SourceLogs(world, "d", increments)
        world.faults.to = PlannedFaults("sql_commit.after", passage=passage)
        try:
            world.controller.rebuild()
            break
        except Crash:
            world.faults.to = NO_FAULTS
            world.restart()
            world.arrivals = SourceLogs(world, "d", increments)
            world.controller.recover()
        assert world.picture() == wanted, f"killed behind commit {passage}"
        known = world.store.increments("d", "a", limit=500).items
        assert [item.increment for item in reversed(known)] == increments
    world.faults.to = NO_FAULTS
    assert passage > len(increments)


def test_a_version_that_cannot_be_finished_starts_nothing_until_it_is(world: Changing) -> None:
    """Behind the commit point there is no way back: it is tried again until it succeeds."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    full = PlannedFaults("sql_commit.before", error=DiskFullError("here"))
    world.faults.to = full
    with pytest.raises(DiskFullError):
        world.change(document(sum="sum", b="sum"))
    world.arrive("d", "a", ("x", 2))
    for _ in range(2):
        world.faults.to = PlannedFaults("sql_commit.before", error=DiskFullError("here"))
        assert not world.controller.tick().starts
        assert "new version" in world.controller.waiting("d")["sum"]
    world.faults.to = NO_FAULTS
    world.ticks()
    assert world.sums() == {"x": 3}
    assert world.store.dataflow("d").version == 2


def test_another_controllers_version_deposes_this_one(world: Changing) -> None:
    """Two versions of one number are never both the truth: who comes second stops."""
    world.controller.register(ONE)
    folder = world.store.dataflow("d").folder
    path = f"{folder}/_description/{2:020d}.json"
    world.files.put_if_absent(path, b'{"format": 1, "version": 2, "document": {}}')
    with pytest.raises(LogConflictError):
        world.change(document(sum="sum", b="sum"))
    assert "another controller" in world.controller.problem
    assert world.store.dataflow("d").version == 1


def test_a_change_is_finished_only_by_the_code_it_was_planned_for(world: Changing) -> None:
    """Killed behind its commit and upgraded before the restart, it waits for what there was."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    world.faults.to = PlannedFaults("description.after")
    with pytest.raises(Crash):
        world.change(document(sum={"translator": "sum", "buckets": 8}))
    world.faults.to = NO_FAULTS
    for translator, left in ((Double, {"d"}), (Sum, set())):
        world.translators["sum"] = translator
        world.restart()
        world.controller.recover()
        assert world.controller.held.keys() == left
    assert world.store.dataflow("d").version == 2
    assert world.sums() == {"x": 1}
    world.controller.delete("d")
    world.translators["sum"] = Double
    world.restart()
    with pytest.raises(CodeDriftedError):
        world.controller.register(document(sum={"translator": "sum", "buckets": 8}))
