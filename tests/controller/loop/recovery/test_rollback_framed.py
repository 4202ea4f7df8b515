"""Roll-backs of dataflows that frame: frames, memos, queues and closes of one moment.

Rolled back to any moment, a framed dataflow gives the same frames, memos, closes, epochs, flows and
state; nothing of a framing that was under way is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, framed
from cbp.errors import RollbackImpossibleError
from cbp.model.flow.framing import Framing
from controller.loop import LoopLimits
from controller.loop.recovery.past_position import Past
from tests.controller.framed_workload import DOCUMENT, begun, play, standing
from tests.controller.framings import ByKey
from tests.controller.lost import lose_the_store
from tests.controller.world import SCHEMA, Deferred, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = begun(tmp_path / "w")
    yield made
    made.close()


IDLE = 60.0

pytestmark = pytest.mark.usefixtures("without_syncs")


def number(picture: dict[str, Any]) -> str:
    return str(sum(picture["two epochs"].values()))


def back(world: World, to: str, **more: Any) -> Any:
    return world.controller.amendments.roll_back("two", to, who="me", why="bad", **more)


def tables(picture: dict[str, Any]) -> dict[str, Any]:
    """Return what of a picture is in tables; what is framed then is framed later too."""
    return {k: v for k, v in picture.items() if not k.endswith("queues")}


def closes(world: World) -> list[int]:
    return [one.number for one in reversed(world.store.punctuations("two").items)]


@pytest.mark.soak
def test_back_and_on_again_is_as_if_nothing_had_been(world: World) -> None:
    """From every moment in turn: the same frames, memos, closes, epochs, flows and state."""
    pictures = play(world)
    last = pictures[-1]
    stands = standing(world)
    for picture in reversed(pictures[:-1]):
        back(world, number(picture), pause=True)
        assert tables(world.picture()) == tables(picture)
        world.controller.resume("two")
        world.ticks()
        assert world.picture() == last
        assert standing(world) == stands
    assert closes(world) == [0, 1, 2]


def test_frames_stand_no_further_than_their_records(world: World) -> None:
    """What no record up to the cut read has arrived, and every close waits in its place."""
    pictures = play(world)
    planned = world.controller.amendments.plan_roll_back("two", number(pictures[1]))
    assert (planned.closes_again, planned.generation.closes_dropped) == (3, ())
    assert planned.queued["keys.items"] == 4
    before = world.store.connectors("two")
    assert world.picture() == pictures[-1], "a plan changes nothing"
    assert world.store.connectors("two") == before
    back(world, number(pictures[1]), pause=True)
    keys = world.store.connectors("two")["keys"]["items"]
    assert [increment.index for increment in keys.arrived] == [1, 2, 3, 4]
    assert keys.closes == (2,)
    again = world.store.connectors("two")["again"]["items"]
    assert again.arrived == ()
    # Each comes after as many epochs of `keys` as there were when it was made.
    assert again.closes == tuple(sorted(p.at for p in _made(world, "keys.totals")))
    assert again.closes[-1] > pictures[1]["two epochs"]["keys"]


def test_what_is_redone_frames_what_it_read(world: World) -> None:
    """No position is kept at this cut: records are redone, and the rest is left as it arrived."""
    picture = play(world)[3]
    assert number(picture) not in map(str, positions(world))
    back(world, number(picture), pause=True)
    keys = world.store.connectors("two")["keys"]["items"]
    assert [increment.index for increment in keys.arrived] == [2, 3, 4]
    assert tables(world.picture()) == tables(picture)


def positions(world: World) -> list[int]:
    folder = world.store.dataflow("two").folder
    log = world.parts.open_log(folder)
    return [position.number for position in log.positions()]


def _made(world: World, flow: str) -> list[Any]:
    return [one for one in world.store.punctuations("two").items if one.flow == flow]


@pytest.mark.soak
def test_later_closes_are_dropped_with_the_arrivals(world: World, tmp_path: Path) -> None:
    """They close nothing any more, even if asked again, and stay dropped when the store is lost."""
    pictures = play(world)
    done = back(world, number(pictures[2]), drop_later=True)
    assert (done.dropped, done.closes_dropped) == ({"a": 4}, (1, 2))
    assert closes(world) == [0, 1, 2], "who asks again is answered, and closes nothing"
    for inputs in world.store.connectors("two").values():
        assert inputs["items"].closes == ()
    world.ticks()
    assert number(world.picture()) == number(pictures[2])
    assert world.controller.close("two", "a").number == 3, "numbers are not used twice"
    world.ticks()
    new = lose_the_store(world, tmp_path / "new", {"a": 5})
    new.ticks()
    assert new.picture() == world.picture()
    assert standing(new) == standing(world)
    new.close()


def wider(document: dict[str, Any]) -> dict[str, Any]:
    """Return another version of a dataflow, which keeps all that is there."""
    keys = {**document["stages"]["keys"], "buckets": 4}
    return {**document, "stages": {**document["stages"], "keys": keys}}


@pytest.mark.parametrize("ticks", [True, False])
def test_closes_before_a_version_began_are_dropped_like_those_since(
    ticks: bool, world: World
) -> None:
    """Its beginning is the only position from which it is reached, and holds them."""
    world.controller.close("two", "a")
    if ticks:
        world.ticks()
    world.controller.change(wider(DOCUMENT))
    world.clock.advance(1)
    world.arrive("two", "a", ("x", 1), ("y", 2))
    world.controller.close("two", "a")
    world.ticks()
    done = back(world, "0", drop_later=True, pause=True)
    assert (done.dropped, done.closes_dropped) == ({"a": 1}, (0, 1))
    keys = world.store.connectors("two")["keys"]["items"]
    assert keys.framing == Framing()
    assert keys.closes == ()


def test_a_close_that_ended_a_frame_before_a_version_began_is_not_left_out(tmp_path: Path) -> None:
    """Nothing begins the frame again, so it is refused, and says from which time on it is not."""
    pairs = {**DOCUMENT["stages"]["keys"], "runnable": {"count_window": {"size": 2}}}
    document = {**DOCUMENT, "stages": {**DOCUMENT["stages"], "keys": pairs}}
    world = begun(tmp_path / "w", document)
    world.arrive("two", "a", ("x", 1))
    world.clock.advance(1)
    world.controller.close("two", "a")
    world.ticks()
    world.controller.change(wider(document))
    began = world.picture()
    world.clock.advance(1)
    world.arrive("two", "a", ("y", 2), ("z", 3))
    world.ticks()
    last = world.picture()
    with pytest.raises(RollbackImpossibleError) as refused:
        back(world, "2026-01-01T00:00", drop_later=True)
    assert refused.value.details["close"] == 0
    assert world.picture() == last
    done = back(world, refused.value.details["at"], drop_later=True, pause=True)
    assert (done.dropped, done.closes_dropped) == ({"a": 1}, ())
    assert world.picture() == began
    world.close()


def test_what_was_framed_before_a_version_began_is_not_left_out(world: World) -> None:
    """As little as a close: what came later is dropped in full, or it is refused."""
    world.arrive("two", "a", ("x", 1))
    world.ticks()
    world.controller.change(wider(DOCUMENT))
    world.clock.advance(1)
    world.arrive("two", "a", ("y", 2), ("z", 3))
    world.ticks()
    last = world.picture()
    with pytest.raises(RollbackImpossibleError) as refused:
        back(world, "0", drop_later=True)
    assert refused.value.details["framed"] == "a/0"
    assert world.picture() == last
    assert back(world, refused.value.details["at"], drop_later=True).dropped == {"a": 1}


def test_a_moment_is_listed_if_it_is_one_that_a_plan_accepts(world: World) -> None:
    """Also where nothing of a version is kept from before it began, and it began with frames."""
    world.clock.advance(1)
    world.arrive("two", "a", ("x", 1))
    world.ticks()
    begins = sum(stage.epoch for stage in world.store.stages("two"))
    world.controller.change(wider(DOCUMENT))
    world.clock.advance(1)
    world.arrive("two", "a", ("y", 2), ("z", 3))
    world.ticks()
    amendments, listed = world.controller.amendments, {}
    for drop_later in (False, True):
        moments = amendments.moments("two", limit=50, drop_later=drop_later)
        listed[drop_later] = [one.point.number for one in moments]
        for position in listed[False]:
            accepted = True
            try:
                amendments.plan_roll_back("two", str(position), drop_later=drop_later)
            except RollbackImpossibleError:
                accepted = False
            assert (position in listed[drop_later]) == accepted, (position, drop_later)
    assert listed[False][-1] == begins
    assert begins not in listed[True]
    assert len(listed[True]) == len(listed[False]) - 1 > 0


@pytest.mark.soak
def test_a_lost_store_finds_frames_and_closes_again(world: World, tmp_path: Path) -> None:
    """Right behind a roll-back, with closes that wait for what is still to come again."""
    pictures = play(world)
    back(world, number(pictures[1]), pause=True)
    new = lose_the_store(world, tmp_path / "new", {"a": 5})
    new.controller.pause("two")
    assert standing(new) == standing(world)
    for one in (world, new):
        one.controller.resume("two")
        one.ticks()
        assert one.picture() == pictures[-1]
    new.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("when", ["planned", "put"])
def test_a_close_beside_a_roll_back_is_not_lost(
    when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made while it is planned, or after that, it comes after all that had arrived."""
    pictures = play(world)
    arrivals, plans = Past._arrivals, []

    def close(point: str) -> None:
        if point == "generation.after" and when == "put":
            world.controller.close("two", "a")

    def plan(*args: Any, **more: Any) -> Any:
        plans.append(args)
        if len(plans) == 2 and when == "planned":  # the first is made before it stops
            world.controller.close("two", "a")
        return arrivals(*args, **more)

    monkeypatch.setattr(Past, "_arrivals", plan)
    world.faults.to = close
    back(world, number(pictures[2]), pause=True)
    world.faults.to = lambda point: None
    assert len(plans) == 2
    assert world.store.connectors("two")["keys"]["items"].closes == (2, 5)
    world.controller.resume("two")
    world.ticks()
    framing = world.store.connectors("two")["keys"]["items"].framing
    assert framing is not None
    assert (framing.open, framing.next) == (None, 7)


def test_framing_beside_a_roll_back_records_nothing(tmp_path: Path) -> None:
    """What it has read by then is read anew, from where the roll-back put the framing."""
    framers = Deferred()
    world = begun(tmp_path / "w", framers=framers)

    def work() -> None:
        for _ in range(100):
            starts = world.controller.tick().starts
            if framers.waiting:
                framers.run_next()
            elif not starts:
                return

    world.arrive("two", "a", ("x", 1), ("x", 2))
    work()
    world.arrive("two", "a", ("x", 3))
    work()
    picture = world.picture()
    world.arrive("two", "a", ("x", 4))
    world.controller.tick()
    assert len(framers.waiting) == 1
    back(world, "0", pause=True)
    late = framers.waiting.popleft()
    late[1]()
    assert len(world.store.connectors("two")["keys"]["items"].arrived) == 3
    assert world.store.stages("two")[1].paused_because == ""
    world.controller.resume("two")
    work()
    assert (
        world.picture()["two keys.totals"][: len(picture["two keys.totals"])]
        == (picture["two keys.totals"])
    )
    assert world.store.stages("two")[1].epoch == 3
    world.close()


class Coarser(ByKey):
    """Frames by another key than the one that is installed first."""

    items = Input(SCHEMA, route_by="word", frame_by=framed(lambda record: record.n // 100))


def test_frames_that_do_not_come_again_are_refused(world: World) -> None:
    """Where FrameBy has changed under the document: nothing is changed."""
    pictures = play(world)
    world.translators["by_key"] = Coarser
    world.restart()
    with pytest.raises(RollbackImpossibleError) as refused:
        back(world, number(pictures[6]))
    assert "FrameBy" in refused.value.message
    assert world.picture() == pictures[-1]
    assert world.controller.amendments.rollbacks("two") == ()


@pytest.mark.soak
def test_closes_stay_as_long_as_a_roll_back_may_need_them(tmp_path: Path) -> None:
    """House-keeping keeps them behind the oldest position; back from there, all comes again."""
    world = begun(tmp_path / "w", collect_every=2, limits=LoopLimits(records_kept=1))
    pictures = play(world)
    world.controller.housekeeping.collect("two")
    for picture in pictures[-2:0:-1]:
        back(world, number(picture), pause=True)
        assert tables(world.picture()) == tables(picture)
        world.controller.resume("two")
        world.ticks()
        assert world.picture() == pictures[-1]
    world.close()


@pytest.mark.soak
def test_idle_time_begins_anew_with_a_roll_back(tmp_path: Path) -> None:
    """What comes again is in its frame again, though its like came long ago."""
    document = {**DOCUMENT, "stages": {**DOCUMENT["stages"]}}
    document["stages"]["again"] = {
        **DOCUMENT["stages"]["again"],
        "close_idle_seconds": {"items": IDLE},
    }
    world = begun(tmp_path / "w", document)
    world.arrive("two", "a", ("x", 1), ("x", 2), ("y", 3))
    world.ticks()
    world.clock.advance(IDLE)
    world.ticks()
    world.arrive("two", "a", ("y", 4), ("y", 5))
    world.ticks()
    world.clock.advance(IDLE)
    world.ticks()
    last = world.picture()
    made = [(one.flow, one.at, one.reason) for one in world.store.punctuations("two").items]
    assert [(flow, reason) for flow, _, reason in made] == [("keys.totals", "idle")] * 2
    back(world, "keys:0", pause=True)
    world.ticks()
    world.ticks()
    world.controller.resume("two")
    world.ticks()
    assert world.picture() == last
    assert len(closes(world)) == 2
    # A second time, without what came since: that it was queued in between changes nothing.
    again = back(world, "keys:0", drop_later=True)
    assert (again.dropped, again.closes_dropped) == ({"a": 1}, (0, 1))
    world.ticks()
    world.clock.advance(IDLE)
    world.ticks()
    assert [one.number for one in _made(world, "keys.totals")] == [2, 1, 0]
    assert world.picture()["two epochs"] == {"again": 2, "keys": 2}
    world.close()
