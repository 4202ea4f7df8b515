"""Graphs of every shape, on the reference engine, the direct engine and the service.

Cycles of any length, several flows between the same two stages, one flow to many readers,
and a stage that is fed by its own output; against plain Python that knows no increments.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, RunAny, State, Translate
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from tests.controller.world import World
from tests.driver import Driver

SCHEMA = "word STRING, n BIGINT"
Records = list[tuple[str, int]]
EPOCHS: list[Records] = [[("a", 5), ("b", 2)], [("a", 3)], [], [("c", 9), ("b", 1), ("b", 4)]]


class Hop(Translate):
    """Pass each record on with one less, as long as there is something left; count them."""

    items = Input(SCHEMA, route_by="word")
    back = Input(SCHEMA, route_by="word")
    passed = State("word STRING, times BIGINT")
    next = Output(SCHEMA)
    runnable = RunAny()

    def translate(self, key: Any, group: Any, out: Any) -> None:
        came = [*group.items, *group.back]
        out.passed(key.word, sum(r.times for r in group.passed) + len(came))
        for record in came:
            if record.n:
                out.next(record.word, record.n - 1)


class Relay(Translate):
    """The same with one input: the other stages of a ring."""

    items = Input(SCHEMA, route_by="word")
    passed = State("word STRING, times BIGINT")
    next = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        came = list(group.items)
        out.passed(key.word, sum(r.times for r in group.passed) + len(came))
        for record in came:
            if record.n:
                out.next(record.word, record.n - 1)


class Split(Translate):
    """Send even and odd numbers to two outputs, and all of them to a third."""

    items = Input(SCHEMA, route_by="word")
    passed = State("word STRING, times BIGINT")
    even = Output(SCHEMA)
    odd = Output(SCHEMA)
    every = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        came = list(group.items)
        out.passed(key.word, sum(r.times for r in group.passed) + len(came))
        for record in came:
            (out.odd if record.n % 2 else out.even)(record.word, record.n)
            out.every(record.word, record.n)


class Collect(Translate):
    """Read three flows of one stage, and count what came by weights that tell them apart."""

    even = Input(SCHEMA, route_by="word")
    odd = Input(SCHEMA, route_by="word")
    every = Input(SCHEMA, route_by="word")
    passed = State("word STRING, times BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.times for r in group.passed)
        n += sum(1 for _ in group.even) + sum(100 for _ in group.odd)
        out.passed(key.word, n + sum(10_000 for _ in group.every))


TRANSLATORS: dict[str, Callable[[], Translate]] = {
    "hop": Hop,
    "relay": Relay,
    "split": Split,
    "collect": Collect,
}
Wired = dict[str, tuple[str, dict[str, str]]]


def ring(length: int) -> Wired:
    """Return a cycle of so many stages; of one, a stage that reads its own output."""
    stages: Wired = {"s0": ("hop", {"items": "a", "back": f"s{length - 1}.next"})}
    for at in range(1, length):
        stages[f"s{at}"] = ("relay", {"items": f"s{at - 1}.next"})
    return stages


def hops(length: int) -> dict[str, Counter[str]]:
    """Return how often each word passes each stage of a ring."""
    passed: dict[str, Counter[str]] = {f"s{at}": Counter() for at in range(length)}
    for word, n in (record for epoch in EPOCHS for record in epoch):
        for step in range(n + 1):
            passed[f"s{step % length}"][word] += 1
    return passed


def several() -> Wired:
    """Return two stages with three flows between them, one of which has more readers."""
    return {
        "split": ("split", {"items": "a"}),
        "collect": (
            "collect",
            {"even": "split.even", "odd": "split.odd", "every": "split.every"},
        ),
        "one": ("relay", {"items": "split.every"}),
        "other": ("relay", {"items": "split.every"}),
    }


def counted() -> dict[str, Counter[str]]:
    """Return what the stages of `several` keep."""
    records = [record for epoch in EPOCHS for record in epoch]
    every = Counter(word for word, _ in records)
    weighted: Counter[str] = Counter()
    for word, n in records:
        weighted[word] += 10_000 + (100 if n % 2 else 1)
    return {"split": every, "collect": weighted, "one": every, "other": every}


SHAPES: dict[str, tuple[Wired, dict[str, Counter[str]]]] = {
    **{f"ring{n}": (ring(n), hops(n)) for n in (1, 2, 3, 7)},
    "several": (several(), counted()),
}


def built(wired: Wired) -> Dataflow:
    builder = DataflowBuilder("d")
    builder.source("a", SCHEMA)
    for name, (translator, inputs) in wired.items():
        flows: dict[str, Any] = dict(inputs)
        builder.stage(name, TRANSLATORS[translator](), buckets=2, **flows)
    return builder.build()


def passed(read: Callable[[str, str], Any], wired: Wired) -> dict[str, Counter[str]]:
    """Return the counts that every stage keeps."""
    return {
        name: Counter({row["word"]: row["times"] for row in read(name, "passed")}) for name in wired
    }


@pytest.fixture(autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs: no test here cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.mark.part(every=2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fused", [False, True])
def test_every_shape_runs_on_both_engines(shape: str, fused: bool, tmp_path: Path) -> None:
    """Each record reaches every stage as often as it should, whatever way it goes."""
    wired, expected = SHAPES[shape]
    dataflow = built(wired)
    reference = ReferenceEngine(dataflow)
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t", fused=fused
    )
    for epoch in EPOCHS:
        rows = [{"word": word, "n": n} for word, n in epoch]
        reference.feed("a", rows)
        driver.feed("a", rows)
        reference.run_until_idle()
        driver.run_until_idle()
    assert passed(reference.state, wired) == expected
    assert passed(driver.state, wired) == expected


@pytest.mark.part(every=2)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_runs_in_the_service(shape: str, tmp_path: Path) -> None:
    """The same, registered as a document, with a restart in the middle."""
    wired, expected = SHAPES[shape]
    world = World(tmp_path, engine=LocalEngine)
    world.translators |= TRANSLATORS
    world.restart()
    stages = {
        name: {"translator": translator, "inputs": inputs, "buckets": 2}
        for name, (translator, inputs) in wired.items()
    }
    world.controller.register({"name": "d", "sources": {"a": {"schema": SCHEMA}}, "stages": stages})
    for number, epoch in enumerate(EPOCHS):
        world.arrive("d", "a", *epoch)
        world.ticks(200)
        if number == 1:
            world.restart()
            world.controller.recover()

    def read(stage: str, state: str) -> Any:
        node = world.controller.dataflow("d").stages[stage]
        return world.engine.records.read_state(world.store.dataflow("d").folder, node, state)

    assert passed(read, wired) == expected
    world.close()
