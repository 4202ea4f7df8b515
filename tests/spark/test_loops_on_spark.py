"""Loops within a run on Spark: delta, bulk, on columns, on arrays; edges come and go.

After each increment states, changes of views and their order are those of the reference engine. On
`local[2]`, and on a cluster of two executors, where the worker, and then the executor, of a run is
killed between two of its supersteps; so is one of the executors of a loop that has two tasks.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from stages.translators.clustering_arrow import ClusteringArrow
from stages.translators.components import Components
from stages.translators.components_arrow import ComponentsArrow
from stages.translators.pagerank_arrow import PageRankArrow
from stages.translators.strong_components_arrow import StrongComponentsArrow
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.fresh import REPOSITORY, run_fresh
from tests.limited import limits_of, with_limits
from tests.loops import Ranks, Waves, loop_of
from tests.nested_loops import PROGRAM, Nested
from tests.spark.killed_workers import AtPassage, KillExecutor, KillOnce
from tests.stages.test_gather import Katz, flow_of
from tests.stages.test_loops_on_arrays import loop_of as on_arrays
from tests.stages.test_propagate import some_edges, spread
from tests.waiting import until

pytestmark = pytest.mark.spark

Epochs = list[dict[str, list[dict[str, Any]]]]
DAYS = 4


def weighted(seed: int) -> Epochs:
    """Return edges of which as many go as come, as records with or without a weight."""
    dice, days = random.Random(seed), list[Any]()
    for _ in range(DAYS):
        days.append(some_edges(dice, days, nodes=20, many=12))
    names = ("src", "dst", "weight")
    return [{"edges": [dict(zip(names, e, strict=True)) for e in day]} for day in days]


def marked(seed: int, *, stays: Any = None) -> Epochs:
    """Return edges that come, and edges of earlier days that are gone."""
    dice, came = random.Random(seed), list[dict[str, Any]]()
    epochs: Epochs = []
    for _ in range(DAYS):
        new = [
            {"src": dice.randrange(12), "dst": dice.randrange(12), "gone": stays} for _ in range(14)
        ]
        gone = [one | {"gone": True} for one in dice.sample(came, len(came) // 3)]
        epochs.append({"edges": [*new, *gone]})
        came += new
    return epochs


def growing(seed: int, name: str) -> Epochs:
    """Return links that come."""
    dice = random.Random(seed)
    return [
        {name: [{"src": dice.randrange(16), "dst": dice.randrange(16)} for _ in range(12)]}
        for _ in range(DAYS - 1)
    ]


def programs(seed: int) -> Epochs:
    """Return programs so long that runs end before nested loops do."""
    dice = random.Random(seed)
    return [
        {
            "programs": [
                {
                    "k": dice.randrange(5),
                    "n": dice.randrange(9),
                    "program": "".join(dice.choices("ymdwt", k=12)),
                }
                for _ in range(6)
            ]
        }
        for _ in range(DAYS - 1)
    ]


Case = tuple[Callable[[], Dataflow], Callable[[int], Epochs], str]
"""A dataflow, its input, and what begins the names of its sources."""

LINKS = "src BIGINT, dst BIGINT"
CASES: dict[str, Case] = {
    "delta": (lambda: spread(Components()), weighted, ""),
    "bulk": (lambda: loop_of(Ranks(), links=LINKS), lambda seed: growing(seed, "links"), "s_"),
    "columns": (lambda: loop_of(Waves(), edges=LINKS), lambda seed: growing(seed, "edges"), "s_"),
    "nested": (lambda: loop_of(Nested(), programs=PROGRAM), programs, "s_"),
    "components": (lambda: on_arrays(ComponentsArrow(changes=False)), marked, ""),
    "strong-components": (lambda: on_arrays(StrongComponentsArrow(changes=False)), marked, ""),
    "pagerank": (lambda: on_arrays(PageRankArrow(error=1e-9, changes=False)), marked, ""),
    "clustering": (lambda: on_arrays(ClusteringArrow(changes=False)), marked, ""),
    "gather": (lambda: flow_of(Katz()), lambda seed: marked(seed, stays=False), ""),
}


@pytest.mark.part(every=4)
@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
@pytest.mark.parametrize("case", CASES)
def test_every_epoch_equals_the_reference(
    case: str, shuffled: bool, spark: Any, tmp_path: Path
) -> None:
    """In one Spark task, whichever way the records came."""
    make, epochs, source = CASES[case]
    engine = DirectEngine(
        SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits_of(shuffled=shuffled)
    )
    driver = Driver(engine, make(), tmp_path / "t")
    assert_same(make(), driver, epochs(3), source=source)
    assert any(figures["jobs_spark"] for figures in driver.figures)


def run_on_cluster(folder: Path, whole: bool) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.spark import SparkEngine, SparkSettings

    settings = SparkSettings(
        master="local-cluster[2,1,1024]",
        loop_tasks_max=2,
        conf={
            "spark.executor.memory": "1g",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        },
    )
    limits = EngineLimits(superstep_log_ms=0)
    engine = SparkEngine(settings, cache=str(folder / "cache"), limits=limits)
    executor: Any = engine._executor
    until(lambda: executor.loop_slots() == 2)
    together, own = with_limits(engine, replace(limits, rows_per_loop_task=2)), folder / "together"
    assert_goes_on(together, own, KillExecutor, "bulk", "supersteps_before", tasks=2)
    for case, (make, epochs, source) in CASES.items() if whole else ():
        driver = Driver(engine, make(), folder / case)
        assert_same(make(), driver, epochs(5), source=source)
        print(case, flush=True)
    for case, figure in (("bulk", "supersteps_before"), ("gather", "notes_before")):
        for killer in (KillOnce, KillExecutor):
            if whole or (case == "bulk") == (killer is KillOnce):
                assert_goes_on(engine, folder / f"{case}-{killer.__name__}", killer, case, figure)
    engine.close()
    print("equal")


def assert_goes_on(
    engine: Any, folder: Path, killer: type[KillOnce], case: str, figure: str, *, tasks: int = 1
) -> None:
    """A task that died after a superstep goes on from its log, and the epoch is the reference's.

    If there are several tasks, so do all others.
    """
    make, epochs, source = CASES[case]
    folder.mkdir()
    marker = folder / "struck"
    driver = Driver(engine, make(), folder / "t")
    engine.preparer.faults = AtPassage(killer("superstep.after", str(marker)), 5, [])
    assert_same(make(), driver, epochs(7)[:2], source=source)
    assert marker.exists()
    assert [run.get(figure) for run in driver.figures] == [4, None], driver.figures
    assert driver.figures[0]["tasks"] == tasks, driver.figures


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_on_a_cluster_a_loop_goes_on_after_a_kill(whole: bool, tmp_path: Path) -> None:
    """A worker is killed, and an executor; all loops are the reference's there."""
    run_fresh("tests.spark.test_loops_on_spark", tmp_path, int(whole))


if __name__ == "__main__":
    from tests.spark import test_loops_on_spark  # workers know its classes by this name

    test_loops_on_spark.run_on_cluster(Path(sys.argv[1]), sys.argv[2] == "1")
