"""Corrections of state: an epoch of its own, once, whatever crashes; kept on record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import (
    CorrectionUnfinishedError,
    DataflowBusyError,
    DefinitionError,
    DiskFullError,
    NotFoundError,
)
from cbp.model.run.correction import Correction
from tests.controller.lost import lose_the_store
from tests.controller.world import DIAMOND, FUSED, ONE, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

POINTS = [
    f"{effect}.{side}"
    for effect in ("correction", "intention", "log_entry", "sql_commit")
    for side in ("before", "after")
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


def begin(world: World) -> None:
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("y", 2), ("z", 3))
    world.ticks()


def right(word: str, *records: int, kind: Any = "records") -> Correction:
    return Correction({"word": word}, kind, tuple({"n": n} for n in records))


def correct(world: World, *corrections: Correction, **more: Any) -> Any:
    told = {"who": "me", "why": "counted twice", **more}
    return world.controller.amendments.correct("one", "sum", "sums", corrections, **told)


def sums(world: World) -> dict[str, int]:
    record = world.store.dataflow("one")
    node = world.controller.dataflow("one").stages["sum"]
    return {r["word"]: r["n"] for r in world.engine.records.read_state(record.folder, node, "sums")}


def test_keys_are_put_right_and_the_stage_goes_on_from_there(world: World) -> None:
    """Set, removed and added; other keys stay; the epoch has empty outputs; readers see it."""
    begin(world)
    made = correct(world, right("x", 10, kind="set"), right("y"), right("new", 7))
    assert (made.leader, made.epoch, made.note.keys) == ("sum", 1, 3)
    assert sums(world) == {"x": 10, "z": 3, "new": 7}
    frame = polars.read_delta(f"{world.tables}/one/state/sum.sums")
    assert sorted(frame.select("word", "n").rows()) == [("new", 7), ("x", 10), ("z", 3)]
    assert world.store.increment("one", "sum.totals", 1).increment.records == 0
    world.arrive("one", "a", ("x", 1), ("new", 1))
    world.ticks()
    assert sums(world) == {"x": 11, "z": 3, "new": 8}
    assert world.store.stages("one")[0].epoch == 3


def test_who_and_why_are_told_for_good(world: World, tmp_path: Path) -> None:
    """By the list, by the run's account, and when the store is lost; with what was put."""
    begin(world)
    made = correct(world, right("x", 10))
    (told,) = world.controller.amendments.corrections("one")
    assert told == made
    assert (told.note.who, told.note.why) == ("me", "counted twice")
    table = polars.read_parquet(f"{world.tables}/one/{told.note.path}")
    assert table.height == 2
    assert "me corrected 1 key of sum.sums" in world.controller.explaining.run(made.run).why
    new = lose_the_store(world, tmp_path / "new", {"a": 1})
    assert new.picture() == world.picture()
    assert new.controller.amendments.corrections("one") == [told]
    new.close()


@pytest.mark.part(every=4)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("passage", [1, 2])
def test_a_crash_ends_before_or_after(world: World, point: str, passage: int) -> None:
    """Killed anywhere, a restart has corrected all or nothing, and says which."""
    begin(world)
    world.faults.to = PlannedFaults(point, passage=passage)
    with suppress(Crash):
        correct(world, right("x", 10), right("y"))
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.ticks()
    told = world.controller.amendments.corrections("one")
    assert sums(world) == ({"x": 10, "z": 3} if told else {"x": 1, "y": 2, "z": 3})
    assert world.store.stages("one")[0].epoch == 1 + len(told)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert sums(world)["x"] == (11 if told else 2)


def test_a_request_is_done_once(world: World) -> None:
    """Asked again under its name, it returns what was done and corrects nothing more."""
    begin(world)
    first = correct(world, right("x", 10), request="r1")
    assert correct(world, right("x", 10), request="r1") == first
    assert world.store.stages("one")[0].epoch == 2


def test_a_paused_stage_is_corrected_and_stays_paused(world: World) -> None:
    """Putting state right is what one does before it is resumed."""
    begin(world)
    world.controller.pause_stage("one", "sum")
    world.arrive("one", "a", ("x", 1))
    correct(world, right("x", 10))
    world.ticks()
    assert sums(world)["x"] == 10
    world.controller.resume_stage("one", "sum")
    world.ticks()
    assert sums(world)["x"] == 11


def test_a_roll_back_undoes_a_correction(world: World) -> None:
    """State is as it was, and the list says so."""
    begin(world)
    correct(world, right("x", 10))
    world.controller.amendments.roll_back("one", "sum:0", who="me", why="wrong", pause=True)
    assert sums(world)["x"] == 1
    (told,) = world.controller.amendments.corrections("one")
    assert told.undone


@pytest.mark.parametrize("document", [DIAMOND, FUSED])
def test_states_of_any_stage_are_corrected(world: World, document: Any) -> None:
    """Also behind another stage of the same run; consumers get an empty increment."""
    world.controller.register(document)
    name = document["name"]
    world.arrive(name, "a", ("x", 1))
    world.ticks()
    compiled = world.controller.dataflow(name)
    stage, node = next((n, s) for n, s in compiled.stages.items() if s.translator.states)
    state = node.translator.states[0]
    key = Correction({"word": "fresh"}, "records", ({"n": 5},))
    world.controller.amendments.correct(name, stage, state.name, [key], who="", why="x")
    world.ticks()
    (row,) = world.controller.reading.look_up(name, stage, state.name, {"word": "fresh"})
    assert row["n"] == 5


def test_what_cannot_be_prepared_changes_nothing(world: World) -> None:
    """A full disk: the error is reported, the dataflow goes on."""
    begin(world)
    world.faults.to = PlannedFaults("correction.before", error=DiskFullError("/x"))
    with pytest.raises(DiskFullError):
        correct(world, right("x", 10))
    world.faults.to = NO_FAULTS
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert sums(world)["x"] == 2


def test_a_record_that_cannot_be_put_is_told(world: World) -> None:
    """It is tried again until it succeeds, and the caller learns that it has not yet."""
    begin(world)
    world.faults.to = PlannedFaults("intention.before", error=DiskFullError("/x"))
    with pytest.raises(CorrectionUnfinishedError):  # sent again, it would count twice
        correct(world, right("x", 10))
    with pytest.raises(DataflowBusyError):
        correct(world, right("x", 11))
    world.faults.to = NO_FAULTS
    world.clock.advance(10)
    world.ticks()
    assert sums(world)["x"] == 10


def test_what_is_not_there_is_refused(world: World) -> None:
    """No such stage or state; another key; before anything is held."""
    begin(world)
    amend = world.controller.amendments
    with pytest.raises(NotFoundError):
        amend.correct("one", "nobody", "sums", [right("x")], who="", why="x")
    with pytest.raises(NotFoundError):
        amend.correct("one", "sum", "nothing", [right("x")], who="", why="x")
    with pytest.raises(DefinitionError):
        correct(world, Correction({"n": 1}, "records"))
    assert world.store.stages("one")[0].epoch == 1
