"""The service put together: from a dropped file to a table, and an orderly end."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from anyio.from_thread import start_blocking_portal

from cbp.errors import (
    AlreadyExistsError,
    CbpError,
    DataflowsTooManyError,
    LogConflictError,
    OperatingError,
)
from cbp.model.schedule.lease import Role
from controller.app import Service, configure_logging, create_app
from controller.ingest.formats import format_readers
from controller.ingest.reader import file_reader
from controller.settings import Settings, load_settings
from controller.store.base import Store
from tests.controller.api.app_transport import AppTransport
from tests.controller.small_app import DOCUMENT, TOKEN, count, drop
from tests.controller.world import until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        root=tmp_path,
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token=TOKEN,
        settle_seconds=0,
        scan_seconds=0.1,
        tick_seconds=0.1,
        drain_seconds=10,
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[Service]:
    made = Service(settings)
    yield made
    made.stop()


WAIT_SECONDS = 120


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@contextmanager
def serving(settings: Settings) -> Iterator[httpx.Client]:
    """Run the application with its lifespan, as a server does."""
    app = create_app(settings)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
        httpx.Client(transport=AppTransport(app), base_url=settings.url, headers=headers) as client,
    ):
        yield client


def step(service: Service) -> None:
    """Do by hand, and in order, what the threads do."""
    service.scan()
    service.scan()
    service.controller.tick()
    service.parts.in_flight.wait(timeout=WAIT_SECONDS)


@pytest.mark.timeout(120)
def test_a_dropped_file_becomes_a_table_and_a_restart_goes_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registered over REST, a file dropped: the state answers; again after a restart."""
    committed = threading.Event()
    commit = Store.commit

    def tell(self: Store, *args: Any, **kwargs: Any) -> None:
        commit(self, *args, **kwargs)
        committed.set()

    monkeypatch.setattr(Store, "commit", tell)
    incoming = settings.drop_root / "urls" / "visits" / "incoming"
    for number in (1, 2):
        with serving(settings) as client:
            if number == 1:
                answer = client.post("/api/v1/dataflows", json=DOCUMENT)
                assert answer.status_code == 201, answer.text
            committed.clear()
            (incoming / f"{number}.jsonl").write_text('{"url": "a"}\n' * number)
            assert committed.wait(WAIT_SECONDS)
            answer = client.get("/api/v1/dataflows/urls/state/count/counts", params={"url": "a"})
            assert answer.status_code == 200, answer.text
            assert '"n":' + str([0, 1, 3][number]) in answer.text.replace(" ", "")


def test_one_service_at_a_time(service: Service) -> None:
    """A second service on the same database is refused, and the first goes on."""
    with pytest.raises(OperatingError):
        Service(service.settings)
    service.store.ping()


def test_stop_releases_everything_and_may_be_repeated(settings: Settings) -> None:
    """After a stop no thread is left, and a new service can start at the same place."""
    for _ in range(2):
        service = Service(settings)
        service.start()
        service.stop()
        service.stop()
        names = {thread.name for thread in threading.enumerate()}
        assert not names & {"loop", "watch"}


def test_a_folder_that_fails_does_not_stop_the_others(service: Service) -> None:
    """Each dataflow is listed by itself; a failure is logged once until it is over."""
    for name in ("urls", "other"):
        service.controller.register(DOCUMENT | {"name": name})
    scan, broken = service.drop_folder.scan, True

    def fails(record: Any, dataflow: Any, **more: Any) -> Any:
        if record.name == "other" and broken:
            raise OSError("stale handle")
        return scan(record, dataflow, **more)

    service.drop_folder.scan = fails  # type: ignore[method-assign]
    drop(service, "a", "a")
    drop(service, "b", dataflow="other")
    with structlog.testing.capture_logs() as logs:
        step(service)
    assert count(service, "a") == 2
    assert [log["event"] for log in logs].count("scan.failed") == 1
    broken = False
    step(service)
    assert count(service, "b", "other") == 1


def test_a_second_ingester_stops_the_service(service: Service) -> None:
    """Who finds that another controller takes in the files starts no runs either."""
    service.controller.register(DOCUMENT)

    def conflict(record: Any, dataflow: Any, **more: Any) -> Any:
        raise LogConflictError("sources/visits/_log/0.json")

    service.drop_folder.scan = conflict  # type: ignore[method-assign]
    service.scan()
    assert "another controller" in service.controller.problem


@pytest.mark.timeout(120)
def test_the_loop_survives_a_tick_that_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the store is away for a moment, the loop goes on afterwards."""
    ticked = threading.Event()
    tick, calls = service.controller.tick, []

    def flaky() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise OperatingError("the database is away")
        ticked.set()
        return tick()

    monkeypatch.setattr(service.controller, "tick", flaky)
    service.start()
    assert ticked.wait(WAIT_SECONDS)


def test_jobs_are_neither_skipped_nor_piled_up(service: Service) -> None:
    """A late job runs once, whatever time it missed, and never beside itself."""
    service.start()
    assert service._duties.scheduler is not None
    jobs = {job.id: job for job in service._duties.scheduler.get_jobs()}
    for name in [name for name in jobs if name.startswith("settle:")]:
        del jobs[name]
    assert set(jobs) == {"scan", "clean", "forget", "logs", "sinks"}
    for job in jobs.values():
        assert (job.coalesce, job.misfire_grace_time, job.max_instances) == (True, None, 1)


def test_logs_name_the_run_and_hold_no_secret(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line is a JSON object with dataflow, stage and run; tracebacks show no variables."""
    configure_logging(settings)
    service = Service(settings)
    service.controller.register(DOCUMENT)
    drop(service, "a")

    def fails(plan: Any, *_: Any) -> Any:
        password = "canary-in-a-variable"
        raise OSError(f"no {len(password)}")

    service._engine.preparer.prepare = fails  # type: ignore[method-assign, assignment]
    step(service)
    service.stop()
    text = capsys.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    failed = next(line for line in lines if line["event"] == "run.failed")
    assert (failed["dataflow"], failed["stage"], failed["level"]) == ("urls", "count", "warning")
    assert failed["run"]
    assert failed["exception"]
    assert "canary" not in text


def test_a_service_takes_so_many_dataflows(settings: Settings) -> None:
    """One more is refused and leaves nothing; a limit below what there is loses nothing."""

    def limited(most: int) -> Service:
        return Service(settings.model_copy(update={"dataflows_max": most}))

    service = limited(2)
    for name in ("one", "two"):
        service.controller.register(DOCUMENT | {"name": name})
    with pytest.raises(DataflowsTooManyError, match="CBP_DATAFLOWS_MAX"):
        service.controller.register(DOCUMENT | {"name": "three"})
    assert not (settings.root / "tables" / "three").exists()
    assert not (settings.drop_root / "three").exists()
    with pytest.raises(AlreadyExistsError):
        service.controller.register(DOCUMENT | {"name": "two"})
    service.controller.delete("one")
    service.controller.register(DOCUMENT | {"name": "three"})
    service.stop()
    service = limited(1)
    service.start()
    drop(service, "a", dataflow="two")
    until(lambda: count(service, "a", "two") == 1)
    service.stop()


def test_a_wrong_database_is_a_coded_error(tmp_path: Path) -> None:
    """A service that cannot open its store says so in the library's words."""
    with pytest.raises(CbpError):
        Service(load_settings(root=tmp_path, engine="local", database_url="nosuch://x"))


# files beside files


class Hanging:
    """In place of a drop folder's `scan`: that of one dataflow waits until it is let go on."""

    def __init__(self, service: Service, dataflow: str) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self._scan, self._dataflow = service.drop_folder.scan, dataflow
        service.drop_folder.scan = self  # type: ignore[method-assign]

    def __call__(self, record: Any, dataflow: Any, **more: Any) -> Any:
        if record.name == self._dataflow:
            self.begun.set()
            self.ended.wait(6 * WAIT_SECONDS)
        return self._scan(record, dataflow, **more)


@pytest.mark.timeout(120)
def test_a_slow_file_of_one_dataflow_keeps_no_other_waiting(service: Service) -> None:
    """While a file of one is read, files dropped and uploaded for another are taken in and run."""
    for name in ("urls", "other"):
        service.controller.register(DOCUMENT | {"name": name})
    hanging = Hanging(service, "other")
    service.start()
    assert hanging.begun.wait(WAIT_SECONDS)
    drop(service, "a", name="1.jsonl")
    until(lambda: count(service, "a") == 1)
    record, dataflow = service.store.dataflow("urls"), service.controller.dataflow("urls")
    line = io.BytesIO(b'{"url": "c"}\n')
    service.drop_folder.upload(
        service.drop_folder.place(record, dataflow, "visits"), "2.jsonl", line
    )
    until(lambda: count(service, "c") == 1)
    assert not hanging.ended.is_set()
    hanging.ended.set()
    drop(service, "b", dataflow="other")
    until(lambda: count(service, "b", "other") == 1)


@contextmanager
def endless_files() -> Iterator[threading.Event]:
    """Let a file that is read never come to its end; yield what knows when one is."""
    begun, read = threading.Event(), format_readers.read_batches

    def batches(*given: Any, **more: Any) -> Iterator[Any]:
        first = next(read(*given, **more))
        while True:
            begun.set()
            yield first.slice(0, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_reader, "read_batches", batches)
        yield begun


@pytest.mark.timeout(120)
def test_a_stop_leaves_a_file_that_is_read_to_the_next_start(settings: Settings) -> None:
    """However large it is the stop waits for a batch of it only; its records come once then."""
    service = Service(settings)
    service.controller.register(DOCUMENT)
    with endless_files() as begun:
        service.start()
        drop(service, "a")
        assert begun.wait(WAIT_SECONDS)
        with structlog.testing.capture_logs() as logs:
            service.stop()
    (stopped,) = [log for log in logs if log["event"] == "service.stopped"]
    assert (stopped["drained"], stopped["duties_ended"]) == (True, True)
    assert not [log for log in logs if log["event"] == "scan.failed"]
    again = Service(settings)
    again.start()
    until(lambda: count(again, "a") == 1)
    again.stop()


@pytest.mark.timeout(120)
def test_a_stop_does_not_wait_for_a_device_that_hangs(tmp_path: Path) -> None:
    """It ends after `drain_seconds`, and says that it left somebody behind."""
    service = Service(load_settings(root=tmp_path, engine="local", token=TOKEN, drain_seconds=0.5))
    service.controller.register(DOCUMENT)
    hanging = Hanging(service, "urls")
    service.start()
    assert hanging.begun.wait(WAIT_SECONDS)
    with structlog.testing.capture_logs() as logs:
        service.stop()
    assert not hanging.ended.is_set()
    (stopped,) = [log for log in logs if log["event"] == "service.stopped"]
    assert not stopped["duties_ended"]
    hanging.ended.set()
    assert service._duties.scans.wait(WAIT_SECONDS)


@pytest.mark.timeout(120)
def test_who_retires_follows_once_no_file_is_read_any_more(settings: Settings) -> None:
    """A leader that lost its lease stops its readers of files, and waits for them.

    Once it leads again it takes files again.
    """
    service = Service(settings.model_copy(update={"lease_seconds": 1}))
    service.controller.register(DOCUMENT)
    hanging = Hanging(service, "urls")
    service.lead()
    service._attend()
    assert hanging.begun.wait(WAIT_SECONDS)
    service.leadership.retire("the lease is gone")
    service._attend()
    roles = [service.leadership.role]
    assert service._duties.scans.stopping()
    hanging.ended.set()
    service._attend()
    roles.append(service.leadership.role)
    assert roles == [Role.RETIRES, Role.FOLLOWS]
    drop(service, "a")
    service.lead()
    service._attend()
    until(lambda: bool(service.controller.tick().starts))
    service.stop()


@pytest.mark.timeout(120)
def test_a_start_waits_for_no_file_that_was_claimed(settings: Settings) -> None:
    """However large a file is that a crash left claimed: it is read beside a service that leads."""
    service = Service(settings)
    service.controller.register(DOCUMENT)
    record, dataflow = service.store.dataflow("urls"), service.controller.dataflow("urls")
    service.drop_folder.upload(
        service.drop_folder.place(record, dataflow, "visits"), "f", io.BytesIO(b'{"url": "a"}\n')
    )
    service.stop()
    with endless_files() as begun:
        service = Service(settings)
        starting = threading.Thread(target=service.start, daemon=True)
        starting.start()
        starting.join(WAIT_SECONDS)
        assert not starting.is_alive()
        assert begun.wait(WAIT_SECONDS)
        service.stop()


def test_a_service_reads_files_in_a_process_that_ends_with_it(settings: Settings) -> None:
    """By default a file is read beside the service, and nothing of that is left behind a stop."""
    service = Service(settings.model_copy(update={"reader_processes": True}))
    service.controller.register(DOCUMENT)
    service.lead()
    drop(service, "a")
    step(service)
    assert count(service, "a") == 1
    assert service._readers is not None
    (pid,) = service._readers.pids
    service.stop()
    assert service._readers.pids == []
    assert not Path(f"/proc/{pid}").exists()


def test_a_served_application_has_its_processes_before_the_first_file(settings: Settings) -> None:
    """A reader and a worker are started in the background, and end with it."""
    beside = {"reader_processes": True, "worker_processes": True}
    with serving(settings.model_copy(update=beside)):
        until(lambda: _started() == {"reader_process", "task_worker"})
    assert _started() == set()


def _started() -> set[str]:
    """Return the kinds of processes that this one has started for a service."""
    threads = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    children = [pid for thread in threads for pid in thread.read_text().split()]
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
    kinds = ("reader_process", "task_worker")
    return {kind for command in commands for kind in kinds if kind in command}


def test_a_stop_waits_for_no_run_that_was_given_up(settings: Settings) -> None:
    """A thread that hangs in an author's code ends with the process; the stop does not wait."""
    hung = threading.Event()
    service = Service(settings.model_copy(update={"run_seconds_max": 0.2}))
    service._engine.preparer.prepare = lambda *_: hung.wait()  # type: ignore[method-assign,assignment]
    service.start()
    try:
        service.controller.register(DOCUMENT)
        source = settings.drop_root / "urls" / "visits" / "incoming"
        (source / "a.jsonl").write_text('{"url": "/a"}\n')
        until(lambda: service.store.stages("urls")[0].error is not None)
        assert (service.store.stages("urls")[0].error or {})["error_code"] == "time_limit"
        stopper = threading.Thread(target=service.stop)
        stopper.start()
        stopper.join(WAIT_SECONDS)
        assert not stopper.is_alive()
    finally:
        hung.set()


def test_a_stop_goes_on_though_one_part_of_it_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is lost keeps neither the lease nor the database."""

    def lost() -> None:
        message = "gone"
        raise ConnectionError(message)

    closed = []
    monkeypatch.setattr(service._engine, "close", lost)
    monkeypatch.setattr(service.controller, "drain", lambda seconds: lost())
    monkeypatch.setattr(service.store, "close", lambda: closed.append(True))
    service.start()
    service.stop()
    assert closed == [True]
