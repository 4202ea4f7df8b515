"""Loops within a run, in the service: one epoch, durable at its end, seen at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Loopback, RunAny, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.model.run.account import ways
from controller.app import Service
from controller.settings import load_settings
from tests.cbp.engine.task.test_run_work import Rounds
from tests.controller.deadly_service import deadly_settings, errors, step_until
from tests.controller.verified import verified, world_of
from tests.controller.world import World
from tests.loops import Components, least_labels
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

PATH = [(node, node + 1) for node in range(12)]
ROUND = [(12, 20), (20, -1)]


class Sizes(Translate):
    """How many nodes have each label."""

    labels = Input("src BIGINT, label BIGINT, sign INT", route_by="label", changes="signed")
    sizes = View("label BIGINT, nodes BIGINT, reads BIGINT", key="label")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        before = next(iter(group.sizes), None)
        nodes, reads = (before.nodes, before.reads) if before else (0, 0)
        for change in group.labels:
            nodes, reads = nodes + change.sign, reads + 1
        if nodes:
            out.sizes(key.label, nodes, reads)


class FewSupersteps(Components):
    """The same with so few supersteps that a run ends before it is at rest."""

    news = Loopback("node BIGINT, label BIGINT, linked BIGINT", route_by="node", supersteps=3)


class Together(Components):
    """The same, of all files that wait."""

    runnable = RunAny(batch=9)


class RoundsTogether(Rounds):
    """Rounds that are noted, of all files that wait."""

    runnable = RunAny(batch=9)


def graph(translator: str = "components") -> dict[str, Any]:
    return {
        "name": "graph",
        "sources": {"links": {"schema": "src BIGINT, dst BIGINT"}},
        "stages": {
            "components": {
                "translator": translator,
                "inputs": {"links": "links"},
                "buckets": 2,
            },
            "sizes": {
                "translator": "sizes",
                "inputs": {"labels": "components.labels"},
                "buckets": 2,
            },
        },
    }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    made.translators |= {"components": Components, "few": FewSupersteps, "sizes": Sizes}
    made.translators |= {"together": Together}
    made.restart()
    yield made
    made.close()


def labels(world: World) -> dict[int, int]:
    folder = world.store.dataflow("graph").folder
    node = world.controller.dataflow("graph").stages["components"]
    records = world.engine.records.read_state(folder, node, "labels")
    return {record["src"]: record["label"] for record in records}


def epochs(world: World) -> Counter[str]:
    return Counter(run.stage for run in world.store.runs("graph", limit=500).items)


def test_a_reader_runs_once_and_sees_the_end_alone(world: World) -> None:
    """One epoch for each file, and no label of the middle, whatever the length of a path."""
    world.controller.register(graph())
    world.arrive("graph", "links", *PATH)
    world.ticks()
    assert labels(world) == least_labels(PATH)
    assert epochs(world) == {"components": 1, "sizes": 1}
    assert world.flow("graph", "sizes.sizes") == [
        {"label": 0, "nodes": 13, "reads": 13, "change_type": "insert", "sign": 1, "_epoch": 0}
    ]
    world.arrive("graph", "links", *ROUND)
    world.ticks()
    assert labels(world) == least_labels([*PATH, *ROUND])
    assert epochs(world) == {"components": 2, "sizes": 2}
    supersteps = [run.figures["supersteps"] for run in world.store.runs("graph").items[1::2]]
    assert min(supersteps) > 12


def test_a_loop_that_changed_nothing_lets_its_readers_know(world: World) -> None:
    """They get an empty increment, so that they stay in step, and do no job for it."""
    world.controller.register(graph())
    for _ in range(2):
        world.arrive("graph", "links", *PATH)
        world.ticks()
    assert epochs(world) == {"components": 2, "sizes": 2}
    newest = {run.stage: run for run in reversed(world.store.runs("graph").items)}
    assert newest["components"].figures["supersteps"] == 3, "links that are known go no further"
    assert newest["sizes"].figures["records_in"] == 0
    assert not newest["sizes"].figures.get("groups")


def test_a_run_ends_after_its_supersteps_and_the_next_goes_on(world: World) -> None:
    """What is left comes back in the next epoch, until nothing is."""
    world.controller.register(graph("few"))
    world.arrive("graph", "links", *PATH)
    world.ticks()
    assert labels(world) == least_labels(PATH)
    runs = [run for run in world.store.runs("graph").items if run.stage == "components"]
    assert len(runs) == 5
    assert {run.figures["supersteps"] for run in runs[1:]} == {3}


def test_a_loop_is_verified(tmp_path: Path) -> None:
    """Recomputed from scratch it is equal, also where runs ended before they were at rest."""
    world = world_of(tmp_path, few=FewSupersteps, sizes=Sizes)
    world.controller.register(graph("few"))
    for links in (PATH, ROUND):
        world.arrive("graph", "links", *links)
        world.ticks()
    verification = verified(world, "graph")
    assert (verification.status, verification.error) == ("equal", None)
    compared = {one.table: one.records for one in verification.tables if one.status == "equal"}
    assert compared["state/components.labels"] == 2 * 15, "both sides"
    world.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("point", "passage"),
    [
        ("superstep.before", 1),
        ("superstep.after", 7),
        ("intention.before", 1),
        ("intention.after", 1),
    ],
)
def test_a_crash_loses_nothing(world: World, point: str, passage: int) -> None:
    """A death between two supersteps, or at the end, gives what an unbroken loop gives."""
    world.controller.register(graph())
    for number, links in enumerate((PATH, ROUND)):
        world.arrive("graph", "links", *links)
        world.faults.to = PlannedFaults(point, passage=passage)
        with pytest.raises(Crash):
            world.ticks()
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
        world.ticks()
        assert labels(world) == least_labels([*PATH, *ROUND] if number else PATH)
    (sizes,) = world.controller.reading.look_up("graph", "sizes", "sizes", {"label": -1})
    assert sizes["nodes"] == 15


def test_another_try_goes_on_although_more_has_arrived(world: World) -> None:
    """It reads what the try before it read, and the next run the rest; the log is gone then."""
    world.engine_limits = replace(world.engine_limits, superstep_log_ms=0)
    world.restart()
    world.controller.register(graph("together"))
    world.arrive("graph", "links", *PATH)
    world.faults.to = PlannedFaults("superstep.after", passage=9)
    with pytest.raises(Crash):
        world.ticks()
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.arrive("graph", "links", *ROUND)
    assert list(Path(world.tables).rglob("_supersteps/components/*"))
    world.ticks()
    assert labels(world) == least_labels([*PATH, *ROUND])
    runs = [run for run in world.store.runs("graph").items if run.stage == "components"]
    assert [(run.epoch, dict(run.read), run.error is None) for run in runs] == [
        (1, {"links": (1,)}, True),
        (0, {"links": (0,)}, True),
        (0, {"links": (0,)}, False),
    ]
    assert [run.figures.get("supersteps_before") for run in runs] == [None, 8, None]
    many = int(runs[1].figures["supersteps"])
    assert ways(runs[1].figures) == [
        f"{many} supersteps; an earlier, interrupted attempt did the first 8"
    ]
    assert not list(Path(world.tables).rglob("_supersteps/components/*"))


def test_a_call_that_noted_its_rounds_goes_on_although_more_has_arrived(world: World) -> None:
    """As a loop of messages does: the try after it reads what that one read."""
    world.engine_limits = replace(world.engine_limits, superstep_log_ms=0)
    world.translators |= {"rounds": RoundsTogether}
    world.restart()
    world.controller.register(
        {
            "name": "graph",
            "sources": {"items": {"schema": "k BIGINT"}},
            "stages": {"components": {"translator": "rounds", "inputs": {"items": "items"}}},
        }
    )
    world.arrive("graph", "items", (1,))
    world.faults.to = PlannedFaults("superstep.after", passage=6)
    with pytest.raises(Crash):
        world.ticks()
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.arrive("graph", "items", (2,))
    world.ticks()
    runs = world.store.runs("graph").items
    assert [(run.epoch, dict(run.read), run.figures.get("notes_before")) for run in runs] == [
        (1, {"items": (1,)}, None),
        (0, {"items": (0,)}, 5),
        (0, {"items": (0,)}, None),
    ]
    assert not list(Path(world.tables).rglob("_supersteps/components/*"))


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.parametrize("logs", [False, True], ids=["begins-again", "goes-on"])
def test_a_worker_that_is_killed_in_a_superstep_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: bool
) -> None:
    """The run fails with what killed it, and is tried again: a call counts once."""
    settings = deadly_settings(tmp_path, monkeypatch, tries=3)
    settings["superstep_log_seconds"] = 0 if logs else 3600
    service = Service(load_settings(**settings))
    try:
        service.controller.register(
            {
                "name": "rounds",
                "sources": {"a": {"schema": "k BIGINT, n BIGINT, file STRING"}},
                "stages": {"rounds": {"translator": "rounds", "inputs": {"items": "a"}}},
            }
        )
        incoming = service.settings.drop_root / "rounds" / "a" / "incoming"
        record = {"k": 0, "n": 6, "file": str(tmp_path / "died")}
        (incoming / "a.jsonl").write_text(f"{json.dumps(record)}\n")
        step_until(service, lambda: service.store.stages("rounds")[0].epoch == 1)
        assert [error["error_code"] for error in errors(service, "rounds") if error] == [
            "worker_ended"
        ]
        newest = service.store.runs("rounds").items[0]
        assert newest.figures.get("supersteps_before") == (3 if logs else None)
        records, _ = service.controller.reading.read_flow("rounds", "rounds.calls", None, 100)
        assert Counter((one["k"], one["calls"]) for one in records) == {(k, 1): 1 for k in range(7)}
    finally:
        service.stop()
