"""The priority of a stage: what it does to runs, and what it outlives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import NotFoundError
from controller.loop.operations.priorities import path_of
from tests.controller.changing import Changing, document
from tests.controller.world import DIAMOND, FUSED, Deferred, World
from tests.planned_faults import Crash, PlannedFaults

TWO = document(sum="sum", more="sum")
POINTS = [
    f"{effect}.{side}" for effect in ("priority", "sql_commit") for side in ("before", "after")
]
"""What setting a priority passes."""


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path)
    yield made
    made.close()


def priorities(world: World, name: str = "d") -> dict[str, str]:
    return {stage.stage: stage.priority for stage in world.store.stages(name)}


def lose_the_database(world: World, name: str = "d") -> None:
    world.store.delete(name)
    world.restart()
    assert world.controller.rebuild() == [name]


def test_the_stage_of_a_higher_priority_gets_the_place(tmp_path: Path) -> None:
    """It waited less, and counts for more; who waits behind it says so."""
    executor = Deferred()
    world = World(tmp_path, executor=executor, parallel_max=1)
    world.controller.register(DIAMOND)
    for number in range(4):
        world.arrive("diamond", "a", ("x", number))
        world.arrive("diamond", "b", ("x", number))
    world.controller.set_priority("diamond", "right", "high")
    started, words = [], []
    for _ in range(4):
        world.clock.advance(10)
        started += [start.stage for start in world.controller.tick().starts]
        words.append(world.controller.waiting("diamond").get("left", ""))
        executor.run_next()
    assert started == ["right", "right", "right", "left"]
    waits = (
        "waits for a free slot (1 in all); its priority is normal, and stages with a higher "
        "priority have slots: `right` (high)"
    )
    assert words[:3] == [waits] * 3
    world.close()


def test_a_priority_outlives_a_restart_and_the_database(changing: Changing) -> None:
    """The file beside the tables has it; what became normal again stays normal."""
    changing.controller.register(TWO)
    for stage, priority in (("sum", "high"), ("more", "low"), ("more", "normal")):
        changing.controller.set_priority("d", stage, priority)  # type: ignore[arg-type]
    changing.restart()
    changing.controller.recover()
    assert priorities(changing) == {"sum": "high", "more": "normal"}
    lose_the_database(changing)
    assert priorities(changing) == {"sum": "high", "more": "normal"}


def test_a_stage_keeps_its_priority_over_versions(changing: Changing) -> None:
    """By its name: replaced, taken away and back again, and after a loss of the database."""
    changing.controller.register(TWO)
    changing.controller.set_priority("d", "more", "low")
    replaced = document(sum="sum", more="double")
    changing.change(replaced, rebuild=["more"])
    assert priorities(changing) == {"sum": "normal", "more": "low"}
    changing.change(document(sum="sum"))
    assert priorities(changing) == {"sum": "normal"}
    changing.change(replaced)
    assert priorities(changing) == {"sum": "normal", "more": "low"}
    lose_the_database(changing)
    assert priorities(changing) == {"sum": "normal", "more": "low"}


def test_a_roll_back_takes_no_priority_back(changing: Changing) -> None:
    """An operator set it for what happens next, not for what is undone."""
    changing.controller.register(TWO)
    for number in range(2):
        changing.arrive("d", "a", ("x", number))
    changing.ticks()
    changing.controller.set_priority("d", "sum", "high")
    changing.controller.amendments.roll_back("d", "1", who="o", why="wrong")
    assert priorities(changing) == {"sum": "high", "more": "normal"}


def test_a_dataflow_that_comes_back_has_its_priorities(changing: Changing) -> None:
    """Deleted, its folder keeps them; purged, they are gone with it."""
    changing.controller.register(TWO)
    changing.controller.set_priority("d", "sum", "high")
    changing.controller.delete("d")
    changing.controller.register(TWO)
    assert priorities(changing) == {"sum": "high", "more": "normal"}
    changing.controller.delete("d", purge=True)
    changing.controller.register(TWO)
    assert priorities(changing) == {"sum": "normal", "more": "normal"}


def test_stages_that_run_together_have_one_priority(world: World) -> None:
    """Set at any of them; each keeps it when it runs alone, so the file names them all."""
    world.controller.register(FUSED)
    world.controller.set_priority("fused", "again", "high")
    assert priorities(world, "fused") == {"upper": "high"}
    text = Path(path_of(world.store.dataflow("fused").folder)).read_text()
    assert '"stages": {"again": "high", "sum": "high", "upper": "high"}' in text


def test_an_unknown_stage_changes_nothing(changing: Changing) -> None:
    """Neither the store nor the folder."""
    changing.controller.register(TWO)
    for dataflow, stage in (("d", "nobody"), ("nothing", "sum")):
        with pytest.raises(NotFoundError):
            changing.controller.set_priority(dataflow, stage, "high")
    assert not Path(path_of(changing.store.dataflow("d").folder)).exists()


@pytest.mark.parametrize("point", POINTS)
def test_killed_while_a_priority_is_set_store_and_file_agree(
    changing: Changing, point: str
) -> None:
    """After the next recovery both have the old priority or the new one; others are untouched."""
    changing.controller.register(TWO)
    changing.controller.set_priority("d", "more", "low")
    changing.faults.to = PlannedFaults(point)
    with pytest.raises(Crash):
        changing.controller.set_priority("d", "sum", "high")
    changing.faults.to = NO_FAULTS
    changing.restart()
    changing.controller.recover()
    recovered = priorities(changing)
    written = "normal" if point == "priority.before" else "high"
    assert recovered == {"sum": written, "more": "low"}
    lose_the_database(changing)
    assert priorities(changing) == recovered


def _cut(data: bytes) -> bytes:
    return data[:20]


def _flipped(data: bytes) -> bytes:
    return data.replace(b"high", b"nigh")


@pytest.mark.parametrize("damage", [_cut, _flipped])
def test_a_damaged_file_stops_nothing(changing: Changing, damage: Any) -> None:
    """The store keeps what it has, the next priority mends the file, and the dataflow runs.

    Without store and file, every stage is normal.
    """
    changing.controller.register(TWO)
    changing.controller.set_priority("d", "sum", "high")
    path = Path(path_of(changing.store.dataflow("d").folder))
    path.write_bytes(damage(path.read_bytes()))
    changing.restart()
    changing.controller.recover()
    assert priorities(changing) == {"sum": "high", "more": "normal"}
    changing.controller.set_priority("d", "more", "low")
    lose_the_database(changing)
    assert priorities(changing) == {"sum": "high", "more": "low"}
    path.write_bytes(damage(path.read_bytes()))
    lose_the_database(changing)
    assert priorities(changing) == {"sum": "normal", "more": "normal"}
    changing.arrive("d", "a", ("x", 1))
    changing.ticks()
    assert changing.epochs() == {"sum": 1, "more": 1}
