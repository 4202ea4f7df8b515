"""Spark starts in the background: what waits for it, what does not, and what a failure does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from cbp.engine.run.executor import LocalExecutor
from cbp.engine.spark.deferred import DeferredExecutor
from cbp.engine.spark.session import JvmOutput
from cbp.errors import EngineStartingError, RunCancelledError, SparkUnstartedError
from cbp.model.plan.spark_or_worker import Bypass
from controller.loop.controller import Controller


def node(form: str) -> Any:
    return SimpleNamespace(translator=SimpleNamespace(form=form, inputs=()))


SQL, OTHER = node("sql"), node("groupwise")
PLAN: Any = SimpleNamespace(run="r1", dataflow="d", node=SQL, fused=[OTHER])
REPORTS: Any = ["r1"]
TASK: Any = SimpleNamespace()


class Started(LocalExecutor):
    """What Spark is once it has started."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()
        self.checked: list[tuple[str, list[Any]]] = []

    def refuse(self, dataflow: str, nodes: Any) -> None:
        """Note what is checked."""
        self.checked.append((dataflow, [*nodes]))

    def execute(self, plan: Any, task: Any) -> list[Any]:
        """Return the run."""
        return [plan.run]

    def close(self) -> None:
        """Note it."""
        self.closed.set()


class Spark:
    """A Spark that starts when the test says so; each start ends as the next of `ends` says."""

    def __init__(self, *ends: Started | Exception) -> None:
        self.ends, self.go, self.begun = list(ends), threading.Semaphore(0), threading.Semaphore(0)

    def make(self) -> Started:
        """Start."""
        self.begun.release()
        assert self.go.acquire(timeout=120)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def executor(self) -> DeferredExecutor:
        """Return the executor that waits for it."""
        return DeferredExecutor(self.make, slots=2, bypass=Bypass(0, 0.1))


def test_a_run_waits_for_the_start_and_nothing_else_does() -> None:
    """Limits and the check of stages answer at once; a run that waited is checked after it."""
    started = Started()
    spark = Spark(started)
    executor = spark.executor()
    assert (executor.slots, executor.starved(["r1"])) == (2, ())
    executor.refuse("d", [SQL])
    assert executor.waits_for().startswith("Spark, which has been starting for ")
    with ThreadPoolExecutor() as threads:
        run = threads.submit(executor.execute, PLAN, TASK)
        spark.go.release()
        assert run.result(120) == REPORTS
    assert executor.waits_for() == ""
    assert started.checked == [("d", [SQL, OTHER])]
    executor.refuse("d", [OTHER])
    assert started.checked[1:] == [("d", [OTHER])]


@pytest.mark.parametrize(("leader", "checked"), [(SQL, [("d", [SQL, OTHER])]), (OTHER, [])])
def test_a_run_is_checked_if_spark_started_while_it_was_planned(leader: Any, checked: Any) -> None:
    """Its stages were not checked before the start, so they are when it is executed."""
    started = Started()
    spark = Spark(started)
    executor = spark.executor()
    executor.refuse("d", [leader, OTHER])
    spark.go.release()
    executor._started("r1")
    plan: Any = SimpleNamespace(run="r1", dataflow="d", node=leader, fused=[OTHER])
    assert executor.execute(plan, TASK) == REPORTS
    assert started.checked == checked


@pytest.mark.parametrize("stop", [lambda one: one.cancel("r1"), lambda one: one.close()])
def test_a_run_that_waits_can_be_stopped(stop: Callable[[DeferredExecutor], None]) -> None:
    """By its cancellation, and by the end of the service; what starts later is released."""
    started = Started()
    spark = Spark(started)
    executor = spark.executor()
    with ThreadPoolExecutor() as threads:
        run = threads.submit(executor.execute, PLAN, TASK)
        stop(executor)
        with pytest.raises(RunCancelledError):
            run.result(120)
    executor.close()
    spark.go.release()
    assert started.closed.wait(120)


def test_a_failed_start_is_told_and_tried_again_by_the_next_run() -> None:
    """All that wait get the error, whatever it was; the next one begins anew."""
    spark = Spark(OSError("no java"), Started())
    executor = spark.executor()
    with ThreadPoolExecutor() as threads:
        run = threads.submit(executor.execute, PLAN, TASK)
        spark.go.release()
        with pytest.raises(SparkUnstartedError, match="OSError: no java"):
            run.result(120)
        assert "could not be started" in executor.waits_for()
        spark.go.release()
        assert threads.submit(executor.execute, PLAN, TASK).result(120) == REPORTS


def test_sql_is_not_checked_before_spark_is_there() -> None:
    """A registration of stages in SQL is refused for now, instead of waiting in a request."""
    refused: list[str] = []
    control = SimpleNamespace(
        waits_for=lambda: "Spark", refuse=lambda name, nodes: refused.append(name)
    )
    controller: Any = SimpleNamespace(
        registry=SimpleNamespace(require_loaded=lambda _: None), _control=control
    )
    usable: Any = Controller._usable
    for form in ("groupwise", "sql"):
        dataflow = SimpleNamespace(name=form, stages={"one": node(form)})
        if form == "sql":
            with pytest.raises(EngineStartingError) as caught:
                usable(controller, dataflow)
            assert caught.value.details == {"waits_for": "Spark"}
        else:
            assert usable(controller, dataflow) is dataflow
    assert refused == ["groupwise"]


def written(output: JvmOutput, *lines: str) -> None:
    os.write(output.descriptor, "".join(f"{line}\n" for line in lines).encode())


def test_the_start_of_a_jvm_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """What it writes until it has started is dropped; what it writes later is passed on."""
    output = JvmOutput()
    written(output, ":: loading settings", "\tfound io.delta#delta-spark in central")
    while not output.reason():  # until the thread has read it
        os.sched_yield()
    output.pass_on()
    written(output, "ERROR later")
    output.detach()
    output.wait(120)
    assert capfd.readouterr().err.strip().splitlines()[-1] == "ERROR later"


def test_a_jvm_that_does_not_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    """The lines of errors, each once, without the report around them; else the last lines."""
    output = JvmOutput()
    written(output, *[f"\tfound jar {n}" for n in range(20)])
    written(output, "\t:: unresolved dependency: io.delta#delta;9: not found", "more")
    output.detach()
    output.wait(120)
    assert output.reason() == "unresolved dependency: io.delta#delta;9: not found"
    assert capfd.readouterr().err == ""
    plain = JvmOutput()
    written(plain, *map(str, range(20)))
    plain.detach()
    plain.wait(120)
    assert plain.reason() == "; ".join(map(str, range(12, 20)))
