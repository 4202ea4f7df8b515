"""Runnables in the service: durable memos, read marks, what is dropped, what stops a stage."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cbp import Connector, Decision
from tests.controller.world import DIAMOND, ONE, Sum, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


class Newest(Sum):
    """Reads the newest increment alone, and counts its runs."""

    def runnable(self, connectors: Mapping[str, Connector], memo: Any) -> Decision:
        waiting = [increment.index for increment in connectors["items"].unread]
        if not waiting:
            return Decision(waits_for="waits for news")
        runs = 0 if memo is None else memo["runs"]
        chosen = {"items": tuple(waiting[-1:])}
        return Decision(chosen, {"items": tuple(waiting)}, {"runs": runs + 1})


class Forgetful(Sum):
    """Remembers what no process can keep."""

    def runnable(self, connectors: Mapping[str, Connector], memo: Any) -> Decision:
        return Decision({"items": (connectors["items"].unread[0].index,)}, {}, {1, 2})


def one(**stage: Any) -> dict[str, Any]:
    made = copy.deepcopy(ONE)
    made["stages"]["sum"].update(stage)
    return made


def test_a_memo_outlives_the_process(world: World) -> None:
    """The memo is committed with the run, and handed to the next one after a restart."""
    world.translators["sum"] = Newest
    world.restart()
    world.controller.register(ONE)
    for number in (1, 2):
        world.arrive("one", "a", ("x", number))
        world.ticks()
        assert world.store.stages("one")[0].memo == {"runs": number}
        world.restart()
        world.controller.recover()
    assert world.controller.waiting("one") == {}
    world.ticks()
    assert world.controller.waiting("one") == {"sum": "waits for news"}


def test_what_is_removed_unread_is_counted(world: World) -> None:
    """Its increments and records are figures of the run that removed them."""
    world.translators["sum"] = Newest
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("y", 2))
    world.arrive("one", "a", ("x", 3))
    world.ticks()
    (run,) = world.store.runs("one").items
    assert (run.read, run.remove) == ({"items": (1,)}, {"items": (0, 1)})
    assert (run.figures["increments_dropped"], run.figures["records_dropped"]) == (1, 2)
    assert [row["n"] for row in world.flow("one", "sum.totals")] == [3]


def test_a_memo_that_is_not_json_stops_the_stage(world: World) -> None:
    """The stage is paused with stage, function and place; a retry asks again."""
    world.translators["sum"] = Forgetful
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    stage = world.store.stages("one")[0]
    assert "stage 'sum': runnable failed at" in stage.paused_because
    assert Path(__file__).name in stage.paused_because
    assert "memo is a set" in stage.paused_because
    assert world.controller.waiting("one") == {"sum": stage.paused_because}
    world.translators["sum"] = Newest
    world.restart()
    world.controller.retry("one", "sum")
    world.ticks()
    assert world.store.stages("one")[0].epoch == 1


def test_a_document_says_when_a_stage_runs(world: World) -> None:
    """A window of two increments, one new one at a time, keeps its read marks."""
    world.controller.register(one(runnable={"count_window": {"size": 2, "slide": 1}}))
    for number in (1, 2, 3):
        world.arrive("one", "a", ("x", number))
        world.ticks()
    assert [run.read["items"] for run in world.store.runs("one").items] == [(1, 2), (0, 1)]
    queue = world.store.connectors("one")["sum"]["items"].queue
    assert [(queued.increment.index, queued.read) for queued in queue] == [(2, True)]
    assert world.controller.waiting("one")["sum"].endswith("1 more on items")


def test_alignment_reads_an_input_alone(world: World) -> None:
    """Inputs outside of the read set look empty: the join runs on one side."""
    document = copy.deepcopy(DIAMOND)
    document["stages"]["join"]["runnable"] = "align"
    world.controller.register(document)
    for source in "aab":
        world.arrive("diamond", source, ("x", 1))
    world.ticks()
    runs = world.store.runs("diamond", stage="join").items
    assert [run.read for run in runs] == [{"left": (0,), "right": (0,)}]
    words = "waits for `right` to reach 1; `left` is there"
    assert world.controller.waiting("diamond")["join"] == words
