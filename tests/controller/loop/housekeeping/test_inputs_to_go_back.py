"""Inputs stay as long as somebody can go back to where they were not read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cbp.engine.interface.garbage_collector import Retention
from cbp.errors import CbpError
from cbp.model.flow.retention import FlowRetention
from controller.loop import LoopLimits
from controller.loop.housekeeping.input_retention import Keep
from tests.controller.corrected_files import Shelf
from tests.controller.loop.rebuild.beside_world import Beside, arrive, document
from tests.controller.rollbacks import back
from tests.controller.verified import verified
from tests.controller.world import SCHEMA

pytestmark = pytest.mark.usefixtures("without_syncs")

HOUR = Retention(versions_min=1, versions_max=1, seconds=3600, attempt_seconds=0)
PLAIN = document()
SOON = {**document("tripled"), "sources": {"a": {"schema": SCHEMA, "keep": {"until": "snapshot"}}}}


def applied(world: Beside, first: int, last: int) -> None:
    """Let increments come, each applied by itself, and collect after each."""
    for number in range(first, last):
        arrive(world, number, number + 1)
        world.clock.advance(1)
        world.ticks()
        world.controller.housekeeping.collect("d")


def test_a_swap_can_be_undone_as_long_as_is_said(tmp_path: Path) -> None:
    """What came since waits for the version before, however short its source keeps input."""
    limits = LoopLimits(records_kept=1)
    world = Beside(tmp_path, limits=limits, retention=HOUR, collect_every=10**6)
    world.controller.register(PLAIN)
    applied(world, 0, 3)
    world.swap(world.build(SOON))
    until = world.controller.rebuild_jobs.swaps.back_until(world.store.dataflow("d"))
    assert until is not None
    applied(world, 3, 6)
    world.clock.advance((until - world.clock()).total_seconds() - 1.001)
    applied(world, 6, 7)
    assert until - timedelta(seconds=0.01) < world.clock() < until
    assert world.controller.housekeeping.reach("d").sources[0].first == 3
    world.controller.rebuild_jobs.swaps.back("d")
    world.ticks()
    assert world.sums()["x"] == sum(range(7))
    world.close()


def test_inputs_go_once_the_swap_cannot_be_undone(tmp_path: Path) -> None:
    """Then as soon as their source says."""
    limits = LoopLimits(records_kept=1)
    world = Beside(tmp_path, limits=limits, retention=HOUR, collect_every=10**6)
    world.controller.register(PLAIN)
    applied(world, 0, 3)
    world.swap(world.build(SOON))
    applied(world, 3, 6)
    kept = [one.increment.index for one in world.store.oldest_increments("d", "a")]
    assert kept == [3, 4, 5]
    world.clock.advance(3601)
    applied(world, 6, 8)
    assert world.store.oldest_increments("d", "a")[0].increment.index > 3
    with pytest.raises(CbpError):
        world.controller.rebuild_jobs.swaps.back("d")
    world.close()


def test_a_replacement_that_would_wait_again_needs_all_inputs(tmp_path: Path) -> None:
    """One that waited at a position to which a roll-back can return."""
    keep, limits = Keep(FlowRetention(0), 5), LoopLimits(records_kept=1)
    shelf = Shelf(tmp_path, keep=keep, limits=limits, retention=HOUR, collect_every=1000)
    for day in ("monday", "tuesday", "wednesday"):
        shelf.put(day, ("a", 1), (day, 2))
        shelf.counts[day] = [("a", 1), (day, 2)]
        shelf.take_in()
    shelf.replace("tuesday", ("a", 5))
    shelf.counts["tuesday"] = [("a", 5)]
    shelf.scan()
    shelf.world.controller.housekeeping.collect("shelf")
    (point, *_) = shelf.world.controller.amendments.moments("shelf", limit=1)
    shelf.take_in()
    shelf.put("thursday", ("b", 2))
    shelf.counts["thursday"] = [("b", 2)]
    shelf.take_in()
    shelf.world.controller.housekeeping.collect("shelf")
    assert shelf.world.controller.housekeeping.reach("shelf").oldest_position == point.point.number
    back(shelf.world, str(point.point.number), name="shelf")
    shelf.world.ticks()
    shelf.require_right()
    assert verified(shelf.world, "shelf").status == "equal"
    shelf.close()
