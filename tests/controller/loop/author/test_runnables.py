"""Runnables in the service: durable memos, read marks, what is dropped, what stops a stage."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cbp import Connector, Decision, Input, RunAny, framed
from cbp.engine.direct import LocalEngine
from cbp.model.version.version_change import Choice
from controller.loop import LoopLimits
from tests.controller.world import DIAMOND, ONE, SCHEMA, Sum, World


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


def mend(world: World, translator: type) -> None:
    """Install another translator: a retry does not run it, its registration does."""
    world.translators["sum"] = translator
    world.restart()
    world.controller.recover()
    world.controller.retry("one", "sum")
    world.ticks()
    assert "Register the document again" in world.controller.waiting("one")["sum"]
    world.controller.change(ONE, choice=Choice(keep=frozenset({"sum"})))
    world.ticks()


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
    """The stage is paused with stage, function and place; a mended one is registered, and runs."""
    world.translators["sum"] = Forgetful
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    stage = world.store.stages("one")[0]
    assert "stage 'sum': runnable failed at" in stage.paused_because
    assert Path(__file__).name in stage.paused_because
    assert "JSON cannot store memo (set)" in stage.paused_because
    assert world.controller.waiting("one") == {"sum": stage.paused_because}
    mend(world, Newest)
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
    words = "waits for an increment on `right` with framing key 1 or a later one; `left` has one"
    assert world.controller.waiting("diamond")["join"] == words


class Again(Sum):
    """Takes what comes, from outside or from its own output."""

    runnable = RunAny()
    items = Input(SCHEMA, route_by="word")
    back = Input(SCHEMA, route_by="word")


LOOP: dict[str, Any] = {
    "name": "loop",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "sum": {
            "translator": "again",
            "inputs": {"items": "a", "back": "sum.totals"},
            "limits": {"totals": {"increments": 1}},
        }
    },
}


def test_a_cycle_that_does_not_drain_is_shown_and_can_be_paused(world: World) -> None:
    """Its stage says so while it runs on; a pause of the stage stops it, a resume lets it go."""
    world.limits = LoopLimits(turns_max=5)
    world.translators["again"] = Again
    world.restart()
    world.controller.register(LOOP)
    world.arrive("loop", "a", ("x", 1))
    with pytest.raises(AssertionError, match="still busy"):
        world.ticks(most=10)
    stage = world.store.stages("loop")[0]
    assert (stage.epoch, stage.turns) == (10, 9)
    words = "the cycle sum -> sum does not drain: it ran 8 epochs without new input"
    assert world.controller.waiting("loop")["sum"].startswith(words)
    world.controller.pause_stage("loop", "sum")
    world.ticks()
    assert world.controller.waiting("loop")["sum"].startswith("is paused by the operator; the")
    world.controller.resume_stage("loop", "sum")
    assert len(world.controller.tick().starts) == 1


def test_a_slow_reader_holds_its_writer(world: World) -> None:
    """At the limit that the document sets, until the reader takes more."""
    document = copy.deepcopy(DIAMOND)
    document["stages"]["left"]["limits"] = {"totals": {"increments": 2}}
    world.controller.register(document)
    for _ in range(4):
        world.arrive("diamond", "a", ("x", 1))
    world.ticks()
    assert {s.stage: s.epoch for s in world.store.stages("diamond")}["left"] == 2
    words = "waits until readers of its outputs catch up: `join.left` has 2 increments (limit 2)"
    assert world.controller.waiting("diamond")["left"] == f"{words} in its queue"
    world.arrive("diamond", "b", ("x", 1))
    world.ticks()
    assert {s.stage: s.epoch for s in world.store.stages("diamond")}["left"] == 3


class Hourly(Sum):
    """Cuts its input by a column."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


def test_frames_are_kept_over_restarts(tmp_path: Path) -> None:
    """A frame spans increments, an increment holds several; the open one waits for its end."""
    world = World(tmp_path, engine=LocalEngine)
    world.translators["sum"] = Hourly
    world.restart()
    world.controller.register(ONE)
    for records in ([("x", 1), ("y", 1)], [("z", 1), ("x", 2), ("x", 3)], [("y", 3)]):
        world.arrive("one", "a", *records)
        world.ticks()
        world.restart()
        world.controller.recover()
    runs = world.store.runs("one").items
    assert [run.read["items"] for run in runs] == [(1,), (0,)]
    totals = [(row["word"], row["n"]) for row in world.flow("one", "sum.totals")]
    assert sorted(totals) == [("x", 1), ("x", 3), ("y", 1), ("z", 1)]
    connector = world.store.connectors("one")["sum"]["items"]
    assert (connector.queue, connector.arrived) == ((), ())
    assert connector.framing is not None
    assert connector.framing.open is not None
    assert (connector.framing.open.framing_key, connector.framing.open.records) == (3, 2)
    assert [increment.records for increment in connector.held] == [2]
    world.close()


class Broken(Sum):
    """Frames by what no record has."""

    items = Input(SCHEMA, route_by="word", frame_by=framed(lambda record: record.hour))


class Mended(Sum):
    """Frames by what every record has."""

    items = Input(SCHEMA, route_by="word", frame_by=framed(lambda record: record.n))


def test_a_framing_function_that_fails_stops_its_stage(world: World) -> None:
    """With its line; what arrived stays, and is framed once the function is mended."""
    world.translators["sum"] = Broken
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("x", 2))
    world.ticks()
    because = world.store.stages("one")[0].paused_because
    assert "items.frame_by failed at" in because
    assert Path(__file__).name in because
    mend(world, Mended)
    assert world.store.stages("one")[0].epoch == 1
    connector = world.store.connectors("one")["sum"]["items"]
    assert connector.framing is not None
    assert connector.framing.open is not None
    assert connector.framing.open.framing_key == 2
