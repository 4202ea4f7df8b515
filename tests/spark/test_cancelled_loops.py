"""A loop in two tasks of a barrier stage that is cancelled while one waits for the other.

On `local[2]`; on a cluster, and by a service that is stopped:
tests/system/test_loops_on_a_cluster.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.barrier_stage import BarrierJobs
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import RunCancelledError
from cbp.model.run.intention import RunStatus
from controller.loop.runs.threads import Threads
from tests.controller.world import World
from tests.limited import limits_of
from tests.loops import loop_of
from tests.spark.hanging_runs import Turning, until
from tests.spark.test_loops_in_barriers import driver_of

pytestmark = pytest.mark.spark

SCHEMA = "k BIGINT, n BIGINT"
STEPS = 20
ITEMS = [(0, STEPS), *((k, 0) for k in range(1, 9))]


def world_of(executor: SparkExecutor, folder: Path) -> World:
    """Return a service whose loops have two tasks, and log each superstep."""
    limits = limits_of(shuffled=False, rows_per_loop_task=2, superstep_log_ms=0)
    world = World(
        folder / "w",
        executor=Threads("run"),
        engine=lambda **options: DirectEngine(executor, cache=options["cache"], limits=limits),
    )
    world.translators["turning"] = Turning
    world.restart()
    return world


def test_a_cancelled_loop_frees_its_slots(spark: Any, tmp_path: Path) -> None:
    """Both of its processes end, the one that hangs and the one that waits for it.

    A pause lets it turn. The next try goes on from its log, in two tasks.
    """
    gate, executor = tmp_path / "gate", SparkExecutor(spark, loop_tasks_max=2)
    world = world_of(executor, tmp_path)
    stage = {"translator": "turning", "inputs": {"items": "a"}, "parameters": {"gate": str(gate)}}
    document = {"name": "bad", "sources": {"a": {"schema": SCHEMA}}, "stages": {"loop": stage}}
    world.controller.register(document)

    def last() -> Any:
        return world.store.runs("bad", limit=1).items[0]

    until(world, lambda: executor.loop_slots() == 2)
    world.arrive("bad", "a", *ITEMS)
    until(world, (tmp_path / "gate-waits").exists)
    stuck = [int(path.suffix[1:]) for path in tmp_path.glob("gate.*")]
    assert len(stuck) == 2
    world.controller.pause("bad")
    world.controller.tick()
    assert last().status is RunStatus.INTENDED
    world.controller.cancel(last().id)
    until(world, lambda: last().status is RunStatus.FAILED)
    assert last().error["error_code"] == "run_cancelled"
    until(world, lambda: not any(Path(f"/proc/{pid}").exists() for pid in stuck))
    until(world, lambda: not executor._barriers.running())
    assert world.flow("bad", "loop.calls") == []
    gate.touch()
    world.controller.resume("bad")
    world.controller.retry("bad", "loop")
    until(world, lambda: world.store.stages("bad")[0].epoch == 1)
    assert (last().figures["tasks"], last().figures["supersteps"]) == (2, STEPS + 1)
    assert last().figures["supersteps_before"] > 0
    calls = [row["calls"] for row in world.flow("bad", "loop.calls")]
    assert sorted(calls) == [1] * (STEPS - 7) + [2] * 8
    world.close()


def test_a_cancel_that_spark_missed_is_repeated(spark: Any, tmp_path: Path) -> None:
    """Spark forgets one that comes while it does not know the job yet, and would run it."""
    executor = SparkExecutor(spark, loop_tasks_max=2)

    class Early(BarrierJobs):
        def arranged(self, task: TaskPlan, kind: type[StageTask]) -> list[str]:
            executor.cancel(task.run)
            return super().arranged(task, kind)

    executor._barriers = Early(spark.sparkContext, executor._placement)
    flow = loop_of(Turning(str(tmp_path / "gate")), items=SCHEMA)
    driver = driver_of(executor, flow, tmp_path)
    driver.feed("s_items", [{"k": k, "n": n} for k, n in ITEMS])
    with pytest.raises(RunCancelledError):
        driver.run_until_idle()
