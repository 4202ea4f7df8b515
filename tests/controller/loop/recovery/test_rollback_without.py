"""A roll-back that leaves out named files: they are gone, and everything else is applied again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import DefinitionError
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from controller.loop.recovery.undone_inputs import Unread, left_out, unread_of_sources
from tests.controller.loop.recovery.test_claims_of_roll_backs import arrive, statuses
from tests.controller.loop.recovery.test_rollback_points import words
from tests.controller.lost import lose_the_store
from tests.controller.rollbacks import back, plan
from tests.controller.world import ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")

FILES = {("a", 0): ["good"], ("a", 1): ["bad"], ("a", 2): ["x", "y"], ("b", 0): ["bad"]}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a dataflow that has read the files f0, f1 and f2; each has a word of its own."""
    made = World(tmp_path, engine=LocalEngine)
    made.controller.register(ONE)
    for number in range(3):
        arrive(made, f"f{number}", number, word=f"w{number}")
    yield made
    made.close()


def test_a_named_file_is_left_out_and_the_others_are_applied_again(
    world: World, tmp_path: Path
) -> None:
    """Whether it is named by its file or as an increment; so it stays when the store is lost."""
    for name in ("f1", "a/f1", "a/1"):
        planned = plan(world, "0", name="one", without=[name])
        assert dict(planned.generation.left_out) == {"a": (1,)}
        assert [(one.index, one.again) for one in planned.undone_inputs] == [
            (0, True), (1, False), (2, True),
        ]  # fmt: skip
    begun = back(world, "sum:0", name="one", without=["f1"])
    assert dict(begun.left_out) == {"a": (1,)}
    world.ticks()
    assert words(world) == ["w0", "w2"]
    assert statuses(world) == ["accepted", "withdrawn", "accepted"]
    again = lose_the_store(world, tmp_path / "new", {"a": 3})
    assert words(again) == ["w0", "w2"]
    again.close()


def test_what_was_left_out_stays_so_until_a_roll_back_goes_behind_it(world: World) -> None:
    """Another roll-back to the same position, by whatever name, does not bring it back."""
    before = world.clock.now
    back(world, "0", name="one", without=["f1"])
    for to in ("0", "2026-01-01T00:00:00Z", before.isoformat()):
        for drop_later in (False, True):
            planned = plan(world, to, name="one", drop_later=drop_later)
            assert all(one.index != 1 or not one.again for one in planned.undone_inputs)
            assert planned.comes_back == {}
    world.ticks()
    assert words(world) == ["w0", "w2"]
    arrive(world, "f1", 1, word="w1")
    back(world, "1", name="one")
    world.ticks()
    assert words(world) == ["w0", "w1", "w2"]
    assert statuses(world) == ["accepted", "withdrawn", "accepted", "accepted"]


@pytest.mark.parametrize("way", [{"without": ["f1"]}, {"drop_later": True}], ids=str)
def test_what_comes_back_behind_an_earlier_roll_back_is_said(
    world: World, way: dict[str, Any]
) -> None:
    """A file that was left out as wrong would else be back without a word."""
    back(world, "sum:0", name="one", **way)
    world.ticks()
    planned = plan(world, "0", name="one")
    gone = (1, 2) if "drop_later" in way else (1,)
    assert planned.comes_back == {"a": gone}
    named = [f"a/{index}" for index in gone]
    assert plan(world, "0", name="one", without=named).comes_back == {}
    assert plan(world, "0", name="one", drop_later=True).comes_back == {}


def test_a_file_that_waits_can_be_left_out_with_all_that_came_later(world: World) -> None:
    """A file had arrived before the moment, and nothing had read it: `drop_later` leaves it."""
    world.controller.pause("one")
    world.clock.advance(1)
    arrive(world, "early", 3, word="early")
    arrive(world, "bad", 4, word="bad")
    at = world.clock.now.isoformat()
    arrive(world, "late", 5, word="late")
    planned = plan(world, at, name="one", drop_later=True, without=["bad", "late"])
    assert dict(planned.queued_before) == {"a": 1}
    assert dict(planned.generation.dropped) == {"a": 1}
    assert dict(planned.generation.left_out) == {"a": (4,)}


def test_a_file_that_stays_applied_cannot_be_left_out(world: World) -> None:
    """Neither one that a run before the position read, nor one that nobody knows."""
    for name in ("f0", "nobody", "a/7"):
        with pytest.raises(DefinitionError) as caught:
            plan(world, "sum:0", name="one", without=[name])
        assert caught.value.details["rule"] == "rollback_file_invalid"


@pytest.mark.parametrize(
    ("names", "increments"),
    [
        (["good"], {"a": (0,)}),
        (["a/bad"], {"a": (1,)}),
        (["a/1", "b/0"], {"a": (1,), "b": (0,)}),
        (["a/2"], {"a": (2,)}),
        (["x", "a/y"], {"a": (2,)}),
        ([], {}),
    ],
)
def test_a_name_is_an_increment(names: list[str], increments: dict[str, tuple[int, ...]]) -> None:
    """By its file, with its source or without, by all its files, or as `source/number`."""
    unread = {"a": Unread({0, 1, 2}, {0, 1, 2}), "b": Unread({0}, {0})}
    assert left_out(names, FILES, unread, number=0) == increments


@pytest.mark.parametrize("names", [["bad"], ["x"], ["a/2", "z"], ["b/1"]])
def test_a_name_that_is_not_one_increment_is_refused(names: list[str]) -> None:
    """Two increments have it, or it is one of the files of an increment, or it is none."""
    unread = {"a": Unread({0, 1, 2}, {0, 1, 2}), "b": Unread({0}, {0})}
    with pytest.raises(DefinitionError) as caught:
        left_out(names, FILES, unread, number=0)
    assert caught.value.details["rule"] == "rollback_file_invalid"


def test_what_one_of_two_readers_has_read_is_not_left_out() -> None:
    """It would stay applied at one input and be gone at the other."""
    first, second = (Increment("a", n, n, ()) for n in range(2))
    position = Position(
        "d",
        {
            "s": StagePosition(1, None, {"i": Connector("i", (Queued(second),))}),
            "t": StagePosition(0, None, {"i": Connector("i", (Queued(first), Queued(second)))}),
        },
        (second,),
    )
    unread = unread_of_sources(position, {"s": {"i": "a"}, "t": {"i": "a"}}, ["a"])
    assert unread == {"a": Unread({0, 1}, {1})}
    files = {("a", 0): ["f"], ("a", 1): ["g"]}
    assert left_out(["g"], files, unread, number=1) == {"a": (1,)}
    with pytest.raises(DefinitionError):
        left_out(["f"], files, unread, number=1)
