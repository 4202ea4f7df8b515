"""What a leader does by the clock goes on after a failure."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from controller.app import Service
from controller.app.leader_duties import WATCH_AGAIN
from controller.app.service import WARM_SECONDS
from controller.ingest.folder.folder_report import ScanReport
from controller.settings import load_settings
from tests.controller.small_app import DOCUMENT, TOKEN, count, drop
from tests.controller.world import until


class Pauses(threading.Event):
    """An event whose waits end at once; it is set after so many of them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        if len(self.seconds) == self._most:
            self.set()
        return self.is_set()


def settings_of(root: Path) -> Any:
    return load_settings(
        root=root,
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token=TOKEN,
        settle_seconds=0,
        scan_seconds=3600,
        drain_seconds=10,
    )


def test_a_watch_that_fails_begins_again(tmp_path: Path) -> None:
    """After pauses that grow up to a limit; a failure that goes on is logged once."""
    service = Service(settings_of(tmp_path))
    duties, pauses = service._duties, Pauses(40)
    duties._stopped = pauses

    def fails(stop: threading.Event, wake: Callable[[frozenset[str]], None]) -> None:
        raise OSError(errno.EMFILE, "too many handles")

    service.drop_folder.watch = fails  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        duties.watch()
    service.stop()
    seconds = [pause or 0.0 for pause in pauses.seconds]
    assert len(seconds) == 40
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] < 1
    assert seconds[-1] == WATCH_AGAIN.most
    assert [log["event"] for log in logs].count("watch.failed") == 1


def test_a_failure_is_logged_again_for_a_later_dataflow_of_the_name(tmp_path: Path) -> None:
    """A failure is remembered until it is over, or its dataflow is deleted."""
    service = Service(settings_of(tmp_path))

    def fails(*_: Any, **__: Any) -> ScanReport:
        raise OSError("stale handle")

    service.drop_folder.scan = fails  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            service.controller.register(DOCUMENT)
            service.scan()
            service.scan()
            service.controller.delete("urls", purge=True)
            service._duties._ask_scans()
    service.stop()
    assert [log["event"] for log in logs].count("scan.failed") == 2


@pytest.mark.timeout(120)
def test_a_name_that_is_no_text_ends_no_watch(tmp_path: Path) -> None:
    """Files that come later are taken in by a hint, long before the next listing is due."""
    service = Service(settings_of(tmp_path))
    service.controller.register(DOCUMENT)
    incoming = os.fsencode(service.settings.drop_root / "urls" / "visits" / "incoming")
    service.start()
    with structlog.testing.capture_logs() as logs:
        for number in range(100):
            path = incoming + b"/.\xff%d" % number
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
        drop(service, "a")
        until(lambda: count(service, "a") == 1)
    service.stop()
    assert "watch.failed" not in [log["event"] for log in logs]


@pytest.mark.timeout(120)
def test_without_any_event_a_dropped_file_is_found_by_the_next_listing(tmp_path: Path) -> None:
    """As on NFS, where another machine's files cause none: by the interval and the settle time."""
    settings = settings_of(tmp_path).model_copy(update={"scan_seconds": 0.1, "settle_seconds": 0.2})
    service = Service(settings)
    service.controller.register(DOCUMENT)
    service.drop_folder.watch = lambda stop, wake: stop.wait()  # type: ignore[assignment]
    service.start()
    drop(service, "a")
    until(lambda: count(service, "a") == 1)
    drop(service, "a", "b", name="g.jsonl")
    until(lambda: count(service, "b") == 1)
    assert count(service, "a") == 2
    service.stop()


class Waits:
    """A drop folder whose file settles at one time, however often it is listed."""

    def __init__(self, settles_at: datetime) -> None:
        self.report = ScanReport(waiting=1, settles_at=settles_at)

    def scan(self, *_: Any, **__: Any) -> ScanReport:
        return self.report

    @property
    def buckets(self) -> Waits:
        return self

    def due(self, *_: Any) -> list[str]:
        return []


def test_listings_in_between_do_not_move_the_time_at_which_a_file_has_settled(
    tmp_path: Path,
) -> None:
    """The listing is due when the file has settled, after one listing and after many."""
    service = Service(settings_of(tmp_path))
    service.controller.register(DOCUMENT)
    duties = service._duties
    settles_at = datetime.now(UTC) + timedelta(seconds=600)
    duties._drop_folder = Waits(settles_at)  # type: ignore[assignment]
    duties.begin()
    try:
        due = set[int]()
        for _ in range(3):
            duties.scan()
            assert duties.scheduler is not None
            job = duties.scheduler.get_job("settle:urls")
            due.add(round((job.next_run_time - settles_at).total_seconds()))
        assert due == {0}
    finally:
        duties.end()
        service.stop()


def test_a_process_is_kept_ready_until_the_stop(tmp_path: Path) -> None:
    """It is looked at again after each pause, and a stop ends the wait."""
    service = Service(settings_of(tmp_path))
    pauses, looked = Pauses(3), list[None]()
    service._stop = pauses
    service._keep_warm(lambda: looked.append(None))
    assert len(looked) == 3
    assert pauses.seconds == [WARM_SECONDS] * 3
    service._keep_warm(lambda: looked.append(None))
    assert len(looked) == 3
    service.stop()


def test_a_process_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    """An error ends neither the checks nor the service."""
    service = Service(settings_of(tmp_path))
    service._stop, tried = Pauses(3), list[None]()

    def fails() -> None:
        tried.append(None)
        raise OSError("no memory for a process")

    service._keep_warm(fails)
    assert len(tried) == 3
    service.stop()
