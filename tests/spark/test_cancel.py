"""A translator that hangs in Spark's Python workers: stopped, and nobody else is held up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.spark.session import with_room
from cbp.model.run.intention import RunStatus
from tests.controller.world import ONE
from tests.spark.hanging_runs import hang_and_give_way, hanging, until, world_of

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_a_hung_run_of_many_records_leaves_room(spark: Any, tmp_path: Path) -> None:
    """Its tasks hang on every processor that Spark plans for; another dataflow runs beside it."""
    gate = tmp_path / "gate"
    world = world_of(spark, tmp_path)
    world.controller.register(hanging("bad", gate))
    world.controller.register({**ONE, "name": "good"})
    world.arrive("bad", "a", *((f"w{n}", n) for n in range(4_500)))
    until(
        world, lambda: len(list(tmp_path.glob("gate.*"))) == spark.sparkContext.defaultParallelism
    )
    world.arrive("good", "a", *((f"w{n}", n) for n in range(4_500)))
    until(world, lambda: world.store.stages("good")[0].epoch == 1)
    assert world.store.stages("bad")[0].epoch == 0
    gate.touch()
    until(world, lambda: world.store.stages("bad")[0].epoch == 1)
    assert len(world.flow("bad", "sum.totals")) == 4_500
    world.close()


@pytest.mark.soak
def test_hung_runs_in_all_slots_give_way(spark: Any, tmp_path: Path) -> None:
    """Two hang in every slot that Spark has: a third dataflow goes on once they are slow.

    The one that gave way hangs again, in half of the slots: the third one runs beside it, and
    once the code no longer hangs both are done, each record once.
    """
    hang_and_give_way(spark, tmp_path, hung=2)


def test_a_hung_translator_is_stopped_and_others_run(spark: Any, tmp_path: Path) -> None:
    """Cancelled by name and by its limit: its workers end, nothing of it is published.

    Another dataflow runs all the while; once it is resumed, the epoch runs again.
    """
    gate = tmp_path / "gate"
    world = world_of(spark, tmp_path)
    world.controller.register(hanging("bad", gate))
    world.controller.register({**ONE, "name": "good"})
    world.arrive("bad", "a", ("x", 1))

    def pids() -> list[int]:
        return [int(path.suffix[1:]) for path in tmp_path.glob("gate.*")]

    def last() -> Any:
        return world.store.runs("bad", limit=1).items[0]

    until(world, pids)
    world.arrive("good", "a", ("x", 1))
    until(world, lambda: world.store.stages("good")[0].epoch == 1)
    world.controller.cancel(last().id)
    until(world, lambda: last().status is RunStatus.FAILED)
    assert last().error["error_code"] == "run_cancelled"
    assert world.flow("bad", "sum.totals") == []
    stuck = pids()
    until(world, lambda: not any(Path(f"/proc/{pid}").exists() for pid in stuck))
    world.parts.runner.run_seconds_max = 60.0
    world.controller.retry("bad", "sum")
    until(world, lambda: set(pids()) - set(stuck))
    world.clock.advance(60)
    until(world, lambda: last().status is RunStatus.FAILED and last().attempt == 2)
    assert last().error["error_code"] == "time_limit"
    gate.touch()
    world.controller.retry("bad", "sum")
    until(world, lambda: world.store.stages("bad")[0].epoch == 1)
    assert [row["n"] for row in world.flow("bad", "sum.totals")] == [1]
    world.close()


@pytest.mark.parametrize(
    ("master", "given", "slots"),
    [("local[2]", "local[4]", "2"), ("local[3,4]", "local[6,4]", "3")],
)
def test_room_is_twice_what_is_planned_for(master: str, given: str, slots: str) -> None:
    """Where Spark runs here; a cluster's slots, and a plain `local`, stay as they are."""
    assert with_room(master) == (given, {"spark.default.parallelism": slots})
    actual, settings = with_room("local[*]")
    assert actual == f"local[{2 * int(settings['spark.default.parallelism'])}]"
    for other in ("local", "spark://host:7077", "local-cluster[2,1,512]"):
        assert with_room(other) == (other, {})
