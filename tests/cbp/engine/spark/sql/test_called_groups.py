"""What a task of a plan writes down about its called groups, and who reads it.

A plan's task looks its state up once, whatever the plan asks for; a scratch file is whole or not
there.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.direct import DirectEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.kernel.arrow.groups import Groups
from cbp.engine.kernel.arrow.reader import Call
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.spark.sql.called_groups import CallsFile, read_called
from cbp.engine.spark.sql.lookup_task import LookUpTask
from cbp.engine.spark.sql.settle_task import SettleTask
from cbp.engine.spark.sql.task_input import TaskInput
from cbp.engine.spark.sql.task_plans import with_results
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.flow.schema import DataType
from tests.cbp.engine.epochs import NARROW, assert_same, dataflow_of
from tests.driver import Driver

STATE = "seen"
URLS = ["", "a", "b", "ab", "ä", "z" * 300, None]


def call_of(keys: list[str], sizes: list[int]) -> Call:
    """Make a call of some groups, each with so many records of the state `seen`."""
    offsets = np.cumsum([0, *sizes])
    rows = int(offsets[-1])
    records = pa.table({"k": pa.array(["x"] * rows, pa.large_string()), "n": np.arange(rows)})
    hashes = np.arange(10, 10 + len(keys))
    places = np.repeat(hashes, sizes), np.arange(rows) % 2, np.arange(rows)[::-1].copy()
    table = pa.table({"k": pa.array(keys, pa.large_string())})
    return Call(
        Groups(table, {"seen": (records, offsets)}), hashes, {"seen": RecordPositions(*places)}
    )


@pytest.mark.parametrize(
    ("called", "expected"),
    [(None, [0, 1, 2]), ([0, 2], [2]), ([1], [0, 1]), ([0], []), ([], []), ([0, 1, 2], [0, 1, 2])],
)
def test_a_plan_reads_the_records_of_called_groups(
    called: list[int] | None, expected: list[int]
) -> None:
    """Groups that a run only looks at because of their age are hidden from the author's plan."""
    every = call_of(["a", "b", "c"], [0, 2, 1])
    call = replace(every, called=None if called is None else np.array(called, np.int64))
    assert call.called_records(STATE).column("n").to_pylist() == expected


def test_calls_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Keys, hashes, state, its groups and places, by bucket and in order; and the figures."""
    written = [
        ((3, 4), call_of(["a", "b", "c"], [0, 2, 1])),
        ((3, 4), call_of(["d"], [0])),
        ((5,), call_of([], [])),
    ]
    file = CallsFile(tmp_path / "x.called", ["seen"])
    for buckets, call in written:
        file.write(buckets, call)
    file.finish({"bytes_read": 7, "records_in.urls": 4})
    file.close()
    actual = read_called(tmp_path / "x.called", ["seen"])
    assert actual is not None
    assert actual.figures == {"bytes_read": 7, "records_in.urls": 4}
    assert actual.hashes((3, 4)).tolist() == [10, 11, 12, 10]
    assert actual.hashes((4,)).tolist() == []
    every = [(some, call) for some in actual.calls for call in actual.calls[some]]
    for (buckets, call), (other, read) in zip(written, every, strict=True):
        assert buckets == other
        assert read.groups.keys.equals(call.groups.keys)
        assert getattr(read.groups, STATE).equals(getattr(call.groups, STATE))
        assert read.groups.offsets("seen").tolist() == call.groups.offsets("seen").tolist()
        for name in ("hashes", "file", "position"):
            mine, theirs = (getattr(one.origins["seen"], name) for one in (read, call))
            assert mine.tolist() == theirs.tolist()


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """Nobody reads calls that are still being written, and a task that dies leaves none."""
    path = tmp_path / "x.called"
    file = CallsFile(path, ["seen"])
    file.write((3,), call_of(["a"], [1]))
    assert read_called(path, ["seen"]) is None
    file.close()
    assert list(tmp_path.iterdir()) == []


class PlanExecutor(LocalExecutor):
    """Does what a plan of Spark does for `UrlCount`, in each task by itself.

    It asks for the state `asks` times, and gives results in no order; counts are dropped
    where they reach `most`.

    Attributes:
        searched: How often a bucket's files were searched, per task.
    """

    def __init__(self, *, asks: int, most: int = 1_000) -> None:
        super().__init__()
        self.asks, self.most = asks, most
        self.searched: list[int] = []

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run look-up, plan and settling of every task."""
        return [d for part in range(task.tasks) for d in self._part(plan, task, part)]

    def _part(self, plan: RunPlan, task: TaskPlan, part: int) -> list[TaskReport]:
        own = TaskInput(task, part, f"{plan.run}-job")
        states = []
        for _ in range(self.asks):
            look_up = LookUpTask.of(own)
            states.append(pa.Table.from_batches(look_up.own_records("counts"), _SCHEMA))
            self.searched.append(int(look_up.counts["bytes_read"] > 0))
        assert all(state.equals(states[0]) for state in states)
        counts = Counter(_urls(own))
        if states:
            counts.update(dict(zip(*(c.to_pylist() for c in states[0].columns), strict=True)))
        given = {"counts": "counts", "totals": "counts"}
        settled = with_results(task, ["counts"], keys=False)
        batches = _unordered(settled, {k: n for k, n in counts.items() if n < self.most})
        again = LookUpTask.of(own)
        return SettleTask(settled, part, "0", given=given, look_up=again).run(batches)


def _urls(own: TaskInput) -> Iterator[str | None]:
    for batch in own.records("urls"):
        yield from batch.column("url").to_pylist()


_SCHEMA = pa.schema([("url", pa.string()), ("n", pa.int64())])


def _hashes(task: TaskPlan, urls: Any) -> Any:
    actual = hash_columns([urls.combine_chunks()], [DataType("STRING")])
    return (actual & np.int64(task.hash_mask)).view(np.uint64)


def _unordered(task: TaskPlan, counts: dict[str | None, int]) -> Iterator[pa.RecordBatch]:
    """Yield results in the layout of the settling task, some at a time, last ones first."""
    urls = pa.chunked_array([pa.array(list(counts)[::-1], pa.string())])
    hashes = _hashes(task, urls)
    buckets = (hashes >> np.uint64(bucket_shift(task.buckets))).astype(np.int32)
    columns = {
        "_flow": np.zeros(len(counts), np.int8),
        "_bucket": buckets,
        "_hash": hashes.view(np.int64),
        "k0": urls,
        "p0": pa.array(list(counts.values())[::-1], pa.int64()),
        "_seq": np.zeros(len(counts), np.int64),
    }
    yield from pa.table(columns).to_batches(max_chunksize=3)


def epochs() -> list[dict[str, list[dict[str, Any]]]]:
    """Return epochs of URLs that come again, one of them empty."""
    chance = np.random.default_rng(7)
    some = [[{"url": URLS[at]} for at in chance.integers(0, len(URLS), 9)] for _ in range(3)]
    return [{"urls": rows} for rows in (*some, [], some[0])]


@pytest.mark.parametrize("asks", [0, 1, 2])
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_what_a_plan_gives_is_settled_like_groups(
    asks: int, hash_mask: int, tmp_path: Path
) -> None:
    """Whether or not a plan asks for its state, results in no order give the same tables."""
    limits = EngineLimits(call_rows=3, rows_per_task=1, spool_bytes=200)
    executor = PlanExecutor(asks=asks)
    cache = str(tmp_path / "cache")
    engine = DirectEngine(executor, cache=cache, hash_mask=hash_mask, limits=limits)
    dataflow = dataflow_of("url_count")
    driver = Driver(engine, dataflow, tmp_path / "t")
    # Who does not ask for what was counted before counts from the beginning.
    some = epochs() if asks else epochs()[:1]
    assert_same(dataflow, driver, some, ordered=False)
    assert not list((tmp_path / "cache").rglob("*.called"))


@pytest.mark.parametrize("fails", ["open", "write", "rename", "map"])
def test_without_room_to_write_it_down_groups_are_looked_up_again(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache without space, or maps, slows a run down; it does not fail, and leaves no file."""
    executor = PlanExecutor(asks=2)
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow_of("url_count"), tmp_path / "t")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    opened = pa.OSFile
    if fails == "open":

        def scarce(path: str, mode: str) -> Any:
            return full() if path.endswith(".tmp") else opened(path, mode)

        monkeypatch.setattr(pa, "OSFile", scarce)
    elif fails == "write":
        monkeypatch.setattr(pa.ipc, "new_stream", full)
    elif fails == "rename":
        monkeypatch.setattr(Path, "rename", full)
    else:
        monkeypatch.setattr("cbp.engine.spark.sql.scratch_files.pa.memory_map", full)
    assert_same(driver.dataflow, driver, epochs(), ordered=False)
    assert driver.figures[-1]["records_in"] == 9
    assert not list((tmp_path / "cache").rglob("*.called"))
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_scratch_files_that_are_left_over_go_when_they_are_old(tmp_path: Path) -> None:
    """A killed worker leaves one; the next tasks of the machine remove it, but no new one."""
    cache = IndexCache(str(tmp_path))
    for name in ("old", "new"):
        path = cache.scratch(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    os.utime(cache.scratch("old"), (0, 0))
    cache.tidy_scratch()
    assert not cache.scratch("old").exists()
    assert cache.scratch("new").exists()


def test_state_is_looked_up_once_per_task(tmp_path: Path) -> None:
    """The second use of a state in a task reads what the first one wrote down."""
    executor = PlanExecutor(asks=2)
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow_of("url_count"), tmp_path / "t")
    assert_same(driver.dataflow, driver, [{"urls": [{"url": "a"}]}] * 2)
    assert executor.searched == [0, 0, 1, 0]
    assert driver.figures[-1]["bytes_read"] > 0
    assert driver.figures[-1]["records_in"] == 1


def test_called_groups_that_are_given_nothing_lose_their_state(tmp_path: Path) -> None:
    """Results may be empty; groups that nothing called keep what they had."""
    executor = PlanExecutor(asks=1)
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow_of("url_count"), tmp_path / "t")
    for url, most in (("a", 9), ("b", 9), ("a", 0)):
        executor.most = most
        driver.feed("s_urls", [{"url": url}])
        driver.run_until_idle()
    node = driver.dataflow.stages["stage"]
    left = list(engine.records.read_state(driver.folder, node, "counts"))
    assert left == [{"url": "b", "n": 1}]
