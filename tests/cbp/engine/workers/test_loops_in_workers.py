"""Loops whose tasks are workers of the local engine: one that is killed, errors, busy slots."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbp import Input, Loopback, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.shuffle.exchange import PeerGoneError
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.workers.task_worker import Answer, Done, Raised
from cbp.engine.workers.worker_executor import WorkerExecutor
from cbp.errors import AuthorCodeError, RunCancelledError, WorkerEndedError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.plan.spark_or_worker import Lane, lanes_of
from cbp.model.run.account import ways
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.loops import Components, Fails, Halves, Ripples, loop_of
from tests.spark.killed_workers import KillOnce
from tests.waiting import until

LINKS = "src BIGINT, dst BIGINT"
PATH = [{"src": node, "dst": node + 1} for node in range(30)]


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerExecutor]:
    """Give an executor that has two tasks for a loop, however many processors there are."""
    workers = WorkerExecutor(free_max=3, loop_tasks_max=2)
    yield workers
    workers.close()


def driver_of(workers: WorkerExecutor, dataflow: Dataflow, folder: Path) -> Driver:
    """Return a driver whose loops have two tasks from three records on."""
    limits = replace(DEFAULT_LIMITS, rows_per_loop_task=2, superstep_log_ms=0)
    engine = LocalEngine(cache=f"{folder}/cache", executor=workers, limits=limits)
    return Driver(engine, dataflow, folder / "t")


ORDERS: list[dict[str, Any]] = [
    {"k": k, "to": to, "verb": verb, "n": n}
    for k, to, verb, n in (
        ("a", "b", "put", 3),
        ("b", "c", "far", 2),
        ("c", "a", "echo", 4),
        ("a", "c", "zero", 1),
        ("b", "a", "take", 5),
        ("c", "b", "drop", 6),
    )
]


class OnTheirOwn(Components):
    """Components whose tasks go on alone."""

    news = replace(Components.news, microsteps=True)


@pytest.mark.parametrize(
    ("dataflow", "name", "rows"),
    [
        (loop_of(Components(), links=LINKS), "links", PATH),
        (loop_of(OnTheirOwn(), links=LINKS), "links", PATH),
        (loop_of(Ripples(), orders="k STRING, to STRING, verb STRING, n INT"), "orders", ORDERS),
        (
            loop_of(Halves(), items="k BIGINT, n DOUBLE"),
            "items",
            [{"k": k, "n": n} for k, n in ((0, 0.1), (1, 1e16), (2, -1e16), (3, 7.7))],
        ),
    ],
    ids=["components", "microsteps", "ripples", "halves"],
)
def test_every_epoch_equals_the_reference(
    dataflow: Dataflow,
    name: str,
    rows: list[dict[str, Any]],
    workers: WorkerExecutor,
    tmp_path: Path,
) -> None:
    """In two processes, each with its buckets; the next run finds both again."""
    driver = driver_of(workers, dataflow, tmp_path)
    assert_same(dataflow, driver, [{name: rows}, {name: rows[:3]}])
    assert driver.figures[0]["tasks"] == 2
    assert lanes_of(driver.figures[0]) == (Lane.LOCAL,)
    assert "in 2 tasks that exchanged their messages" in ways(driver.figures[0])
    assert len(workers.pids) == 2, "idle, and not changed"


@dataclass
class AtPassage:
    """Lets the passages of a point in one process, from one on, through to what kills."""

    kill: KillOnce
    first: int
    count: list[int] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        """See the class."""
        if point == self.kill.point:
            self.count.append(0)
            if len(self.count) >= self.first:
                self.kill(point)


@pytest.mark.parametrize(("stage", "passage"), [(Components, 10), (OnTheirOwn, 3)])
def test_a_worker_that_is_killed_ends_the_try_and_the_next_goes_on(
    stage: type[Components], passage: int, workers: WorkerExecutor, tmp_path: Path
) -> None:
    """The error is that of the worker which was killed; the epoch is the reference's."""
    dataflow = loop_of(stage(), links=LINKS)
    driver = driver_of(workers, dataflow, tmp_path)
    engine: Any = driver.engine
    killer = KillOnce("superstep.after", str(tmp_path / "struck"))
    engine.preparer.faults = AtPassage(killer, passage)
    driver.feed("s_links", PATH)
    with pytest.raises(WorkerEndedError, match="SIGKILL"):
        driver.run_until_idle()
    assert not [pid for pid in workers.pids if not os.path.exists(f"/proc/{pid}")]
    engine.preparer.faults = NO_FAULTS
    driver.run_until_idle()
    assert driver.figures[0]["supersteps_before"] == passage - 1
    assert driver.figures[0]["tasks"] == 2
    other = driver_of(workers, dataflow, tmp_path / "other")
    assert_same(dataflow, other, [{"links": PATH}])
    assert driver.outputs("stage.labels") == other.outputs("stage.labels")


def test_an_authors_error_is_that_of_a_single_task(workers: WorkerExecutor, tmp_path: Path) -> None:
    """And the workers go on."""
    dataflow = loop_of(Fails(), items="k BIGINT, n BIGINT")
    items = [{"k": k, "n": 9} for k in range(0, 60, 5)]
    messages = []
    for tasks in (1, 2):
        driver = driver_of(workers, dataflow, tmp_path / str(tasks))
        driver.slots_max = tasks
        driver.feed("s_items", items)
        with pytest.raises(AuthorCodeError) as caught:
            driver.run_until_idle()
        messages.append(caught.value.message)
    assert messages[0] == messages[1]


class Stains(Translate):
    """Leaves a variable in the environment of its process; the last of some rounds fails."""

    items = Input("k BIGINT, n BIGINT, folder STRING", route_by="k")
    on = Loopback("k BIGINT, n BIGINT, folder STRING", route_by="k", supersteps=9)
    calls = View("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Hand on what came to the same key; note the process."""
        os.environ["STAIN"] = "1"
        for one in (*group.items, *group.on):
            if one.n == 0:
                raise ValueError("nought")
            Path(one.folder, str(os.getpid())).touch()
            out.on(key.k, one.n - 1, one.folder)
        out.calls(key.k, 1)


def test_a_worker_that_was_broken_off_is_looked_at_too(
    workers: WorkerExecutor, tmp_path: Path
) -> None:
    """If calls have changed its process, no other run gets it, though another task failed."""
    dataflow = loop_of(Stains(), items="k BIGINT, n BIGINT, folder STRING")
    driver = driver_of(workers, dataflow, tmp_path)
    noted = tmp_path / "noted"
    noted.mkdir()
    items = [{"k": k, "n": 50 if k else 3, "folder": str(noted)} for k in range(20)]
    driver.feed("s_items", items)
    with pytest.raises(AuthorCodeError, match="nought"):
        driver.run_until_idle()
    ran = {int(one.name) for one in noted.iterdir()}
    assert len(ran) == 2
    assert ran.isdisjoint(workers.pids)


def test_tasks_that_lose_each_other_have_a_coded_error() -> None:
    """Though no process has ended; the run is tried again."""

    class Lost(WorkerExecutor):
        def _answered(self, plan: Any, works: Any) -> list[Answer]:
            return [Raised(PeerGoneError(1, True), ""), Done([])]

    node = SimpleNamespace(name="s", translator=SimpleNamespace(name="T", place="t.py:1"))
    plan: Any = SimpleNamespace(run="r", node=node, fused=())
    task: Any = SimpleNamespace(spec=SimpleNamespace(supersteps=9), tasks=2)
    with pytest.raises(WorkerEndedError, match="task 1 of the same run"):
        Lost().execute(plan, task)


class Holding:
    """Lets a task wait in its first superstep for ever."""

    def __init__(self, fifo: str) -> None:
        self.fifo = fifo

    def __call__(self, point: str) -> None:
        """Open what nobody writes."""
        if point == "superstep.before":
            with open(f"{self.fifo}.begun", "a", encoding="ascii") as begun:
                begun.write("x")
            os.close(os.open(self.fifo, os.O_RDONLY))


def test_busy_slots_leave_a_loop_one_task(workers: WorkerExecutor, tmp_path: Path) -> None:
    """Its run says so; a cancelled run ends in all of its workers."""
    dataflow = loop_of(Components(), links=LINKS)
    held = driver_of(workers, dataflow, tmp_path / "held")
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    engine: Any = held.engine
    engine.preparer.faults = Holding(fifo)
    held.feed("s_links", PATH)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            held.run_until_idle()
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    begun = Path(f"{fifo}.begun")
    until(lambda: begun.exists() and len(begun.read_text(encoding="ascii")) == 2)
    driver = driver_of(workers, dataflow, tmp_path / "other")
    driver.feed("s_links", PATH)
    driver.run_until_idle()
    assert driver.figures[0]["tasks"] == 1
    (told, *_) = ways(driver.figures[0])
    assert told.startswith("in 1 task instead of the 2 that its size calls for")
    workers.cancel("r000000")
    thread.join(120)
    assert [type(error) for error in errors] == [RunCancelledError]
