"""Holds: the reason why a dataflow starts no runs is also the reason why it is busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbp.errors import DataflowBusyError, NotFoundError
from cbp.model.run.correction import Correction
from controller.loop.operations import amendments, versions
from controller.loop.runs.isolation import UNRECOVERED
from controller.loop.tick.holds import Holds
from tests.controller.world import ONE, World


@pytest.mark.parametrize(
    "because",
    ["the dataflow is being rolled back", UNRECOVERED, amendments.UNFINISHED, versions.UNFINISHED],
)
def test_a_busy_dataflow_is_told_why_it_is_held(because: str) -> None:
    """The reason is a clause of its own, without a second subject before it."""
    holds = Holds()
    holds.hold("one", because)
    with pytest.raises(DataflowBusyError) as caught:
        holds.require_free("one")
    assert caught.value.message == f"'one' is busy: {because}; try again later"


def test_a_dataflow_that_is_being_deleted_is_busy() -> None:
    """A deletion comes before any other reason."""
    holds = Holds()
    holds.hold("one", UNRECOVERED)
    holds.deleting.add("one")
    with pytest.raises(DataflowBusyError, match="is busy: the dataflow is being deleted; try"):
        holds.require_free("one")


@pytest.mark.parametrize("because", [UNRECOVERED, amendments.UNFINISHED, versions.UNFINISHED])
def test_a_deletion_ends_a_hold_that_lasts(tmp_path: Path, because: str) -> None:
    """Otherwise the next dataflow of that name would start nothing, for a reason of the old one."""
    world = World(tmp_path)
    world.controller.register(ONE)
    world.parts.holds.held["one"] = because
    world.controller.delete("one", purge=True)
    assert world.controller.held == {}
    world.close()


def test_an_amendment_of_a_deleted_dataflow_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataflow was deleted while the amendment waited for its runs."""
    world = World(tmp_path)
    world.controller.register(ONE)
    waits = world.parts.in_flight.wait

    def deleted_meanwhile(name: str | None = None, *, timeout: float | None = None) -> bool:
        if world.store.dataflows():
            world.store.delete("one")
        return waits(name, timeout=timeout)

    monkeypatch.setattr(world.parts.in_flight, "wait", deleted_meanwhile)
    right = [Correction({"word": "x"}, "set", ({"n": 1},))]
    with pytest.raises(NotFoundError):
        world.controller.amendments.correct("one", "sum", "sums", right, who="me", why="wrong")
    assert world.controller.held == {}
    world.close()


def test_a_hold_that_a_deletion_has_ended_can_be_released() -> None:
    """An amendment that was refused at that moment fails with its own error."""
    holds = Holds()
    holds.hold("one", "a test")
    del holds.held["one"]
    holds.release("one")
    assert holds.all() == set()
