"""A stage that has stopped runs again by itself once a version changes what made it fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, TranslateRecords
from cbp.model.version.version_change import Choice
from tests.controller.loop.runs.test_set_aside import FRAGILE, Fragile, aside, feed, sums
from tests.controller.verified import world_of
from tests.controller.world import ONE, SCHEMA, World

STOPS: dict[str, Any] = {
    **FRAGILE,
    "stages": {
        **FRAGILE["stages"],
        "sum": {"translator": "fragile", "inputs": {"items": "a"}, "buckets": 2},
    },
}
STOPS_MENDED = {
    **STOPS,
    "stages": {**STOPS["stages"], "sum": {**STOPS["stages"]["sum"], "translator": "sum"}},
}
KEEP = Choice(keep=frozenset({"sum"}))


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(tmp_path, fragile=Fragile)
    made.controller.register(STOPS)
    feed(made, ("a", 1), ("b", 1))
    for _ in range(4):
        feed(made, ("a", 13), ("b", 2))
        made.clock.advance(60)
    made.ticks()
    assert stopped(made)
    yield made
    made.close()


def stopped(world: World) -> bool:
    (stage,) = (one for one in world.store.stages("one") if one.stage == "sum")
    return stage.has_stopped


def test_new_settings_try_again(world: World) -> None:
    """A stage that may set aside now does not wait for a retry; the plan names the settings."""
    planned = world.controller.change(FRAGILE, choice=Choice(), dry_run=True)
    assert planned.plan.stages["sum"].kind == "kept"
    assert planned.plan.stages["sum"].settings == (
        "on_error: stop -> set_aside",
        "set_aside_max: 1000 -> 5",
    )
    assert planned.plan.stages["again"].settings == ()
    assert stopped(world)
    world.controller.change(FRAGILE, choice=Choice())
    world.ticks()
    assert not stopped(world)
    assert {n for _, n, _ in aside(world)} == {13}
    assert sums(world) == {"a": 1, "b": 9}


def test_new_code_tries_again(world: World) -> None:
    """It reads what it failed on, and all that came behind."""
    world.controller.change(STOPS_MENDED, choice=KEEP)
    world.ticks()
    assert sums(world) == {"a": 53, "b": 9}


def test_another_change_does_not(world: World) -> None:
    """A stage whose code and settings are as they were would only fail again."""
    world.controller.change({**STOPS, "description": "the same"}, choice=Choice())
    world.ticks()
    assert stopped(world)


def test_what_an_operator_paused_stays_paused(world: World) -> None:
    """A version does not undo what a person decided; resumed, it runs with the new code."""
    world.controller.pause_stage("one", "sum")
    world.controller.change(STOPS_MENDED, choice=KEEP)
    world.ticks()
    assert sums(world) == {"a": 1, "b": 1}
    world.controller.resume_stage("one", "sum")
    world.ticks()
    assert sums(world) == {"a": 53, "b": 9}


class Picky(TranslateRecords):
    """Fails on the number 13, record by record."""

    words = Input(SCHEMA)
    capitals = Output(SCHEMA)

    def translate(self, record: Any, out: Any) -> None:
        if record.n == 13:
            raise ValueError(record.word)
        out.capitals(word=record.word, n=record.n)


def test_a_stage_that_leads_others_is_tried_again_for_each(
    tmp_path: Path, without_syncs: None
) -> None:
    """New code of a stage that runs with it makes another run of the one that failed."""
    world = world_of(tmp_path, picky=Picky)
    picky = {"translator": "picky", "inputs": {"words": "upper.capitals"}}
    upper = {"translator": "upper", "inputs": {"words": "a"}}
    document = {**ONE, "stages": {"upper": upper, "picky": picky}}
    world.controller.register(document)
    assert world.controller.members("one") == {"upper": ("upper", "picky")}
    for _ in range(4):
        feed(world, ("a", 13))
        world.clock.advance(60)
    (stage,) = world.store.stages("one")
    assert stage.has_stopped
    mended = {**document, "stages": {"upper": upper, "picky": {**picky, "translator": "upper"}}}
    planned = world.controller.change(
        mended, choice=Choice(keep=frozenset({"picky"})), dry_run=True
    )
    assert planned.plan.stages["upper"].kind == "kept"
    world.controller.change(mended, choice=Choice(keep=frozenset({"picky"})))
    world.ticks()
    assert [row["n"] for row in world.flow("one", "picky.capitals")] == [13] * 4
    world.close()
