"""A file is corrected that a stage cannot follow: it waits, and a rebuild reads the right file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, Translate, View
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import ChangeRefusedError, ReplaceRefusedError
from cbp.model.version.version_change import Choice
from controller.loop.rebuild.build_in_progress import RebuildJob
from tests.controller.changing import KEEPING_HOUSE
from tests.controller.corrected_files import DOCUMENT, Row, Shelf
from tests.controller.verified import EACH_WAY, verified
from tests.controller.world import SCHEMA, Deferred
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


class Last(Translate):
    """The last number of each word, and every number: both depend on the order of arrival."""

    items = Input(SCHEMA, route_by="word")
    last = View("word STRING, n BIGINT", key="word")
    seen = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep it."""
        n = next((row.n for row in group.last), 0)
        for row in group.items:
            n = row.n
            out.seen(word=key.word, n=n)
        out.last(key.word, n)


LAST: dict[str, Any] = {"translator": "last", "inputs": {"items": "a"}, "buckets": 2}
BOTH = {**DOCUMENT, "stages": {"sums": DOCUMENT["stages"]["sums"], "last": LAST}}
ADDED = {**DOCUMENT, "stages": {"sums": DOCUMENT["stages"]["sums"]}}
AT_ONCE = replace(KEEPING_HOUSE, checkpoint_seconds=0.0)


class Desk(Shelf):
    """A service with a stage that cannot follow a replacement, and one that can."""

    def __init__(self, root: Path, document: dict[str, Any] = BOTH, **more: Any) -> None:
        super().__init__(root, document, {"last": Last}, limits=AT_ONCE, **more)

    def correct(self, name: str, *rows: Row) -> None:
        """Replace a file, and let stages that cannot follow wait."""
        self.replace(name, *rows, rebuild=True)
        self.counts[name] = list(rows)
        self.take_in()

    def add(self, name: str, *rows: Row) -> None:
        self.put(name, *rows)
        self.counts[name] = list(rows)
        self.take_in()

    def last(self) -> dict[str, int]:
        node = self.named()[1].stages["last"]
        rows = self.world.engine.records.read_state(f"{self.world.tables}/shelf", node, "last")
        return {row["word"]: row["n"] for row in rows}

    def right_last(self) -> dict[str, int]:
        """Return the last numbers if the files had been right at first; each has a word once."""
        return dict(row for rows in self.counts.values() for row in rows)

    def job(self) -> RebuildJob:
        return self.world.controller.rebuild_jobs.all("shelf")[0]

    def start_build(self) -> RebuildJob:
        jobs, dataflow = self.world.controller.rebuild_jobs, self.named()[1]
        return jobs.start(self.document, dataflow)

    def rebuild(self) -> None:
        """Build all tables beside, and swap them in."""
        self.start_build()
        assert self.job().status == "ready", self.job().error
        self.world.controller.rebuild_jobs.swap("shelf", self.job().id)
        assert self.job().status == "swapped", self.job().error
        self.take_in()

    def paused(self) -> dict[str, str]:
        return {
            s.stage: s.paused_because for s in self.world.store.stages("shelf") if s.paused_because
        }

    def require_all_right(self) -> None:
        assert self.sums() == self.right()
        assert self.last() == self.right_last()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    made.add("monday", ("a", 1), ("b", 2))
    made.add("tuesday", ("a", 3), ("c", 4))
    made.add("wednesday", ("c", 5))
    yield made
    made.close()


def test_a_stage_that_cannot_follow_waits_and_a_rebuild_mends_it(desk: Desk) -> None:
    """The refusal offers it; until the swap the stage stops, and the others follow."""
    with pytest.raises(ReplaceRefusedError, match="--then-rebuild"):
        desk.replace("tuesday", ("a", 7), ("c", 4), ("d", 9))
    before = desk.last()
    desk.correct("tuesday", ("a", 7), ("c", 4), ("d", 9))
    assert desk.sums() == desk.right()
    assert desk.last() == before
    assert "cbp rebuild shelf" in desk.paused()["last"]
    desk.add("thursday", ("b", 8))
    assert desk.last() == before
    desk.rebuild()
    assert desk.paused() == {}
    desk.require_all_right()
    desk.add("friday", ("a", 1))
    desk.correct("monday", ("b", 6))
    desk.correct("monday", ("b", 7), ("e", 1))
    desk.rebuild()
    desk.require_all_right()


@EACH_WAY
def test_what_a_rebuild_read_is_what_a_verification_reads(desk: Desk, request_: Any) -> None:
    """Right files in their places; what came after the swap as it came."""
    desk.correct("tuesday", ("c", 4), ("d", 9))
    desk.rebuild()
    desk.add("friday", ("a", 1), ("d", 2))
    assert verified(desk.world, "shelf", request_).status == "equal"


def test_a_new_stage_begins_with_files_that_were_replaced(tmp_path: Path) -> None:
    """In place it is refused, and the build beside is offered."""
    desk = Desk(tmp_path, ADDED)
    desk.add("monday", ("a", 1), ("b", 2))
    desk.correct("monday", ("a", 3))
    desk.add("tuesday", ("b", 4))
    with pytest.raises(ChangeRefusedError, match="cbp rebuild shelf"):
        desk.world.controller.change(BOTH, choice=Choice(retained=frozenset({"last"})))
    desk.document = BOTH
    jobs = desk.world.controller.rebuild_jobs
    job = jobs.start(BOTH, desk.world.controller.validate(BOTH))
    jobs.swap("shelf", job.id)
    desk.take_in()
    desk.require_all_right()
    desk.close()


def test_a_correction_during_a_build_lets_it_begin_anew(tmp_path: Path) -> None:
    """What it had read cannot be taken back from a stage that cannot follow; it says so."""
    later = Deferred()
    desk = Desk(tmp_path, verifier=later)
    desk.add("monday", ("a", 1), ("b", 2))
    desk.start_build()
    later.run_next()
    assert desk.job().status == "ready"
    desk.correct("monday", ("a", 5))
    desk.world.controller.rebuild_jobs.swap("shelf", desk.job().id)
    later.run_next()
    assert (desk.job().status, "replaced" in desk.job().anew) == ("building", True)
    later.run_next()
    assert desk.job().status == "swapped", desk.job().error
    desk.take_in()
    desk.require_all_right()
    desk.close()


@pytest.mark.part(every=10)
@pytest.mark.parametrize("seed", range(10))
def test_random_corrections_with_kills_end_right(tmp_path: Path, seed: int) -> None:
    """Add, replace, retract; rebuild and swap, killed on the way, until all is right again."""
    rng, desk = random.Random(seed), Desk(tmp_path)
    effects = ("data_file", "log_entry", "build_order", "description", "sql_commit", "job")
    for number in range(4):
        for name in ("x", "y", "z"):
            words = rng.sample("abcd", rng.randrange(1, 5))
            rows = [(word, rng.randrange(9)) for word in words]
            if rng.random() < 0.5 or not desk.counts:
                desk.add(f"{name}{number}", *rows)
            else:
                desk.correct(rng.choice(list(desk.counts)), *rows)
        if not desk.paused() and rng.random() < 0.5:
            continue
        point = f"{rng.choice(effects)}.{rng.choice(('before', 'after'))}"
        desk.world.faults.to = PlannedFaults(point, passage=rng.randrange(1, 12))
        try:
            desk.rebuild()
        except Crash:
            desk.world.faults.to = NO_FAULTS
            desk.start()
            desk.prepare()
            desk.world.controller.recover()
            desk.take_in()
            if not desk.job().ended:
                desk.world.controller.rebuild_jobs.swap("shelf", desk.job().id)
            elif desk.paused():
                desk.rebuild()
        desk.world.faults.to = NO_FAULTS
        desk.take_in()
        desk.require_all_right()
        assert verified(desk.world, "shelf").status == "equal"
    desk.close()
