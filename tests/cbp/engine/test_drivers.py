"""Two of whatever should be one: two drivers of a stage, two attempts of a task.

Two drivers run one epoch: one stops, and nothing is doubled; a task that ran twice counts once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.storage.files import LocalFiles
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import LogConflictError
from cbp.model.run.intention import Intention
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.driver import Driver

EPOCHS = 8
RECORDS = [{"url": f"u{i % 13}"} for i in range(60)]


class _Log(IntentionLog):
    """Puts at the same moment as the other process; a loser goes on with the winner's record."""

    def __init__(self, folder: str, barrier: Barrier) -> None:
        super().__init__(folder, LocalFiles())
        self.barrier, self.lost = barrier, 0

    def put(self, intention: Intention) -> None:
        self.barrier.wait(timeout=60)
        super().put(intention)


def _drive(folder: str, name: str, barrier: Barrier) -> None:
    """Run every epoch beside the other process; write down how often this one was second."""
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), dataflow_of("url_count"), Path(folder))
    log = _Log(driver.folder, barrier)
    driver.log = log
    driver.runs = (int(f"{ord(name)}{at}") for at in range(EPOCHS))  # type: ignore[assignment]
    for epoch in range(EPOCHS):
        driver.feed("s_urls", RECORDS)
        try:
            driver.run("stage")
        except LogConflictError:
            log.lost += 1
            winner = log.read("stage", epoch)
            assert winner is not None
            driver.unpublished["stage"] = [winner]
            driver.publish()
            connector = driver.connectors["stage"]["urls"]
            driver.connectors["stage"]["urls"] = connector.after((epoch,), (epoch,))
            driver.epochs["stage"] += 1
    Path(folder, name).write_text(json.dumps(log.lost))


def test_of_two_drivers_of_an_epoch_one_stops_and_nothing_is_doubled(tmp_path: Path) -> None:
    """One gets `log_conflict` per epoch; tables hold each record once, from the winner's files.

    (1) both prepare epoch n (2) both put its record, one wins (3) both publish the winner's.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    drivers = [context.Process(target=_drive, args=(str(tmp_path), name, barrier)) for name in "ab"]
    for process in drivers:
        process.start()
    for process in drivers:
        process.join(timeout=120)
        assert process.exitcode == 0
    assert sum(json.loads((tmp_path / name).read_text()) for name in "ab") == EPOCHS
    after = Driver(LocalEngine(cache=f"{tmp_path}/cache"), dataflow_of("url_count"), tmp_path)
    actual = {row["url"]: row["n"] for row in after.state("stage", "counts")}
    assert actual == {url: n * EPOCHS for url, n in Counter(r["url"] for r in RECORDS).items()}
    runs = {record.run for record in after.log.since("stage", 0)}
    for table in ("state/stage.counts", "flows/stage.totals"):
        live = open_table(str(tmp_path / table), LocalFiles()).snapshot.live
        assert {path.split("-")[-2] for path in live} <= runs


class TwiceExecutor(LocalExecutor):
    """Runs every task twice, as speculation does when both attempts end; one is counted."""

    def __init__(self, counted: int) -> None:
        super().__init__()
        self.counted = counted

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        actual: list[TaskReport] = []
        for part in range(task.tasks):
            attempts = [StageTask(task, part, f"{at}").run_arranged() for at in range(2)]
            actual += attempts[self.counted]
        return actual


@pytest.mark.parametrize("counted", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("case", ["sequences", "members", "clock"])
def test_a_task_that_ran_twice_counts_once(case: str, counted: int, tmp_path: Path) -> None:
    """Whichever attempt is taken: the reference's results, and no live file of the other."""
    from tests.spark.spark_epochs import epochs_of

    engine = DirectEngine(TwiceExecutor(counted), cache=str(tmp_path / "cache"))
    dataflow = dataflow_of(case)
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, epochs_of(case, seed=5))
    written = [path.name for path in (tmp_path / "t").rglob("_runs/**/*.parquet")]
    assert {name.rsplit("-", 1)[1] for name in written} == {"0.parquet", "1.parquet"}
    for table in (tmp_path / "t").glob("*/stage.*"):
        live = open_table(str(table), LocalFiles()).snapshot.live
        assert all(path.endswith(f"-{counted}.parquet") for path in live)
        assert os.listdir(table / "_runs")
