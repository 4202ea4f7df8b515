"""Workers of the local engine between runs: what stays in a process, and what does not."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.engine.workers.worker_executor import IDLE_SECONDS, WorkerExecutor
from cbp.errors import RunCancelledError
from cbp.model.author.source_modules import load_sources
from cbp.model.dataflow.dataflow import Dataflow
from controller.registry import Registry, TranslatorFiles
from tests.cbp.engine.workers.changing import CHANGES, Change, Observe, one_stage
from tests.driver import Driver

Run = Callable[[Dataflow], list[Any]]

OBSERVE = one_stage("observe", Observe())

LOADING = """
import os
from cbp import Input, Output, TranslateRecords

os.environ["RATE"] = "2"


class Loading(TranslateRecords):
    urls = Input("url STRING")
    seen = Output("pid BIGINT")

    def translate(self, record, out):
        out.seen(pid=os.getpid())
"""


@pytest.fixture
def workers() -> Iterator[WorkerExecutor]:
    workers = WorkerExecutor(free_max=2)
    yield workers
    workers.close()


@pytest.fixture
def run(workers: WorkerExecutor, tmp_path: Path) -> Run:
    """Run a dataflow of one stage over one record, in a worker; return what it wrote."""
    drivers: dict[str, Driver] = {}
    engine = LocalEngine(cache=f"{tmp_path}/cache", executor=workers)

    def run(dataflow: Dataflow) -> list[Any]:
        name = dataflow.name
        if name not in drivers:
            drivers[name] = Driver(engine, dataflow, tmp_path / name)
        driver = drivers[name]
        driver.feed("urls", [{"url": "a"}])
        driver.run_until_idle()
        return driver.outputs("one.seen")[-1]

    return run


@pytest.mark.part(every=3)
@pytest.mark.parametrize("kind", ["digits", "zone", "list"])
def test_what_one_dataflow_changes_another_does_not_see(
    run: Run, workers: WorkerExecutor, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The error names stage, function and line; another process takes the place."""
    before = run(OBSERVE)
    with caplog.at_level(logging.WARNING):
        run(one_stage("change", Change(kind)))
        assert run(OBSERVE) == before
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.startswith("stage 'one': a call of Change.translate (")
    assert "changing.py:" in said
    assert CHANGES[kind][1] in said


class CancelledLate(WorkerExecutor):
    """Its run is cancelled once a worker has answered, before it begins another job."""

    def __init__(self, *, serving: bool) -> None:
        super().__init__()
        self._while_serving = serving

    def _give_back(self, *given: Any, **options: Any) -> None:
        if self._while_serving:
            self.cancel("r1")
        super()._give_back(*given, **options)
        self.cancel("r1")


@pytest.mark.parametrize("serving", [False, True])
def test_a_run_that_is_cancelled_between_two_jobs_ends(tmp_path: Path, serving: bool) -> None:
    """Its next job is refused; a run of another name goes on, in a worker that was not killed."""
    workers = CancelledLate(serving=serving)
    plan = RunPlan(str(tmp_path), "one", OBSERVE.stages["one"], 0, "r1", {})
    try:
        workers._answered(plan, [list])
        assert len(workers.pids) == (0 if serving else 1)
        with pytest.raises(RunCancelledError):
            workers._answered(plan, [list])
        workers._answered(replace(plan, run="r2"), [list])
    finally:
        workers.close()


def test_a_worker_that_nothing_changed_goes_on(
    run: Run, workers: WorkerExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs of several dataflows share it, and nothing is said."""
    run(OBSERVE)
    (pid,) = workers.pids
    run(one_stage("other", Observe()))
    assert workers.pids == [pid]
    assert not caplog.records


def test_the_first_run_finds_a_worker_that_was_started_for_it(
    run: Run, workers: WorkerExecutor
) -> None:
    """A service warms one; what was closed meanwhile keeps none."""
    workers.warm()
    (pid,) = workers.pids
    run(OBSERVE)
    assert workers.pids == [pid]
    workers.close()
    workers.warm()
    assert workers.pids == []


def test_a_worker_that_loading_changed_stays_with_its_stage(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a library does that sets a variable: reported once, not paid for at each run."""
    before = run(OBSERVE)
    (tmp_path / "loading_author.py").write_text(LOADING)
    monkeypatch.setenv("RATE", "2")  # what loading it here sets is taken back
    files = TranslatorFiles([tmp_path / "loading_author.py"])
    stage = {"translator": "Loading", "inputs": {"urls": "urls"}}
    sources = {"urls": {"schema": "url STRING"}}
    document = {"name": "d", "sources": sources, "stages": {"one": stage}}
    dataflow = Registry([], files=files).compile(document)
    try:
        with caplog.at_level(logging.WARNING):
            first = run(dataflow)
            assert run(OBSERVE) == before
            assert [run(dataflow), run(dataflow)] == [first] * 2
    finally:
        load_sources(str(tmp_path), lambda _: None, [])
    (told,) = [one.getMessage() for one in caplog.records]
    assert "loading the code of Loading.translate" in told
    assert "os.environ['RATE']" in told


def test_a_recomputation_has_workers_of_its_own(workers: WorkerExecutor, tmp_path: Path) -> None:
    """What a process has left would be in both sides of a comparison; it shares its own, though."""
    engine = LocalEngine(cache=f"{tmp_path}/cache", executor=workers)
    driver, prepare = Driver(engine, OBSERVE, tmp_path), engine.preparer.prepare
    pids = []

    def recompute(plan: RunPlan, *_: object) -> PreparedRun:
        return prepare(replace(plan, recomputes=True))

    for chosen in (prepare, recompute, recompute, prepare):
        engine.preparer.prepare = chosen  # type: ignore
        driver.feed("urls", [{"url": "a"}])
        driver.run_until_idle()
        pids.append(workers.pids[-1])
    run, recomputation, again, last = pids
    assert (again, last) == (recomputation, run)
    assert run != recomputation


def test_a_worker_begins_as_the_service_began(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a Runnable sets in the service itself reaches no process that is started later."""
    monkeypatch.setenv("RATE", "2")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.chdir(tmp_path)
    ((found,),) = [tuple(row.values()) for row in run(OBSERVE)]
    assert "'2'" not in found
    assert "+09:00" not in found
    assert str(tmp_path) not in found


def test_a_worker_that_died_is_replaced_before_the_next_run(
    run: Run, workers: WorkerExecutor
) -> None:
    """And one that is there is kept, so that looking again costs nothing."""
    workers.warm()
    (pid,) = workers.pids
    workers.warm()
    assert workers.pids == [pid]
    os.kill(pid, signal.SIGKILL)
    (idle,) = workers._free
    assert idle.worker.status() == -signal.SIGKILL
    workers.warm()
    (other,) = workers.pids
    assert other != pid
    run(OBSERVE)
    assert workers.pids == [other]


def test_what_was_idle_for_long_ends_but_for_one() -> None:
    """The one that any run can take; a worker of one stage, or of a recomputation, ends."""
    now = [0.0]
    workers = WorkerExecutor(free_max=4, seconds=lambda: now[0])
    try:
        for shared_by in ("", "", "folder"):
            workers._keep(shared_by, workers._start(), used=True)
        last = workers.pids[1]
        now[0] = IDLE_SECONDS - 1
        workers.warm()
        assert len(workers.pids) == 3
        now[0] = IDLE_SECONDS
        workers.warm()
        assert workers.pids == [last]
        now[0] *= 100
        workers.warm()
        assert workers.pids == [last]
    finally:
        workers.close()
    assert workers.pids == []


def test_a_worker_is_ready_for_each_run_that_can_go_on_at_a_time(tmp_path: Path) -> None:
    """They are started one by one, stay while they have done nothing, and are taken last."""
    now = [0.0]
    workers = WorkerExecutor(free_max=3, ready=3, seconds=lambda: now[0])
    engine = LocalEngine(cache=f"{tmp_path}/cache", executor=workers)
    driver = Driver(engine, OBSERVE, tmp_path / "observed")
    try:
        for count in (1, 2, 3, 3):
            workers.warm()
            assert len(workers.pids) == count
        first = set(workers.pids)
        for number in range(2):
            driver.feed("urls", [{"url": f"{number}"}])
            driver.run_until_idle()
        assert set(workers.pids) == first
        assert [one.used for one in workers._free] == [False, False, True]
        now[0] = IDLE_SECONDS * 2
        workers.warm()
        assert set(workers.pids) == first
    finally:
        workers.close()


def test_a_loop_has_no_more_workers_than_processors() -> None:
    """However many a setting allows; each may hold as much as the whole loop in one task."""
    workers = WorkerExecutor(loop_tasks_max=1_000)
    assert workers.loop_slots() == len(os.sched_getaffinity(0))
    workers.close()


def test_no_more_workers_are_kept_than_may_be_idle() -> None:
    """A stage whose worker only it can use is not made to wait for a new one each time."""
    workers = WorkerExecutor(free_max=1)
    try:
        workers._replace("stage")
        (pid,) = workers.pids
        workers.warm()
        assert workers.pids == [pid]
    finally:
        workers.close()
