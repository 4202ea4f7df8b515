"""Stages that run together, in the service: one queue, one epoch, one intention, all flows."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import AuthorCodeError
from tests.controller.lost import SourceLogs
from tests.controller.world import FUSED, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

ARRIVALS: tuple[list[tuple[str, int]], ...] = [("x", 1), ("y", 3)], [("x", 5)], [], [("z", 7)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


def apart() -> dict[str, Any]:
    """Return the document with every stage for itself."""
    document = copy.deepcopy(FUSED)
    for stage in document["stages"].values():
        stage["fuse"] = False
    return document


def play(world: World, document: dict[str, Any] = FUSED) -> dict[str, Any]:
    """Register, bring every arrival, and return what came out: flows and states."""
    world.controller.register(document)
    for records in ARRIVALS:
        world.arrive("fused", "a", *records)
        world.ticks()
    return tables(world)


def tables(world: World) -> dict[str, Any]:
    picture = world.picture()
    return {k: v for k, v in picture.items() if not k.endswith(("epochs", "queues"))}


def test_an_arrival_is_one_run_of_all_stages(world: World, tmp_path: Path) -> None:
    """One run an arrival, with the flows and states of three stages, as if run apart."""
    together = play(world)
    assert [s.stage for s in world.store.stages("fused")] == ["upper"]
    assert len(world.store.runs("fused").items) == len(ARRIVALS)
    assert world.controller.members("fused") == {"upper": ("upper", "sum", "again")}
    other = World(tmp_path / "other", engine=LocalEngine)
    assert play(other, apart()) == together
    assert len(other.store.runs("fused").items) == 3 * len(ARRIVALS)
    for flow in ("upper.capitals", "sum.totals", "again.capitals"):
        for index in range(len(ARRIVALS)):
            mine, theirs = (w.store.increment("fused", flow, index) for w in (world, other))
            assert mine.increment.records == theirs.increment.records
            assert mine.increment.framing_key == theirs.increment.framing_key
    other.close()


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    "point", [f"{e}.{s}" for e in ("job", "intention", "log_entry") for s in ("before", "after")]
)
def test_a_crash_loses_no_member(point: str, world: World) -> None:
    """Killed at every second passage of a point, a restart brings all tables of the run."""
    world.controller.register(FUSED)
    done = 0
    for records in ARRIVALS:
        world.arrive("fused", "a", *records)
        world.faults.to = PlannedFaults(point, passage=2)
        try:
            world.ticks()
        except Crash:
            done += 1
            world.faults.to = NO_FAULTS
            world.restart()
            world.controller.recover()
        world.ticks()
    world.faults.to = NO_FAULTS
    assert [len(world.flow("fused", f)) for f in ("upper.capitals", "again.capitals")] == [4, 4]
    assert done or "log_entry" not in point


def source_logs(world: World) -> SourceLogs:
    """Return what brings a source's increments again, to a store that lost them."""
    kept = [world.store.increment("fused", "a", n).increment for n in range(len(ARRIVALS))]
    return SourceLogs(world, "fused", kept)


def test_a_lost_store_finds_what_runs_together(world: World) -> None:
    """The choice is stored beside the tables, so that a rebuild finds the same epochs."""
    before = play(world)
    world.arrivals = source_logs(world)
    world.store.delete("fused")
    assert world.controller.rebuild() == ["fused"]
    assert [(s.stage, s.epoch) for s in world.store.stages("fused")] == [("upper", len(ARRIVALS))]
    assert tables(world) == before


def test_a_folder_from_before_stays_apart(world: World) -> None:
    """A dataflow described without a choice goes on as it began, every stage for itself."""
    before = play(world, apart())
    world.arrivals = source_logs(world)
    folder = Path(world.store.dataflow("fused").folder)
    world.controller.delete("fused")
    # The folder of a version that knew neither `fuse` nor a choice.
    file = folder / "_description" / f"{1:020d}.json"
    file.write_text(json.dumps({"format": 1, "version": 1, "document": FUSED}))
    world.controller.register(FUSED)
    epochs = {stage.stage: stage.epoch for stage in world.store.stages("fused")}
    assert epochs == dict.fromkeys(("again", "sum", "upper"), len(ARRIVALS))
    assert tables(world) == before


def test_a_failing_member_stops_its_run_and_is_retried_by_any_name(world: World) -> None:
    """The pause names the member whose code failed; a retry may name any of them."""
    world.controller.register(FUSED)
    world.arrive("fused", "a", ("x", 1), (None, 1))
    for _ in range(3):
        world.ticks()
        world.clock.advance(60)
    (stage,) = world.store.stages("fused")
    assert "upper" in stage.paused_because
    world.controller.retry("fused", "again")
    assert not world.store.stages("fused")[0].paused_because
    assert world.store.runs("fused").items[0].error["error_code"] == AuthorCodeError.code  # type: ignore[index]
