"""Loops within a run on Spark whose tasks exchange messages, in one barrier stage.

On `local[2]`; tests/spark/test_loops_on_spark.py runs them on a cluster, and kills an executor.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import flight

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.barrier_stage import BarrierJobs, TooFewSlotsError, loop_tasks_of, own_host
from cbp.engine.spark.deferred import DeferredExecutor
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.task.reports import Counts, Failed, encode
from cbp.errors import AuthorCodeError, RunCancelledError, WorkerEndedError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.plan.spark_or_worker import Bypass, Lane, lanes_of
from cbp.model.run.account import ways
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.limited import limits_of
from tests.loops import Components, Fails, Ripples, loop_of
from tests.simulated_time import ManualClock
from tests.spark.killed_workers import AtPassage, KillOnce
from tests.waiting import until

pytestmark = pytest.mark.spark

LINKS = "src BIGINT, dst BIGINT"
PATH = [{"src": node, "dst": node + 1} for node in range(20)]
ORDERS: list[dict[str, Any]] = [
    {"k": k, "to": to, "verb": verb, "n": n}
    for k, to, verb, n in (
        ("a", "b", "put", 3),
        ("b", "c", "far", 2),
        ("c", "a", "echo", 4),
        ("a", "c", "zero", 1),
        ("b", "a", "take", 5),
    )
]
RUNS = itertools.count(20_000, 100)
"""Numbers of runs that no other test of the session has: a run's id is the tag of its jobs."""


def driver_of(
    executor: SparkExecutor,
    dataflow: Dataflow,
    folder: Path,
    *,
    shuffled: bool = False,
    log_ms: int = 0,
) -> Driver:
    """Return a driver whose loops are worth a task for each two records."""
    limits = limits_of(shuffled=shuffled, rows_per_loop_task=2, superstep_log_ms=log_ms)
    driver = Driver(
        DirectEngine(executor, cache=f"{folder}/cache", limits=limits), dataflow, folder / "t"
    )
    driver.runs = itertools.count(next(RUNS))
    return driver


@dataclass(frozen=True)
class Knocks:
    """Calls each server of its own process without the token of the run, and notes the answers."""

    folder: str

    def __call__(self, point: str) -> None:
        """See the class."""
        if point == "superstep.after":
            answers = [answer for port in own_ports() if (answer := knock(port))]
            Path(self.folder, str(os.getpid())).write_text("\n".join(answers), encoding="utf-8")


def own_ports() -> list[int]:
    """Return the ports of 127.0.0.1 at which this process listens."""
    places = [Path("/proc/self/fd", one) for one in os.listdir("/proc/self/fd")]
    sockets = {os.readlink(place)[8:-1] for place in places if place.is_socket()}
    tables = (Path("/proc/self/net", name).read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in sockets]
    local = (one.rpartition(":") for one in listening)
    return [int(port, 16) for host, _, port in local if host.endswith("0100007F")]


def knock(port: int) -> str:
    """Return what a server answers to a call without a token; empty if it is none of Flight."""
    with flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
        options = flight.FlightCallOptions(timeout=60)
        try:
            return f"listed {list(client.list_flights(options=options))}"
        except flight.FlightUnauthenticatedError as exc:
            return f"refused: {exc}"
        except flight.FlightUnavailableError:
            return ""


@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
def test_every_epoch_equals_the_reference(shuffled: bool, spark: Any, tmp_path: Path) -> None:
    """In two tasks and one Spark job a run, whichever way the records came.

    The tasks listen at the loopback interface, and refuse a call without the token of the run.
    """
    executor = SparkExecutor(spark, loop_tasks_max=2)
    dataflow = loop_of(Components(), links=LINKS)
    driver = driver_of(executor, dataflow, tmp_path, shuffled=shuffled)
    noted = tmp_path / "noted"
    noted.mkdir()
    engine: Any = driver.engine
    engine.preparer.faults = Knocks(str(noted))
    first = next(driver.runs) + 1
    assert_same(dataflow, driver, [{"links": PATH}, {"links": PATH[:3]}])
    assert driver.figures[0]["tasks"] == 2
    assert lanes_of(driver.figures[0]) == (Lane.SPARK,)
    assert bool(driver.figures[0].get("bytes_shuffled")) == shuffled
    assert "in 2 tasks that exchanged their messages" in ways(driver.figures[0])
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    assert len(list(tracker.getJobIdsForTag(f"r{first:06d}"))) == 1
    answers = [one.read_text(encoding="utf-8") for one in noted.iterdir()]
    assert len(answers) >= 2, "of each process"
    assert all(text.startswith("refused") and "token" in text for text in answers), answers


def test_outputs_and_errors_are_those_of_one_task(spark: Any, tmp_path: Path) -> None:
    """The error of groups of both tasks, too; the executor goes on."""
    executor = SparkExecutor(spark, loop_tasks_max=2)
    failing, messages = loop_of(Fails(), items="k BIGINT, n BIGINT"), list[str]()
    for tasks in (1, 2):
        driver = driver_of(executor, failing, tmp_path / str(tasks))
        driver.slots_max = tasks
        driver.feed("s_items", [{"k": k, "n": 9} for k in range(0, 60, 5)])
        with pytest.raises(AuthorCodeError) as caught:
            driver.run_until_idle()
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
    dataflow = loop_of(Ripples(), orders="k STRING, to STRING, verb STRING, n INT")
    driver = driver_of(executor, dataflow, tmp_path / "ripples")
    assert_same(dataflow, driver, [{"orders": ORDERS}])
    assert driver.figures[0]["tasks"] == 2


def test_a_task_that_is_killed_ends_the_try_and_the_next_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    """The error is that of the process which was killed, not of its peer, which ends at once."""
    dataflow = loop_of(Components(), links=LINKS)
    driver = driver_of(SparkExecutor(spark, loop_tasks_max=2), dataflow, tmp_path)
    engine: Any = driver.engine
    engine.preparer.faults = AtPassage(KillOnce("superstep.after", str(tmp_path / "struck")), 6, [])
    driver.feed("s_links", PATH)
    with pytest.raises(WorkerEndedError):
        driver.run_until_idle()
    engine.preparer.faults = NO_FAULTS
    until(lambda: engine.preparer.executor.loop_slots() == 2)
    driver.run_until_idle()
    assert driver.figures[0]["supersteps_before"] == 5
    assert driver.figures[0]["tasks"] == 2
    other = driver_of(SparkExecutor(spark), dataflow, tmp_path / "other")
    assert_same(dataflow, other, [{"links": PATH}])
    assert driver.outputs("stage.labels") == other.outputs("stage.labels")


def test_a_loop_has_as_many_tasks_as_there_are_slots(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the plan, before the job, or when Spark refuses it; the run says so, and is exact."""
    dataflow = loop_of(Components(), links=LINKS)
    executor = SparkExecutor(spark, loop_tasks_max=8)
    until(lambda: not executor._barriers.running())
    slots = executor.loop_slots(), executor._barriers.slots()
    assert slots == (2, 4), "planned for the processors; half of the slots are spare"

    class Hopeful(SparkExecutor):
        def loop_slots(self) -> int:
            return 8

    class Blind(BarrierJobs):
        def slots(self) -> int:
            return 8

    hopeful, blind = Hopeful(spark, loop_tasks_max=8), Hopeful(spark, loop_tasks_max=8)
    blind._barriers = Blind(spark.sparkContext, blind._placement)
    for name, one, tasks in (("plan", executor, 2), ("job", hopeful, 4), ("spark", blind, 1)):
        driver = driver_of(one, dataflow, tmp_path / name, log_ms=100_000)
        assert_same(dataflow, driver, [{"links": PATH}])
        assert driver.figures[0]["tasks"] == tasks, name
        assert "instead of the 8 that its size calls for" in ways(driver.figures[0])[0]
    warnings = [
        one.getMessage() for one in caplog.records if "its tasks must run together" in one.message
    ]
    assert [
        ("uses 4 instead of 8" in text, "uses 1 instead of 8" in text) for text in warnings
    ] == [
        (True, False),
        (False, True),
    ]


def test_where_executors_come_and_go_a_loop_has_one_task(caplog: pytest.LogCaptureFixture) -> None:
    """Spark has no barrier there; the log says why. A local Spark has always the same slots."""
    conf = {"spark.dynamicAllocation.enabled": "true"}
    assert loop_tasks_of(0, 8, conf, is_local=False) == 1
    assert "SPARK-24942" in caplog.text
    assert loop_tasks_of(0, 8, conf, is_local=True) == 8
    assert loop_tasks_of(3, 8, {}, is_local=False) == 3


def test_a_task_listens_where_its_executor_is_known() -> None:
    """At the loopback interface if all are at one host."""
    assert own_host(["10.0.0.1:7", "10.0.0.2:7"], 1) == "10.0.0.2"
    assert own_host(["[fd00::1]:7", "[fd00::2]:9"], 0) == "fd00::1"
    assert own_host(["10.0.0.1:7", "10.0.0.1:8"], 1) == "127.0.0.1"


PLAN: Any = SimpleNamespace(
    run="r1",
    node=SimpleNamespace(name="s", translator=SimpleNamespace(name="T", place="t.py:1")),
    fused=(),
)


@dataclass(frozen=True)
class GivenSlots(BarrierJobs):
    """Jobs of a Spark that has so many slots, a number for each look; a task is tried twice."""

    given: Iterator[int] = field(default_factory=lambda: itertools.repeat(2))

    def slots(self) -> int:
        """Return the next number."""
        return next(self.given)

    def tries(self) -> int:
        """Return 2."""
        return 2


NOTHING: Any = SimpleNamespace()
GIVEN_UP = "x: Could not recover from a failed barrier ResultStage. y"


def failing_first(texts: list[str]) -> Callable[[], list[str]]:
    """Return a job whose stage Spark gives up at first; then it has these texts."""
    ends: list[Any] = [RuntimeError(GIVEN_UP), texts]

    def job() -> list[str]:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return list(end)

    return job


def test_slots_that_were_lost_are_waited_for() -> None:
    """For a minute after a failure; then the loop has as many tasks as there are slots."""
    done = [encode([Counts({"groups": 1})])] * 2
    clock = ManualClock()
    jobs = GivenSlots(NOTHING, NOTHING, clock, given=iter([2, 1, 1, 2]))
    assert jobs.reports(PLAN, 2, failing_first(done), lambda: None).count("Counts") == 2
    assert clock.waits == [0.5, 0.5]
    jobs = GivenSlots(NOTHING, NOTHING, clock, given=itertools.chain([2], itertools.repeat(1)))
    with pytest.raises(TooFewSlotsError) as few:
        jobs.reports(PLAN, 2, failing_first(done), lambda: None)
    assert few.value.slots == 1
    assert clock.seconds() == 61


def test_a_loop_that_spark_gives_up_twice_has_its_error() -> None:
    """As any job that Spark gives up; another error is not tried again."""
    for text, times in ((GIVEN_UP, 2), ("y", 1)):
        tried: list[int] = []

        def job(text: str = text, tried: list[int] = tried) -> list[str]:
            tried.append(1)
            raise RuntimeError(text)

        with pytest.raises(RuntimeError, match="y"):
            GivenSlots(NOTHING, NOTHING).reports(PLAN, 2, job, lambda: None)
        assert len(tried) == times


@pytest.mark.parametrize("code", ["SPARK-24819", "SPARK-24942"])
def test_a_loop_that_spark_refuses_together_gets_one_task(code: str) -> None:
    """It has too few slots, or chooses its executors by itself; no try of the run is lost."""

    def job() -> list[str]:
        raise RuntimeError(f"[{code}]: Barrier execution mode does not allow run a barrier stage")

    with pytest.raises(TooFewSlotsError) as few:
        GivenSlots(NOTHING, NOTHING).reports(PLAN, 2, job, lambda: None)
    assert few.value.slots == 1


def test_tasks_that_lose_each_other_begin_again() -> None:
    """As often as a task is tried; then the run has a coded error. The error of a task counts."""
    jobs, lost = GivenSlots(NOTHING, NOTHING), '"task 1 of the same run ended"'
    tries: list[int] = []

    def job() -> list[str]:
        tries.append(1)
        return [lost, "[]"]

    with pytest.raises(WorkerEndedError, match="task 1 of the same run"):
        jobs.reports(PLAN, 2, job, lambda: None)
    assert len(tries) == 2
    failed = encode([Failed("InvariantError", "m", {})])
    assert jobs.reports(PLAN, 2, lambda: [lost, failed, "[]"], lambda: None) == failed


def test_a_cancelled_loop_is_not_begun_again() -> None:
    """Though slots are missing that will come back, or a task was lost."""
    for looks in (1, 2):
        asked = itertools.count(1)

        def going(looks: int = looks, asked: Iterator[int] = asked) -> None:
            if next(asked) == looks:
                raise RunCancelledError("r1")

        jobs = GivenSlots(NOTHING, NOTHING, ManualClock(), given=iter([2, 1]))
        with pytest.raises(RunCancelledError):
            jobs.reports(PLAN, 2, failing_first([]), going)


def test_before_spark_has_started_a_plan_may_have_all_tasks() -> None:
    """Then the executor says how many."""
    deferred = DeferredExecutor(
        lambda: SimpleNamespace(loop_slots=lambda: 1, loop_tasks_max=1, close=lambda: None),
        slots=2,
        bypass=Bypass(0, 0.1),
        loop_tasks_max=0,
    )
    assert deferred.loop_tasks_max == 2
    deferred._started("r1")
    assert deferred.loop_slots() == deferred.loop_tasks_max == 1
