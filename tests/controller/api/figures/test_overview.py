"""The list of dataflows is made anew only of what has changed, and is right all the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cbp.model.flow.retention import FlowRetention
from controller.api.answers.schemas import DataflowSummary
from controller.api.figures.overview import Overview
from controller.api.requests.present_state import OwnState
from controller.api.requests.shared_answers import KeptSummaries
from tests.controller.world import ONE, World
from tests.counting import Counting

MANY = 20


def overview_of(world: World, kept: KeptSummaries) -> Overview:
    folder: Any = SimpleNamespace(troubled=lambda name: [])
    return Overview(
        controller=world.controller,
        store=world.store,
        present=OwnState(world.controller, folder),
        input_retention=FlowRetention(3600.0),
        kept=kept,
    )


def listed(world: World, kept: KeptSummaries) -> list[DataflowSummary]:
    overview = overview_of(world, kept)
    return overview.summarise_all(world.store.dataflows(), world.clock())


def register(world: World, count: int = MANY) -> None:
    for number in range(count):
        world.controller.register({**ONE, "name": f"d{number:02d}"})
    world.ticks()
    world.controller.tick()


def test_dataflows_that_have_not_changed_are_not_read(world: World) -> None:
    """Two statements for all of them; one that has changed is read, and no other."""
    register(world)
    kept = KeptSummaries()
    first = listed(world, kept)
    counting = Counting(world.store)
    world.store = counting  # type: ignore[assignment]
    assert listed(world, kept) == first
    assert counting.calls == {"revisions": 1, "dataflows": 1}
    world.arrive("d07", "a", ("x", 1))
    counting.reset()
    again = listed(world, kept)
    assert again[7].queued_increments == 1
    assert {name for _, name in counting.about} == {"d07"}


def run(world: World) -> None:
    world.arrive("d01", "a", ("x", 1))
    world.ticks()


def hold(world: World) -> None:
    world.parts.holds.hold("d01", "is changed")
    world.controller.tick()


Change = Callable[[World], Any]
CHANGES: dict[str, Change] = {
    "arrival": lambda world: world.arrive("d01", "a", ("x", 1)),
    "run": run,
    "pause": lambda world: world.controller.pause("d01"),
    "stage pause": lambda world: world.controller.pause_stage("d01", "sum"),
    "trouble": lambda world: world.parts.isolation.attempt("d01", "published", lambda: 1 / 0),
    "hold": hold,
    "deletion": lambda world: world.controller.delete("d01"),
    "new version": lambda world: world.controller.change(
        {**ONE, "name": "d01", "description": "x"}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_kept_is_what_would_be_read(world: World, change: str) -> None:
    """Whatever changes, in the store or in the memory of the service only."""
    register(world, 3)
    kept = KeptSummaries()
    before = listed(world, kept)
    CHANGES[change](world)
    after = listed(world, kept)
    assert after == listed(world, KeptSummaries())
    assert listed(world, kept) == after
    assert (before[0], before[2]) == (after[0], after[-1])


def test_an_age_goes_on(world: World) -> None:
    """It is not kept: the time goes on without a change."""
    register(world, 1)
    world.controller.pause("d00")
    world.arrive("d00", "a", ("x", 1))
    kept = KeptSummaries()
    overview = overview_of(world, kept)
    ages = [
        overview.summarise_all(world.store.dataflows(), world.clock() + timedelta(seconds=s))[0]
        for s in (5, 60)
    ]
    assert [one.lag_seconds for one in ages] == [5.0, 60.0]
