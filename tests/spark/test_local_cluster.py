"""The same flows on a cluster of two executor processes, shuffled.

On `local[n]` the records of a group arrive in one order by luck; on a cluster they come
from several map tasks in any order. So every increment has several files, each read by a
map task of its own, and two tasks work on it; the last test of a long run takes the position
out of the order, and expects other results. A process of its own, because a session's master
cannot be changed.

`CBP_CLUSTER_RUNS` repeats that with other records. The default run plays what only a cluster can
break; the others (`-m soak`) go through all forms, and all kinds of destinations and of state.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import REPOSITORY, run_fresh

RUNS = int(os.environ.get("CBP_CLUSTER_RUNS", "2"))
FILES = 8
"""Files of an increment of a source; a map task of its own reads each."""

SHUFFLED = (
    ("sequences", "groupwise"),
    ("members", "groupwise"),
    ("sequences", "arrow"),
    ("members", "arrow"),
    ("tags", "groupwise"),  # several keys of a record
    ("board", "groupwise"),  # outer state, multicast, records for all
    ("outer_probe", "groupwise"),
    ("outer_shelf", "groupwise"),
    ("outer_shelf", "arrow"),
)
"""Flows whose results show the order within their groups, and their forms; in each of several
runs. One run alone has records of several increments, each from several files."""

ARRANGED = (("sequences", "groupwise"), ("sequences", "arrow"), ("split", "groupwise"))
"""Flows that every task reads for itself; in each of several runs."""

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600 + 300 * RUNS)]


def run_on_cluster(folder: Path, runs: int) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.spark import SparkEngine, SparkSettings
    from cbp.engine.storage.engine_limits import EngineLimits

    settings = SparkSettings(
        master="local-cluster[2,1,1024]",
        conf={
            "spark.executor.memory": "1g",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
            # A map task for every file or two, so that their order is not the files' order.
            "spark.sql.files.maxPartitionBytes": "2000",
            "spark.sql.files.openCostInBytes": "0",
            # On a busy machine a task takes longer than the product would wait.
            "spark.locality.wait": "30s",
        },
    )
    limits = EngineLimits(rows_per_task=20, rows_per_task_sql=20)
    engine = SparkEngine(settings, cache=str(folder / "cache"), limits=limits)
    for seed in range(runs):
        own = folder / str(seed)
        forms = 1 if runs == 1 else 2
        assert_increments_in_order(engine, own / "came", seed, framed=False, forms=forms)
        if runs > 1:
            assert_also_ordered(engine, own, seed)
        print(f"seed {seed}", flush=True)
    for form in ("groupwise", "arrow") if runs > 1 else ():
        assert_order_is_not_by_luck(engine, folder, form)
    assert_tasks_come_back(engine, 3 if runs == 1 else 10)
    engine.close()
    print("equal")


def assert_also_ordered(engine: Any, folder: Path, seed: int) -> None:
    """So it is in all forms, and with every kind of destination and of state."""
    for case, form in SHUFFLED:
        assert_ordered(engine, folder / f"{case}-{form}", case, form, seed, shuffled=True)
    for case, form in ARRANGED:
        assert_ordered(engine, folder / f"{case}-{form}-a", case, form, seed, shuffled=False)
    assert_tasks_read_their_messages(engine, folder / "letters", seed)
    assert_increments_in_order(engine, folder / "frames", seed, framed=True)
    assert_sql_is_the_same(engine, folder / "sql", seed)


def assert_ordered(
    engine: Any,
    folder: Path,
    case: str,
    form: str,
    seed: int,
    *,
    shuffled: bool,
) -> None:
    """A flow's results and their order are the reference's, by several map and reduce tasks."""
    from tests.cbp.engine.epochs import assert_same, dataflow_of
    from tests.cbp.engine.vectorised.arrow_forms import in_arrow
    from tests.driver import Driver
    from tests.spark.spark_epochs import epochs_of

    dataflow = dataflow_of(case)
    other = in_arrow(dataflow) if form == "arrow" else dataflow
    engine = reading_up_to(0 if shuffled else 10**6, engine)
    driver = Driver(engine, other, folder, files=FILES)
    try:
        assert_same(dataflow, driver, epochs_of(case, seed=seed, records=200))
    except AssertionError as exc:
        exc.add_note(f"{case}, {form}, seed {seed}, {shuffled=}")
        raise
    assert_several(driver)


def assert_several(driver: Any) -> None:
    """Every increment of a source lay in several files, and two tasks worked on each."""
    for source in driver.dataflow.sources:
        assert {len(one.files) for one in driver.increments[source]} == {FILES}
    assert max(run["tasks"] for run in driver.figures) == 2, driver.figures


def reading_up_to(records: int, engine: Any, **changed: int) -> Any:
    """Return the engine, but Spark shuffles whatever has more records times tasks."""
    limits = replace(engine._beside.keywords["limits"], arranged_reads=records, **changed)
    return engine._beside(limits=limits)


def assert_increments_in_order(
    engine: Any, folder: Path, seed: int, *, framed: bool, forms: int = 2
) -> None:
    """Each group gets the records of three increments, or frames, as they were fed."""
    from cbp import DataflowBuilder
    from cbp.engine.reference.engine import ReferenceEngine
    from tests import flows
    from tests.cbp.engine.epochs import order_free
    from tests.cbp.engine.vectorised.arrow_forms import in_arrow
    from tests.driver import Driver

    builder, translator = DataflowBuilder("came"), flows.Arrivals()
    translator = flows.FramedArrivals() if framed else translator
    items = builder.source("items", "k BIGINT, day INT NOT NULL, n BIGINT")
    builder.stage("stage", translator, buckets=4, items=items)
    dataflow = builder.build()
    chance, numbers, reference = random.Random(seed), itertools.count(), ReferenceEngine(dataflow)
    engine = reading_up_to(0, engine)
    drivers = [
        Driver(engine, form, folder / str(at), files=FILES)
        for at, form in enumerate((dataflow, in_arrow(dataflow))[:forms])
    ]
    fed: list[Any] = [*drivers, reference]
    for _ in range(6):
        rows = [
            {"k": chance.randrange(9), "day": chance.randrange(2), "n": next(numbers)}
            for _ in range(100)
        ]
        for one in fed:
            one.feed("items", rows)
    for one in fed:
        one.run_until_idle()
    for driver in drivers:
        assert_several(driver)
        epochs = driver.outputs("stage.seen")
        assert epochs == reference.outputs("stage.seen"), f"{seed=}, {framed=}"
        mine, theirs = (order_free(one.state("stage", "last")) for one in (driver, reference))
        assert mine == theirs, f"{seed=}, {framed=}"
        assert len(epochs) > 1
        assert framed or all(
            row["came"] == sorted(row["came"]) for epoch in epochs for row in epoch
        )


def assert_sql_is_the_same(engine: Any, folder: Path, seed: int) -> None:
    """Stages in SQL, with inner and with outer state, hold and give what the groupwise ones do."""
    from tests.cbp.engine.epochs import assert_same
    from tests.driver import Driver
    from tests.spark.sql_dataflows import dataflow_of, records_of
    from tests.sql_forms import PAIRS

    pairs = [PAIRS[name] for name in ("bag", "clock")]
    groupwise, in_sql = (dataflow_of(*(one() for one in form)) for form in zip(*pairs, strict=True))
    engine = reading_up_to(10**6 if seed % 2 else 0, engine)  # in parts, or shuffled
    driver = Driver(engine, in_sql, folder, files=FILES)
    epochs = records_of(groupwise, seed=seed, epochs=2)
    assert_same(groupwise, driver, epochs, ordered=False, source="r")
    assert_several(driver)


def assert_order_is_not_by_luck(engine: Any, folder: Path, form: str) -> None:
    """Without the position in its order the shuffle gives other results: the tests would see it."""
    from cbp.engine.shuffle.layout import ShuffleLayout

    layout: Any = ShuffleLayout
    whole = layout.sort_columns
    layout.sort_columns = property(lambda self: tuple(c for c in whole.fget(self) if c != "_seq"))
    try:
        with pytest.raises(AssertionError, match="epoch 0"):
            assert_ordered(engine, folder / f"luck-{form}", "sequences", form, 0, shuffled=True)
    finally:
        layout.sort_columns = whole


def assert_tasks_read_their_messages(engine: Any, folder: Path, seed: int) -> None:
    """Messages that lie by bucket are read in place by both executors, in the reference's order."""
    from tests.cbp.engine.epochs import assert_same
    from tests.cbp.engine.letters import letters, many
    from tests.driver import Driver

    engine = reading_up_to(0, engine, message_rows_min=1)
    driver = Driver(engine, letters(), folder, files=FILES)
    assert_same(letters(), driver, [{"items": many(seed), "notes": []}])
    assert any(run.get("messages_remote") for run in driver.figures)
    assert driver.figures[1]["tasks"] > 1


def assert_tasks_come_back(engine: Any, rounds: int) -> None:
    """Every task of each two jobs runs where it ran before, and both executors have work."""
    executor = engine._executor
    seen = set()
    for tasks in (4, 2) * rounds:
        where = tuple(int(number) for number in executor._run_numbered(tasks, _executor_process))
        seen.add((tasks, where))
    assert len(seen) == 2, seen
    for tasks, where in seen:
        assert len(set(where)) == 2, seen
        assert list(where) == [where[0]] * (tasks // 2) + [where[-1]] * (tasks // 2), seen


def _executor_process() -> list[str]:
    return [str(os.getppid())]


@pytest.mark.parametrize("runs", [1, pytest.param(max(RUNS, 2), marks=pytest.mark.soak)])
def test_results_and_order_equal_the_reference(runs: int, tmp_path: Path) -> None:
    """Two executors that share only the folder give the reference's results, in its order.

    In every form, from several files and increments; without the position of a record they
    would not. Tasks come back to the executor that has their index copies.
    """
    run_fresh("tests.spark.test_local_cluster", tmp_path, runs)


if __name__ == "__main__":
    from tests.spark import test_local_cluster  # workers know its functions by this name

    test_local_cluster.run_on_cluster(Path(sys.argv[1]), int(sys.argv[2]))
