"""Look-ups in the service: crashes, verification, collection, corrections and roll-backs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.model.run.correction import Correction
from cbp.model.verification import Request
from tests.controller.retained import OFTEN, TINY
from tests.controller.shop import DOCUMENT, TRANSLATORS, WRONG
from tests.controller.verified import verified, world_of
from tests.controller.world import Inline, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

ARRIVALS: list[tuple[str, tuple[str, int]]] = [
    ("orders", ("a", 1)),
    ("words", ("a", 4)),
    ("orders", ("a", 2)),
    ("words", ("b", 5)),
    ("orders", ("b", 3)),
    ("words", ("a", 3)),
    ("orders", ("a", 4)),
    ("words", ("a", 7)),
]
JOINED = [("a", 1, None), ("a", 2, 4), ("b", 3, 5), ("a", 4, None)]
PAIRED = {"a": (7, 7), "b": (3, 5)}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = world_of(tmp_path, **TRANSLATORS)
    made.controller.register(DOCUMENT)
    yield made
    WRONG.clear()
    made.close()


def play(world: World, arrivals: list[tuple[str, tuple[str, int]]] = ARRIVALS) -> None:
    for source, row in arrivals:
        world.arrive("shop", source, row)
        world.clock.advance(1)
        world.ticks()


def joined(world: World) -> list[tuple[Any, ...]]:
    return [(r["word"], r["n"], r["newest"]) for r in world.flow("shop", "joined.joined")]


def paired(world: World) -> dict[str, tuple[int, int | None]]:
    records = world.controller.reading.read_state("shop", "paired", "paired")
    return {r["word"]: (r["total"], r["newest"]) for r in records}


@pytest.mark.part(every=4)
@pytest.mark.parametrize(
    ("side", "point"),
    [
            ("before", "job"), ("after", "job"),
            ("after", "intention"), ("before", "intention"),
            ("before", "log_entry"), ("after", "log_entry"),
            ("after", "sql_commit"), ("before", "sql_commit"),
        ],
)  # fmt: skip
def test_a_crash_looks_up_once(world: World, point: str, side: str) -> None:
    """Whatever a run looked up stays in its record; groups are woken once for each change."""
    for source, row in ARRIVALS:
        world.arrive("shop", source, row)
        world.faults.to = PlannedFaults(f"{point}.{side}")
        with suppress(Crash):
            world.ticks()
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
        world.ticks()
    assert joined(world) == JOINED
    assert paired(world) == PAIRED


def test_a_record_names_the_moment(world: World) -> None:
    """It holds the epoch and the version of each table that was looked up."""
    play(world)
    log = IntentionLog(world.store.dataflow("shop").folder, world.files)
    records = [log.read("joined", epoch) for epoch in range(4)]
    moments = [record.lookups["joined.words"] for record in records if record is not None]
    assert [moment.epoch for moment in moments] == [-1, 0, 1, 2]
    assert len({moment.version for moment in moments}) == 4


@pytest.mark.part(every=2)
@pytest.mark.parametrize("split", ["increments", "at_once"])
def test_what_was_looked_up_is_verified(world: World, split: Any) -> None:
    """Each epoch is repeated as of its moment; a table that would be another is found."""
    play(world)
    verification = verified(world, "shop", Request(split=split))
    statuses = {table.table: table.status for table in verification.tables}
    assert verification.status == "equal"
    assert statuses["flows/joined.joined"] == statuses["state/paired.paired"] == "equal"
    WRONG["b"] = 1
    verification = verified(world, "shop", Request(split=split))
    assert (verification.status, verification.suspect) == ("differs", "joined")


@pytest.mark.soak
def test_a_moment_that_is_collected_is_not_verified(tmp_path: Path) -> None:
    """The verification says which version is gone, and does not compare with another."""
    world = World(
        tmp_path,
        engine=LocalEngine,
        verifier=Inline(),
        retention=TINY,
        collect_every=1,
        **OFTEN,
    )
    world.translators |= TRANSLATORS
    world.restart()
    world.controller.register(DOCUMENT)
    play(world)
    play(world, [("words", ("c", 3 * n + 1)) for n in range(12)])
    verification = verified(world, "shop")
    table = next(t for t in verification.tables if t.table == "flows/joined.joined")
    assert (table.status, "no longer kept" in table.because) == ("undecided", True)
    assert verification.status == "undecided"
    assert joined(world) == JOINED
    world.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("epochs", [1, 9])
def test_groups_that_are_woken_never_read_less_than_the_changes(
    epochs: int, tmp_path: Path
) -> None:
    """Also where a publication shows several epochs at once."""
    world = world_of(tmp_path, **TRANSLATORS)
    world.controller.register({**DOCUMENT, "publish": {"epochs": epochs, "seconds": 900}})
    play(world)
    world.controller.pause("shop")
    world.controller.tick()
    assert paired(world) == PAIRED
    world.controller.resume("shop")
    assert verified(world, "shop").status == "equal"
    world.close()


def test_a_correction_is_looked_up_from_there(world: World) -> None:
    """It wakes groups like any change; what was looked up before stays as it was."""
    play(world)
    one = Correction({"word": "b"}, "set", ({"n": 50},))
    world.controller.amendments.correct("shop", "newest", "newest", [one], who="me", why="wrong")
    world.clock.advance(1)
    world.ticks()
    assert joined(world) == JOINED
    assert paired(world) == {**PAIRED, "b": (3, 50)}
    play(world, [("orders", ("b", 1))])
    assert joined(world) == [*JOINED, ("b", 1, 50)]
    assert verified(world, "shop").status == "undecided"


@pytest.mark.soak
def test_a_roll_back_takes_back_what_was_looked_up(world: World) -> None:
    """Runs look up anew what they read again; groups that are woken come to the same."""
    play(world)
    epochs = [dict(world.picture()["shop epochs"])]
    play(world, [("words", ("b", 8)), ("orders", ("b", 10))])
    assert paired(world)["b"] == (13, 8)
    to = str(sum(epochs[0].values()))
    world.controller.amendments.roll_back("shop", to, who="me", why="a bad file", pause=True)
    assert paired(world) == PAIRED
    assert joined(world) == JOINED
    world.controller.resume("shop")
    world.ticks()
    assert paired(world)["b"] == (13, 8)
    assert joined(world)[:-1] == JOINED
    assert joined(world)[-1][:2] == ("b", 10)
    assert verified(world, "shop").status == "equal"
