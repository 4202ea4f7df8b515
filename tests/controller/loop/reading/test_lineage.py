"""The lineage of a run: what made its input, and what read its output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.errors import NotFoundError
from tests.controller.world import DIAMOND, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.controller.register(DIAMOND)
    yield made
    made.close()


def run_of(world: World, stage: str) -> str:
    return world.store.runs("diamond", stage=stage, limit=1).items[0].id


def test_runs_name_each_other_in_both_directions(world: World) -> None:
    """The join was caused by both sides; each side was read by the join, and by nobody else."""
    for source in ("a", "b"):
        world.arrive("diamond", source, ("x", 1))
    world.ticks()
    left, right, join = (run_of(world, stage) for stage in ("left", "right", "join"))
    causes = world.controller.lineages.of(join).causes
    assert [(one.input, one.flow, one.index, one.run) for one in causes] == [
        ("left", "left.totals", 0, left),
        ("right", "right.totals", 0, right),
    ]
    (effect,) = world.controller.lineages.of(left).effects
    assert (effect.flow, effect.index, effect.stage, effect.input, effect.run, effect.waits) == (
        "left.totals", 0, "join", "left", join, False
    )  # fmt: skip
    (arrival,) = world.controller.lineages.of(left).causes
    assert (arrival.flow, arrival.run) == ("a", None)


def test_an_output_that_waits_was_read_by_none(world: World) -> None:
    """The join waits for its other side; a later run of it is not taken for an earlier one."""
    world.arrive("diamond", "a", ("x", 1))
    world.ticks()
    (effect,) = world.controller.lineages.of(run_of(world, "left")).effects
    assert (effect.run, effect.waits) == (None, True)


def test_what_is_not_known_any_more_is_left_out(world: World) -> None:
    """An increment that was forgotten has no origin; a run that is not there is not found."""
    for source in ("a", "b"):
        world.arrive("diamond", source, ("x", 1), ("y", 1))
        world.arrive("diamond", source, ("z", 1))
    world.ticks()
    old = world.store.runs("diamond", stage="join").items[-1].id
    world.store.forget_increments("diamond", "left.totals", below=1)
    causes = {one.flow: one.run for one in world.controller.lineages.of(old).causes}
    assert causes["left.totals"] is None
    assert causes["right.totals"] is not None
    with pytest.raises(NotFoundError):
        world.controller.lineages.of("nobody")
