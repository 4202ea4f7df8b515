"""Frames in the service give the reference engine's epochs, however arrivals are cut.

Two stages frame one flow in different ways, on real files; what the test kit says of
increments, memos and closes is what the service does.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from tests.controller.framings import ByKey, ByStretch
from tests.controller.world import SCHEMA, World

Record = dict[str, Any]


DOCUMENT: dict[str, Any] = {
    "name": "two",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "keys": {"translator": "by_key", "inputs": {"items": "a"}, "buckets": 2},
        "stretches": {"translator": "by_stretch", "inputs": {"items": "a"}, "buckets": 2},
        # What a framed stage writes is framed again, further on.
        "again": {"translator": "by_key", "inputs": {"items": "keys.totals"}, "buckets": 2},
    },
}


def epochs_of(world: World, flow: str) -> list[list[Record]]:
    """Return the records of a flow, epoch by epoch."""
    folder = world.store.dataflow("two").folder
    actual = []
    for index in range(world.store.next_index("two", flow)):
        increment = world.store.increment("two", flow, index).increment
        rows = world.engine.increments.read(folder, [increment], offset=0, limit=10**6)
        actual.append([{k: v for k, v in row.items() if k != "_epoch"} for row in rows])
    return actual


@pytest.mark.part(every=6)
@pytest.mark.parametrize("seed", range(6))
def test_frames_of_the_service_are_those_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Any split into increments, empty ones too, any closes, ticks, roll-backs and restarts."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    world = World(tmp_path, engine=LocalEngine)
    world.translators |= {"by_key": ByKey, "by_stretch": ByStretch}
    world.restart()
    world.controller.register(DOCUMENT)
    reference = ReferenceEngine(world.controller.dataflow("two"))
    for _ in range(12):
        step = chance.choice(["arrive", "arrive", "arrive", "close", "tick", "restart", "back"])
        if step == "arrive":
            records = [
                (chance.choice("xyz"), chance.randint(1, 3)) for _ in range(chance.randrange(6))
            ]
            world.arrive("two", "a", *records)
            reference.feed("a", records)
        elif step == "close":
            world.controller.close("two", "a")
            reference.close("a")
        elif step == "tick":
            world.controller.tick()
        elif step == "back":
            there = sum(stage.epoch for stage in world.store.stages("two"))
            goal = str(chance.randint(0, there))
            world.controller.amendments.roll_back("two", goal, who="me", why="a test")
        else:
            world.restart()
            world.controller.recover()
    world.ticks(most=200)
    reference.run_until_idle()
    for flow in ("keys.totals", "stretches.totals", "again.totals"):
        assert epochs_of(world, flow) == reference.outputs(flow), flow
    for stage in ("keys", "stretches", "again"):
        node = world.controller.dataflow("two").stages[stage]
        rows = world.engine.records.read_state(world.store.dataflow("two").folder, node, "sums")
        assert sorted(rows, key=repr) == sorted(reference.state(stage, "sums"), key=repr)
    world.close()
