"""Who led before changes nothing about a dataflow's past, however late it goes on.

before    makes up its mind ... asks the fence ... (stopped) ................... puts: refused
next                                              takes over, reads the logs, goes on

A version, a roll-back or a close that comes behind a take-over is refused, wherever its maker stood
still; take-overs leave one folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import LeaseLostError, LogConflictError, OperatingError
from controller.loop import Controller
from tests.controller.changing import Changing, document
from tests.controller.hourly import Hourly, Impatient
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

DOCUMENT = document(sum="sum", hours="hourly")
LATE: dict[str, Callable[[Controller], object]] = {
    "description": lambda one: one.change(document(sum="sum")),
    "generation": lambda one: one.amendments.roll_back("d", "0", who="o", why="w"),
    "punctuation": lambda one: one.close("d", "a"),
}
FOLDERS = {
    "description": "_description",
    "generation": "_intentions/_generations",
    "punctuation": "_punctuations",
}


class Instances(Changing):
    """Instances of one service, one after the other; `controller` is the newest."""

    def lead(self) -> Controller:
        """Take the lease, and lead."""
        self.restart()
        lease = self.store.take_lease("one", "http://one", milliseconds=0)
        assert lease is not None
        self.controller.lead(lease.epoch)
        return self.controller

    def terms(self) -> list[str]:
        return sorted(os.listdir(f"{self.tables}/.terms"))

    def names(self, effect: str) -> list[str]:
        """Return what a log holds, temporaries of a put included."""
        folder = Path(self.store.dataflow("d").folder, FOLDERS[effect])
        return sorted(os.listdir(folder)) if folder.is_dir() else []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Instances]:
    made = Instances(tmp_path)
    made.translators |= {"hourly": Hourly, "impatient": Impatient}
    yield made
    made.faults.to = NO_FAULTS
    made.close()


def begin(world: Instances, stages: str = "hourly") -> Controller:
    one = world.lead()
    one.register(document(sum="sum", hours=stages))
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    return one


def overtake(world: Instances, at: str) -> None:
    """At the next passage of a point, let another instance lead and go on."""

    def act(point: str) -> None:
        if point == at:
            world.faults.to = NO_FAULTS
            world.lead()
            world.arrive("d", "a", ("x", 2))
            world.ticks()

    world.faults.to = act


@pytest.mark.parametrize("effect", LATE)
def test_what_comes_behind_a_take_over_is_refused(effect: str, world: Instances) -> None:
    """Stopped between the fence and the put, it puts nothing, stops, and the next one may."""
    before, there = begin(world), world.names(effect) if effect == "description" else []
    overtake(world, f"{effect}.before")
    with pytest.raises(LogConflictError):
        LATE[effect](before)
    assert world.names(effect) == there, "something was put, or left"
    assert before.problem
    assert not world.controller.problem
    assert world.sums() == {"x": 3}
    LATE[effect](world.controller)
    assert len(world.names(effect)) == len(there) + 1


@pytest.mark.parametrize("effect", LATE)
def test_what_a_stopped_clock_lets_pass_is_refused_too(effect: str, world: Instances) -> None:
    """An instance that paused long before its put, and meets no fence, comes too late as well."""
    before = begin(world)
    world.lead()
    there = world.names(effect)
    with pytest.raises(LogConflictError):
        LATE[effect](before)
    assert world.names(effect) == there


def test_an_idle_close_behind_a_take_over_stops_who_made_it(world: Instances) -> None:
    """A tick that closes an input finds out that it does not lead, and says so."""
    before = begin(world, "impatient")
    before.tick()
    world.lead()
    world.clock.advance(100)
    before.tick()
    assert before.problem
    assert world.names("punctuation") == []


def test_a_put_that_came_first_stands(world: Instances) -> None:
    """What was put before the take-over is finished by it; two who redo it do it once."""
    before = begin(world)
    overtake(world, "generation.after")
    LATE["generation"](before)
    assert world.store.dataflow("d").generation == 1
    assert world.sums() == {"x": 3}


def test_take_overs_leave_one_folder(world: Instances) -> None:
    """However often a service starts, and wherever it dies meanwhile, nothing grows."""
    for _ in range(3):
        world.lead()
    (last,) = world.terms()
    assert int(last.partition("-")[0]) == 3
    for passage in range(1, 5):
        for side in ("before", "after"):
            world.faults.to = faults = PlannedFaults(f"term.{side}", passage=passage)
            try:
                world.lead()
            except Crash:
                assert faults.passed[f"term.{side}"] == passage
            world.faults.to = NO_FAULTS
    world.lead()
    assert len(world.terms()) == 1


def test_who_was_overtaken_while_it_began_cuts_off_nobody(world: Instances) -> None:
    """Its folder goes, that of its successor stays; whatever it was about to do, it may not."""
    begin(world)

    def act(point: str) -> None:
        if point == "term.before":
            world.faults.to = NO_FAULTS
            world.lead()

    world.restart()
    late = world.controller
    lease = world.store.take_lease("late", "http://late", milliseconds=0)
    assert lease is not None
    world.faults.to = act
    with pytest.raises(LeaseLostError):
        late.lead(lease.epoch)
    with pytest.raises(LogConflictError):
        LATE["punctuation"](late)
    assert len(world.terms()) == 1
    LATE["punctuation"](world.controller)


def test_a_folder_that_cannot_be_made_is_a_coded_error(world: Instances) -> None:
    """Without a term nothing is amended, and the next try may succeed."""
    begin(world)
    world.faults.to = PlannedFaults("term.before", error=OSError(28, "No space left on device"))
    with pytest.raises(OperatingError):
        world.lead()
    with pytest.raises(LogConflictError):
        LATE["punctuation"](world.controller)
    world.faults.to = NO_FAULTS
    LATE["punctuation"](world.lead())
