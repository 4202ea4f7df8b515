"""Runs that hang in all slots."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cbp import Input, Loopback, Translate, View
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.parallel_runs import STARVED_SECONDS
from controller.loop.runs.threads import Threads
from tests import waiting
from tests.controller.world import ONE, Sum, World
from tests.waiting import looks, wait_for_file


class Stuck(Sum):
    """Waits, in the worker, until a file is there."""

    def __init__(self, gate: str) -> None:
        self._gate = gate

    def translate(self, key: Any, group: Any, out: Any) -> None:
        Path(f"{self._gate}.{os.getpid()}").touch()
        wait_for_file(Path(self._gate))
        super().translate(key, group, out)


class Turning(Translate):
    """Hand a number on from key to key; at 5, wait until a file is there.

    Args:
        gate: The file. Each process that calls it leaves its number beside it.
    """

    items = Input("k BIGINT, n BIGINT", route_by="k")
    on = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=100)
    calls = View("k BIGINT, calls BIGINT", key="k")

    def __init__(self, gate: str) -> None:
        self._gate = gate

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Wait, hand on what came, and count."""
        Path(f"{self._gate}.{os.getpid()}").touch()
        for one in (*group.items, *group.on):
            if one.n == 5:
                Path(f"{self._gate}-waits").touch()
                waiting.until(Path(self._gate).exists)
            if one.n:
                out.on(key.k + 1, one.n - 1)
        out.calls(key.k, 1 + sum(row.calls for row in group.calls))


def world_of(spark: Any, folder: Path) -> World:
    """Return a service on the session of the test run, with a translator that hangs."""
    world = World(
        folder / "w",
        executor=Threads("run"),
        engine=lambda **options: DirectEngine(SparkExecutor(spark), cache=options["cache"]),
    )
    world.translators["stuck"] = Stuck
    world.restart()
    return world


def hanging(name: str, gate: Path) -> dict[str, Any]:
    """Return a dataflow whose tasks hang until the gate is there."""
    document = {**copy.deepcopy(ONE), "name": name}
    document["stages"]["sum"] |= {"translator": "stuck", "parameters": {"gate": str(gate)}}
    return document


def until(world: World, condition: Callable[[], Any]) -> None:
    """Tick until it holds; runs end on threads of their own."""
    for _ in looks(lambda: world.store.runs().items, pause_seconds=0):
        if condition():
            return
        world.controller.tick()
        world.controller.wait(0.05)


def hang_and_give_way(spark: Any, folder: Path, *, hung: int) -> None:
    """Let so many dataflows take all slots of a session and hang there; see the tests.

    Each takes as many slots as Spark plans for; a local one has twice as many.
    """
    slots = hung * spark.sparkContext.defaultParallelism
    bad = [f"bad{number}" for number in range(hung)]
    world = world_of(spark, folder)
    many = [(f"w{n}", n) for n in range(4_500)]
    for name in bad:
        world.controller.register(hanging(name, folder / "gate"))
        world.arrive(name, "a", *many)
    world.controller.register({**ONE, "name": "good"})

    def busy() -> int:
        pids = [int(path.suffix[1:]) for path in folder.glob("gate.*")]
        return sum(Path(f"/proc/{pid}").exists() for pid in pids)

    until(world, lambda: busy() == slots)
    world.arrive("good", "a", *many)
    world.clock.advance(120)
    until(world, lambda: world.store.runs("good").items)
    until(world, lambda: world.engine.control.starved([world.store.runs("good").items[0].id]))
    world.controller.tick()
    world.clock.advance(STARVED_SECONDS)
    until(world, lambda: world.store.stages("good")[0].epoch == 1)
    failed = world.store.runs(status=RunStatus.FAILED).items
    assert [(run.error or {})["error_code"] for run in failed] == ["run_gave_way"]
    gave_way = failed[0].dataflow
    until(world, lambda: len(world.store.runs(gave_way).items) == 2)
    until(world, lambda: busy() == slots - 1)
    world.arrive("good", "a", *many)
    until(world, lambda: world.store.stages("good")[0].epoch == 2)
    assert (
        "uses at most half of the engine's slots" in world.controller.waits(gave_way)["sum"].words
    )
    (folder / "gate").touch()
    until(world, lambda: all(world.store.stages(name)[0].epoch == 1 for name in bad))
    assert [len(world.flow(name, "sum.totals")) for name in bad] == hung * [4_500]
    world.close()
