"""What a task of a plan writes down about its records, and who reads it.

A plan's task reads its increment once, every record is one task's, and a group's records come
together.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.engine.direct import DirectEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.shuffle import replicated_read as arrange
from cbp.engine.spark.sql.task_input import TaskInput
from cbp.engine.spark.sql.task_plans import with_called_keys
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.stage_task import arranged_batches
from cbp.engine.task.task_plan import TaskPlan
from tests.driver import Driver

TASKS = 2
KEYS = ["", "a", "b", "ab", "ä", None]


class Pairs(Translate):
    """Two inputs with one key and other columns; only its inputs matter."""

    left = Input("n BIGINT, url STRING", route_by="url")
    right = Input("url STRING, at DOUBLE, n BIGINT", route_by="url")
    seen = State("url STRING, n BIGINT")
    out = Output("url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


class Noting(LocalExecutor):
    """Notes what tasks are given."""

    task: TaskPlan

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the tasks."""
        self.task = task
        return super().execute(plan, task)


@pytest.fixture
def task(tmp_path: Path) -> TaskPlan:
    """Return the plan of a run that read some records of both inputs, as that of two tasks."""
    builder = DataflowBuilder("pairs")
    sources: dict[str, Any] = {
        spec.name: builder.source(spec.name, str(spec.schema)) for spec in Pairs().spec().inputs
    }
    builder.stage("stage", Pairs(), buckets=4, **sources)
    executor = Noting()
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    driver = Driver(engine, builder.build(), tmp_path / "t")
    driver.feed("left", [{"n": n, "url": KEYS[n % 6]} for n in range(40)])
    driver.feed("right", [{"url": KEYS[n % 4], "at": n / 2, "n": None} for n in range(9)])
    driver.run_until_idle()
    return replace(executor.task, tasks=TASKS)


def rows_of(own: TaskInput, input_: str) -> list[dict[str, Any]]:
    """Return an input's records of a task."""
    return [row for batch in own.records(input_) for row in batch.to_pylist()]


def test_every_record_is_one_tasks_and_groups_come_together(task: TaskPlan) -> None:
    """All columns of all inputs, in their order; keys as a plan of keys alone would read them."""
    expected: dict[str, list[dict[str, Any]]] = {
        "left": [{"n": n, "url": KEYS[n % 6]} for n in range(40)],
        "right": [{"url": KEYS[n % 4], "at": n / 2, "n": None} for n in range(9)],
    }
    parts = [TaskInput(task, part, "job") for part in range(TASKS)]
    for input_, records in expected.items():
        actual = [rows_of(own, input_) for own in parts]
        assert all(actual), "both tasks have some"
        assert sorted(map(repr, actual[0] + actual[1])) == sorted(map(repr, records))
        urls = [[row["url"] for row in rows] for rows in actual]
        assert not set(urls[0]) & set(urls[1])
        for one in urls:
            changes = sum(a != b for a, b in pairwise(one))
            assert changes == len(set(one)) - 1, "a group's records are neighbors"
    for own in parts:
        keys = pa.Table.from_batches(own.keys())
        alone = arranged_batches(with_called_keys(task), own.part)
        assert keys.equals(pa.Table.from_batches(alone))
        for flow in (0, 1):
            mine = keys.filter(np.asarray(keys.column("_flow")) == flow)
            hashes = mine.column("_hash").to_numpy().view(np.uint64)
            assert np.all(hashes[1:] >= hashes[:-1])


def test_wide_records_go_to_the_plan_a_few_at_a_time(task: TaskPlan) -> None:
    """The JVM holds a batch as a whole, so a batch is bounded by bytes too; the order stays."""
    own = TaskInput(task, 0, "job")
    expected = rows_of(own, "left")
    own = replace(own, plan=replace(task, limits=EngineLimits(jvm_batch_bytes=60)))
    batches = list(own.records("left"))
    assert len(batches) > 3
    assert max(batch.nbytes for batch in batches) <= 60
    assert [row for batch in batches for row in batch.to_pylist()] == expected
    own.forget()


def test_records_are_read_once_per_task(task: TaskPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that asks reads the files; once forgotten, nothing is left of it."""
    read: list[str] = []
    reading = arrange.read_input

    def noting(files: Any, input_: Any) -> pa.Table:
        read.append(input_.name)
        return reading(files, input_)

    monkeypatch.setattr(arrange, "read_input", noting)
    own = TaskInput(task, 0, "job")
    first = rows_of(own, "right")
    assert read == ["left", "right"]
    assert rows_of(TaskInput(task, 0, "job"), "right") == first
    assert len(list(own.keys())) == 2
    assert read == ["left", "right"]
    assert rows_of(TaskInput(task, 1, "job"), "right") != first
    assert rows_of(TaskInput(task, 0, "other"), "right") == first
    assert len(read) == 6
    for part, job in ((0, "job"), (1, "job"), (0, "other")):
        TaskInput(task, part, job).forget()
    assert not list(Path(task.cache).parent.rglob("*.own"))
    assert rows_of(own, "right") == first
    own.forget()


def test_without_increments_there_are_no_records(task: TaskPlan) -> None:
    """Groups may be called for their state alone."""
    own = TaskInput(replace(task, inputs={}), 0, "job")
    assert not rows_of(own, "left")
    assert not list(own.keys())
    assert not list(Path(task.cache).parent.rglob("*.own"))
