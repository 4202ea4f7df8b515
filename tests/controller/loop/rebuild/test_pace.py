"""The pace of a build: its share of the time, and what it gives way to."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.loop.rebuild.build_beside import Build
from controller.loop.rebuild.build_in_progress import (
    GIVES_WAY_MAX,
    LOOK_SECONDS,
    QUIET_SECONDS,
    UNIT_SECONDS_MIN,
    Pace,
)
from controller.loop.verification.recomputation import JobEndedError
from tests.controller.loop.rebuild.beside_world import Beside, arrive, document
from tests.simulated_time import ManualClock


def nothing() -> None:
    """Let a rest go on."""


def paced(share: float, busy: bool = False) -> tuple[Pace, ManualClock]:
    clock = ManualClock()
    pace = Pace(share, lambda: busy, clock)
    pace.begin()
    return pace, clock


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
def test_it_works_its_share_of_the_time(share: float) -> None:
    """Whatever its units are, unless they are too short to be worth a rest."""
    pace, clock = paced(share)
    worked = 0.0
    for seconds in (0.3, 2.0, 0.1, 40.0):
        clock.move(seconds=seconds)
        worked += seconds
        pace.rest(nothing)
    assert worked / clock.seconds() == pytest.approx(share, rel=1e-2)
    assert pace.rested == pytest.approx(clock.seconds() - worked, rel=1e-2)


def test_short_units_are_added_up() -> None:
    """Many of them rest as one of their length does."""
    pace, clock = paced(0.5)
    for _ in range(100):
        clock.move(seconds=UNIT_SECONDS_MIN / 10)
        pace.rest(nothing)
    assert pace.rested == pytest.approx(10 * UNIT_SECONDS_MIN, rel=0.2)


def test_it_gives_way_to_runs_and_goes_on_in_the_end() -> None:
    """For as long as one is under way, within the limit."""
    under_way = True
    clock = ManualClock()
    pace = Pace(0.5, lambda: under_way, clock)
    pace.begin()
    clock.move(seconds=1)
    pace.rest(nothing)
    assert pace.rested == pytest.approx(1 + GIVES_WAY_MAX, rel=1e-2), "it is never starved"
    under_way = False
    clock.move(seconds=1)
    pace.rest(nothing)
    assert pace.rested == pytest.approx(2 + GIVES_WAY_MAX, rel=1e-2)


def test_runs_that_follow_each_other_are_given_way_to_in_their_pauses() -> None:
    """A unit begun in such a pause would be in the way of the next run; a longer pause ends it."""
    clock = ManualClock()
    pause = QUIET_SECONDS / 2
    pace = Pace(0.5, lambda: clock.seconds() < 3 and clock.seconds() % (2 * pause) < pause, clock)
    pace.begin()
    clock.move(seconds=1)
    pace.rest(nothing)
    assert clock.seconds() == pytest.approx(3 - pause + QUIET_SECONDS, abs=2 * LOOK_SECONDS)
    clock.move(seconds=1)
    pace.rest(nothing)
    assert clock.seconds() == pytest.approx(5 - pause + QUIET_SECONDS, abs=3 * LOOK_SECONDS)


def test_all_of_the_time_is_no_rest() -> None:
    """Nor does it rest while its dataflow stands still for it."""
    pace, clock = paced(1.0, busy=True)
    clock.move(seconds=9)
    pace.rest(nothing)
    assert (pace.rested, pace.slots_of(8)) == (0.0, None)
    pace, clock = paced(0.5, busy=True)
    with pace.hurrying():
        clock.move(seconds=9)
        pace.rest(nothing)
    pace.rest(nothing)
    assert pace.rested == 0.0


def test_a_cancelled_one_rests_no_longer() -> None:
    """What is asked while it rests may end it."""
    pace, clock = paced(0.05)
    clock.move(seconds=3600)

    def check() -> None:
        if len(clock.waits) == 2:
            raise JobEndedError

    with pytest.raises(JobEndedError):
        pace.rest(check)
    assert clock.seconds() < 3601


def test_it_takes_a_share_of_the_slots() -> None:
    """One at least."""
    assert [paced(0.5)[0].slots_of(slots) for slots in (1, 2, 3, 8)] == [1, 1, 1, 4]


@pytest.mark.usefixtures("without_syncs")
def test_a_build_ends_though_more_comes_than_it_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready, says that tables were compared after other input, and the swap applies it."""
    world = Beside(tmp_path)
    world.controller.register(document())
    arrive(world, 0, 2)
    world.ticks()
    feed, fed, many = Build.feed, list[int](), 12

    def feed_while_more_comes(build: Build) -> None:
        feed(build)
        if world.store.dataflow("d").version == 1 and not fed[5:]:
            fed.append(build.behind)
            first = world.store.next_index("d", "a")
            arrive(world, first, first + many)

    monkeypatch.setattr(Build, "feed", feed_while_more_comes)
    job = world.build(document("tripled"))
    assert len(fed) == 2, "what came during the second reading is no less than during the first"
    assert (job.exact, job.behind) == (False, many)
    monkeypatch.setattr(Build, "feed", feed)
    assert world.swap(job).status == "swapped"
    assert world.sums()["x"] == 3 * sum(range(2 + 2 * many))
    world.close()


def test_a_build_says_how_much_it_works_and_rests(tmp_path: Path) -> None:
    """Its share is that of the settings; while it is swapped in, it does not rest."""
    world = Beside(tmp_path, rebuild_share=0.5)
    world.controller.register(document())
    arrive(world, 0, 2)
    world.ticks()
    job = world.build(document("tripled"))
    assert job.share == 0.5
    assert job.rested > 0
    world.swap(job)
    assert world.sums()["x"] == 3
    world.close()
