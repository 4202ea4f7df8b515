"""Small runs without a Spark job: the workers that do them, and what is left to Spark.

They give the reference's epochs. A resident worker that is killed at its files counts once, one
that cannot do its work leaves it to Spark, and none outlives its driver.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.tasks import Work
from cbp.engine.spark.worker_main import answer
from cbp.engine.spark.worker_pool import WorkerPool
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.errors import RunCancelledError
from cbp.model.plan.spark_or_worker import Bypass, Lane, lanes_of
from tests.bench.candidates.candidate import Place
from tests.bench.candidates.ours.direct import DirectCandidate
from tests.bench.workloads.workload import UrlCount
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.driver import Driver
from tests.fresh import REPOSITORY
from tests.spark.killed_workers import KillOnce, lost_attempts
from tests.spark.resident_work import dying, hanging, raising, told
from tests.spark.resident_workers import PATH, asked, started
from tests.spark.spark_epochs import epochs_of
from tests.waiting import PATIENCE_SECONDS, until


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """Give a pool of two workers that starts them when it is first asked."""
    pool = WorkerPool(2, PATH)
    yield pool
    pool.close()


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended with all of its threads, be it waited for or not."""
    try:
        ended = ") Z " in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return ended and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


def test_workers_start_once_runs_come_often() -> None:
    """The first runs, and all of a pool without workers, are Spark's; no process is started."""
    pool, none = WorkerPool(1, PATH), WorkerPool(0, PATH)
    often = DEFAULT_LIMITS.resident_after_runs
    assert [asked(pool, told, after=often) for _ in range(often)] == [None] * often
    assert not pool.free
    assert not pool._starting
    # It would not wait for the worker that this one starts.
    assert asked(pool, told, after=often) is None
    (pid,) = until(lambda: pool.free)
    assert asked(pool, told) == ["0 a7", str(pid), "0"]
    pool.close()
    assert is_gone(pid)
    assert asked(pool, told) is None
    assert [asked(none, told) for _ in range(often + 1)][-1] is None
    assert not none._starting


def test_all_workers_may_be_started_at_once_and_waited_for() -> None:
    """The very first run has one; who asks twice, or of a pool that is closed, gets no more."""
    pool, none = WorkerPool(2, PATH), WorkerPool(0, PATH)
    pool.start()
    pids = pool.free
    assert len(pids) == 2
    assert asked(pool, told) is not None
    pool.start()
    none.start()
    assert sorted(pool.free) == sorted(pids)
    assert not none.free
    pool.close()
    pool.start()
    assert not pool.free


def test_a_runs_tasks_have_a_worker_each(pool: WorkerPool) -> None:
    """Side by side, in the order of their numbers; more tasks than workers are Spark's."""
    pids = started(pool, 2)
    actual = asked(pool, told, tasks=2)
    assert actual is not None
    assert actual[::3] == ["0 a7", "1 a7"]
    assert set(actual[1::3]) == set(map(str, pids))
    assert asked(pool, told, tasks=3) is None
    assert sorted(pool.free) == sorted(pids)


def test_what_a_worker_cannot_do_is_left_to_spark(pool: WorkerPool) -> None:
    """One that raises stays, one that died is replaced; what the others did counts for nothing."""
    first = started(pool, 2)
    assert asked(pool, raising, tasks=2) is None
    assert sorted(pool.free) == sorted(first)
    assert "LookupError: 0 a7" in answer(bytes(4) + pickle.dumps((raising, "a7")))
    assert asked(pool, dying, tasks=2) is None
    assert len(pool.free) == 1
    assert asked(pool, told, tasks=2) is None
    until(lambda: len(pool.free) == 2)
    assert len(set(first) & set(pool.free)) == 1
    assert asked(pool, told, tasks=2) is not None


def test_a_worker_that_ended_while_nobody_looked_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one does that was idle for long, or that the system killed: the next runs are Spark's."""
    pool = WorkerPool(1, PATH)
    assert asked(pool, told, after=1) is None
    (pid,) = started(pool, 1)
    os.kill(pid, signal.SIGKILL)
    until(partial(is_gone, pid))
    assert asked(pool, told, after=1) is None
    assert not pool.free
    assert not pool._starting
    assert not caplog.records
    pool.close()


def test_a_cancelled_runs_workers_are_killed(pool: WorkerPool, tmp_path: Path) -> None:
    """Whatever they do; a run that was cancelled before it began does nothing."""
    started(pool, 2)
    answers: list[Any] = []
    work = partial(hanging, str(tmp_path / "runs"))
    cancelled = threading.Event()

    def going() -> None:
        if cancelled.is_set():
            raise RunCancelledError("r1")

    def ask(what: Work) -> None:
        try:
            pool.reports("r1", what, 1, attempt="a8", going=going, after=0)
        except RunCancelledError as error:
            answers.append(error)

    thread = threading.Thread(target=ask, args=[work], daemon=True)
    thread.start()
    (mark,) = until(lambda: list(tmp_path.iterdir()))
    pool.cancel("another")
    assert not is_gone(int(mark.suffix[1:]))
    cancelled.set()
    pool.cancel("r1")
    thread.join(PATIENCE_SECONDS)
    assert len(answers) == 1
    assert is_gone(int(mark.suffix[1:]))
    (other,) = pool.free
    ask(told)
    assert len(answers) == 2
    assert pool.free == [other]


DRIVER = """
import sys
import threading
import time
from functools import partial
from pathlib import Path
from cbp.engine.spark import worker_pool as resident
from tests.spark import resident_workers as test
from tests.spark.resident_work import hanging, told

pool = resident.WorkerPool(1)
(pid,) = test.started(pool, 1)
assert test.asked(pool, told)
if sys.argv[1:]:
    work = partial(hanging, sys.argv[1])
    threading.Thread(target=test.asked, args=(pool, work), daemon=True).start()
    test.until(Path(f"{sys.argv[1]}.{pid}").exists)
print(pid, flush=True)
time.sleep(600)
"""


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hangs", [False, True])
def test_a_worker_ends_with_its_driver(hangs: bool, tmp_path: Path) -> None:
    """However that ends, whatever the worker does: none writes for a service that was killed.

    Nor does what an author prints come between what the driver itself prints.
    """
    told_where = [str(tmp_path / "runs")] if hangs else []
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *told_where],
        cwd=REPOSITORY,
        env={**os.environ, **PATH},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        driver.kill()
    until(lambda: is_gone(pid))


@pytest.mark.spark
def test_there_are_as_many_workers_as_asked_for_and_one_per_slot(spark: Any) -> None:
    """None unless asked for: every run is a job."""
    assert SparkExecutor(spark).residents.most == 0
    assert SparkExecutor(spark, resident_workers=1).residents.most == 1
    executor = SparkExecutor(spark, resident_workers=99)
    assert executor.residents.most == executor.slots


@pytest.mark.part(every=2)
@pytest.mark.spark
@pytest.mark.parametrize("point", ["data_sync.after", ""])
def test_small_runs_give_the_references_epochs_without_a_job(
    point: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed at its files leaves the run to Spark: one result, named once."""
    executor = SparkExecutor(spark, resident_workers=4)
    started(executor.residents, 2)
    assert executor.residents._environment["MIMALLOC_PURGE_DELAY"]  # as Spark's workers
    jobs: list[int] = []
    run = executor._run_numbered

    def counted(tasks: int, work: Callable[[], list[str]]) -> list[str]:
        jobs.append(tasks)
        return run(tasks, work)

    monkeypatch.setattr(executor, "_run_numbered", counted)
    limits = EngineLimits(resident_after_runs=0)
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"), limits=limits)
    dataflow = dataflow_of("members")
    driver = Driver(engine, dataflow, tmp_path / "t")
    if point:
        engine.preparer.faults = KillOnce(point, str(tmp_path / "struck"))
    assert_same(dataflow, driver, epochs_of("members", seed=3))
    assert len(jobs) == bool(point)
    lanes = [lanes_of(figures) for figures in driver.figures if figures["records_in"]]
    assert lanes.count((Lane.SPARK,)) == bool(point)
    assert lanes.count((Lane.RESIDENT,)) == len(lanes) - bool(point)
    executor.bypass = Bypass(4, job_start_seconds=0.0)  # no run is small then
    (source,) = dataflow.sources
    driver.feed(source, [dict.fromkeys(dataflow.sources[source].schema.names)])
    driver.run_until_idle()
    assert lanes_of(driver.figures[-1]) == (Lane.SPARK,)
    assert len(lost_attempts(driver, tmp_path / "t")) == bool(point)
    executor.residents.close()


@pytest.mark.part(every=3)
@pytest.mark.spark
@pytest.mark.parametrize(("name", "workers"), [("jobs", 0), ("blackbox", 0), ("cbp", 2)])
def test_a_benchmark_has_its_workers_from_the_first_run(
    name: str, workers: int, spark: Any, tmp_path: Path
) -> None:
    """So no round is measured half by jobs and half by workers; `jobs` never has one."""
    place = Place(tmp_path / "tables", tmp_path / "scratch", spark, 2)
    candidate = DirectCandidate(place, UrlCount(10), grouping="inner", form="groupwise", name=name)
    assert isinstance(candidate._executor, SparkExecutor)
    assert len(candidate._executor.residents.free) == workers
    candidate.close()
