"""Rebuilds under way: what is left of them, and how the tables were before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import NotFoundError
from cbp.model.version.version_change import NO_CHOICE, Choice
from controller.cli import main
from controller.cli.session import Session
from controller.loop.reading.reader import AsOf
from controller.loop.reading.rebuild_backlog import Rebuild
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")

SUM = {"translator": "sum", "inputs": {"items": "a"}, "buckets": 2}
CHAIN = {
    **ONE,
    "stages": {
        "sum": SUM,
        "again": {"translator": "sum", "inputs": {"items": "sum.totals"}, "buckets": 2},
    },
}
ARRIVED = 4


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    played(made)
    yield made
    made.close()


def played(world: World) -> None:
    """Register the chain, and let it apply some increments."""
    world.controller.register(CHAIN)
    for number in range(ARRIVED):
        world.arrive("one", "a", (f"w{number}", number))
        world.ticks()


def rebuild(world: World, *stages: str, document: Any = CHAIN) -> None:
    world.controller.change(document, choice=Choice(rebuild=frozenset(stages)))


def under_way(world: World) -> dict[str, Rebuild]:
    return world.controller.rebuilding("one", world.store.connectors("one"))


def left(world: World) -> dict[str, int]:
    return {name: one.left for name, one in under_way(world).items()}


def words(world: World, as_of: AsOf | None = None) -> list[str]:
    rows, _ = world.controller.reading.page_state("one", "sum", "sums", None, 100, as_of)
    return sorted(row["word"] for row in rows)


def test_what_is_left_counts_down_to_nothing(world: World) -> None:
    """Before a rebuild there is none; each run takes what it read off; at the end there is none."""
    assert left(world) == {}
    rebuild(world, "again")
    (one,) = under_way(world).values()
    assert (one.queued, one.left, one.percent, one.behind) == (ARRIVED, ARRIVED, 0, ())
    counted = [left(world)["again"]]
    while counted[-1]:
        world.controller.tick()
        counted.append(left(world).get("again", 0))
    assert counted == sorted(counted, reverse=True)
    assert set(counted) >= {ARRIVED, ARRIVED - 1, 0}
    assert left(world) == {}


def test_a_restart_finds_the_same(world: World) -> None:
    """Nothing about a rebuild is in memory only."""
    rebuild(world, "sum", "again")
    world.controller.tick()
    before = under_way(world)
    assert 0 < before["sum"].left < ARRIVED
    world.restart()
    assert under_way(world) == before


def test_the_tables_as_they_were_can_be_read(world: World) -> None:
    """As of the time that is shown; the newest table begins with nothing, and grows."""
    old = words(world)
    rebuild(world, "sum", "again")
    assert words(world) == []
    world.controller.tick()
    assert 0 < len(words(world)) < len(old)
    at_ms = under_way(world)["sum"].as_it_was_ms
    assert at_ms is not None
    assert words(world, AsOf(at_ms=at_ms)) == old


def test_no_time_is_told_that_has_no_snapshot(world: World) -> None:
    """A table that is new has no version of before."""
    more = {**CHAIN, "stages": {**CHAIN["stages"], "new": SUM}}
    rebuild(world, "sum", "again", document=more)
    assert under_way(world)["sum"].as_it_was_ms is None


@pytest.mark.soak
def test_the_tables_as_they_were_stay_until_the_rebuild_is_done(tmp_path: Path) -> None:
    """No collection takes them, however short the retention; once it is done, one does."""
    brief = Retention(versions_min=1, seconds=0, attempt_seconds=0)
    often = EngineLimits(checkpoint_entries=2)
    world = World(
        tmp_path, engine=LocalEngine, retention=brief, engine_limits=often, collect_every=10**6
    )
    played(world)
    old = words(world)
    rebuild(world, "sum", "again")
    at_ms = under_way(world)["sum"].as_it_was_ms
    while left(world):
        world.clock.advance(100)
        world.controller.housekeeping.collect("one")
        assert under_way(world)["sum"].as_it_was_ms == at_ms
        assert words(world, AsOf(at_ms=at_ms)) == old
        world.controller.tick()
    world.ticks()
    world.clock.advance(100)
    world.controller.housekeeping.collect("one")
    with pytest.raises(NotFoundError):
        words(world, AsOf(at_ms=at_ms))
    assert words(world) == old
    world.close()


def test_a_stage_behind_a_rebuilt_one_is_named_with_it(world: World) -> None:
    """It has no input of its own to read again, and its table is not complete either."""
    rebuild(world, "sum", "again")
    rebuilds = under_way(world)
    assert (rebuilds["sum"].left, rebuilds["sum"].behind) == (ARRIVED, ())
    assert (rebuilds["again"].left, rebuilds["again"].behind) == (0, ("sum",))
    world.ticks()
    assert left(world) == {}


def test_another_version_ends_no_rebuild(world: World) -> None:
    """What an earlier version queued is still left, also when a later one rebuilds the same."""
    rebuild(world, "again")
    world.controller.tick()
    some = left(world)
    assert 0 < some["again"] < ARRIVED
    other = {**CHAIN, "stages": {**CHAIN["stages"], "sum": {**SUM, "buckets": 4}}}
    world.controller.change(other, choice=NO_CHOICE)
    assert left(world) == some
    rebuild(world, "again", document=other)
    assert left(world) == {"again": ARRIVED}


def test_arrivals_of_a_rebuild_are_no_part_of_it(world: World) -> None:
    """Only what the version queued counts: a busy source prolongs no rebuild."""
    rebuild(world, "again")
    world.arrive("one", "a", ("late", 1))
    assert left(world) == {"again": ARRIVED}
    while left(world):
        world.controller.tick()
    world.ticks()
    assert len(world.flow("one", "again.totals")) == ARRIVED + 1


def test_a_roll_back_into_a_rebuild_counts_from_there(world: World) -> None:
    """What the position of then has not read is left again."""
    rebuild(world, "again")
    world.controller.tick()
    some = left(world)
    point = str(sum(world.picture()["one epochs"].values()))
    world.ticks()
    assert left(world) == {}
    world.controller.amendments.roll_back("one", point, who="me", why="a try", pause=True)
    assert left(world) == some


def test_percent_is_whole_and_never_all() -> None:
    """A rebuild under way is never reported as done."""
    assert [Rebuild(0, 1000, n).percent for n in (1000, 999, 500, 1)] == [0, 0, 50, 99]
    assert Rebuild(0, 0, 0, ("a",)).percent == 0


def test_operators_are_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """REST has the figures, and `cbp status` the command that reads what was before."""
    settings = Settings(root=world.root, token=TOKEN)
    session = Session(settings, AppTransport(api_of_world(world, settings)))

    def cbp(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=session)
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == status, printed.err + printed.out
        return printed.out

    assert "being rebuilt" not in cbp("status", "one")
    rebuild(world, "sum", "again")
    world.controller.tick()
    lines = [
        line for line in cbp("status", "one", status=3).splitlines() if "being rebuilt" in line
    ]
    behind, first = lines
    first, _, command = first.partition("; its earlier state: cbp ")
    assert first == "sum is being rebuilt: 3 of 4 increments left to read again (25 % done)"
    assert behind.startswith("again is being rebuilt: waiting for sum; its earlier state: cbp")
    assert "w3" in cbp(*command.split())
    world.ticks()
    assert "being rebuilt" not in cbp("status", "one")
