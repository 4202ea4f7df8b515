"""Corrections, swaps, returns, roll-backs, retention and losses, at random: tables are right."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest

from cbp.engine.interface.garbage_collector import Retention
from cbp.errors import CbpError
from cbp.model.flow.retention import FlowRetention
from controller.loop import LoopLimits
from controller.loop.housekeeping.input_retention import Keep
from tests.controller.corrected_files import Row, Shelf
from tests.controller.loop.recovery.test_replacement import lose
from tests.controller.rollbacks import back
from tests.controller.verified import verified

pytestmark = pytest.mark.usefixtures("without_syncs")

HOUR = Retention(versions_min=2, versions_max=100, seconds=3600, attempt_seconds=0)
STEPS = {
    "put": 6, "replace": 5, "retract": 3, "swap": 2, "back": 2,
    "roll_back": 3, "collect": 2, "lose": 1, "restart": 1,
}  # fmt: skip


class History:
    """One service, and the records of every file that was dropped, by its claim."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.dice, self.root, self.contents = dice, root, dict[str, list[Row]]()
        self.shelf = Shelf(
            root,
            keep=Keep(FlowRetention(dice.choice((0, 10, 10**9))), 5),
            retention=HOUR,
            limits=LoopLimits(records_kept=dice.choice((1, 100))),
            collect_every=dice.choice((2, 10**6)),
        )
        self.shelf.world.clock.advance(1)

    def count(self) -> None:
        """Find what counts: of each name the newest accepted file, unless it was taken back."""
        self.shelf.counts.clear()
        claims = self.shelf.world.store.claims("shelf", "a", limit=500, status="accepted").items
        for claim in sorted(claims, key=lambda one: one.index or 0):
            self.shelf.counts.pop(claim.path, None)
            if (claim.same_as or {}).get("by") != "retracted":
                self.shelf.counts[claim.path] = self.contents[claim.id]

    def until(self) -> datetime | None:
        """Return until when the last swap can be undone."""
        record = self.shelf.world.store.dataflow("shelf")
        return self.shelf.world.controller.rebuild_jobs.swaps.back_until(record)

    def do(self, what: str, rows: list[Row]) -> None:
        """Take one step; what is refused changes nothing."""
        shelf, dice, name = self.shelf, self.dice, f"f{self.dice.randrange(4)}"
        controller = shelf.world.controller
        if what == "put" and name not in shelf.counts:
            self.contents[shelf.put(name, *rows).id] = rows
        elif what == "replace":
            self.contents[shelf.replace(name, *rows).id] = rows
        elif what == "retract":
            shelf.retract(name)
        elif what == "swap":
            job = controller.rebuild_jobs.start_present("shelf")
            controller.rebuild_jobs.swap("shelf", job.id)
            assert controller.rebuild_jobs.show("shelf", job.id).status == "swapped"
        elif what == "back" and (until := self.until()) is not None:
            in_time = shelf.world.clock() < until
            try:
                controller.rebuild_jobs.swaps.back("shelf")
            except CbpError:
                assert not in_time
        elif what == "roll_back":
            oldest = controller.housekeeping.reach("shelf").oldest_position or 0
            ran = sum(stage.epoch for stage in shelf.world.store.stages("shelf"))
            later = dice.random() < 0.4
            back(shelf.world, str(dice.randint(oldest, ran)), name="shelf", drop_later=later)
        elif what == "collect":
            shelf.world.clock.advance(dice.choice((1, 4000)))
            controller.housekeeping.collect("shelf")
        elif what == "lose":
            lose(shelf, self.root)
        elif what == "restart":
            shelf.start()
            shelf.world.controller.recover()


@pytest.mark.part(every=5)
@pytest.mark.parametrize("seed", range(10))
def test_random_histories_of_swaps_and_corrections(tmp_path: Path, seed: int) -> None:
    """Whatever is not refused ends in the tables of what counts; a swap is undone until it is said.

    No stage stops, although inputs are removed as soon as they may be.
    """
    dice = random.Random(seed)
    history = History(tmp_path, dice)
    shelf = history.shelf
    for step in range(22):
        history.count()
        (what,) = dice.choices(list(STEPS), list(STEPS.values()))
        rows = [(dice.choice("abc"), dice.randrange(4)) for _ in range(dice.randrange(4))]
        try:
            history.do(what, [*rows, ("z", step)])
        except CbpError:
            assert what not in ("put", "collect", "lose", "restart")
        if dice.random() < 0.2:
            shelf.scan()
            continue
        shelf.take_in()
        history.count()
        shelf.require_right()
    shelf.take_in()
    history.count()
    shelf.require_right()
    is_whole = not shelf.world.controller.housekeeping.reach("shelf").incomplete
    assert verified(shelf.world, "shelf").status == "equal" or not is_whole
    shelf.close()
