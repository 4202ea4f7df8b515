"""What only a leader does by the clock: it lists and cleans drop folders, and wakes the loop.

A scheduler starts the listings of drop folders, and a watcher hints that a listing is due. Each
listing of a dataflow (with the files that it reads) has a thread of its own while it lasts. The
scheduler exists only while this instance leads.

Guaranteed: a listing that fails or hangs keeps no other dataflow waiting, and its failure is logged
once (tests/controller/app/test_service.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor as JobThreads
from apscheduler.schedulers.background import BackgroundScheduler

from cbp.errors import CbpError, LogConflictError, NotFoundError
from cbp.model.schedule.slots import Places
from controller.clock import SteadyClock, bring_forward
from controller.ingest import DropFolder, IntakeStoppedError, Rounds, ScanReport
from controller.loop import Controller
from controller.loop.runs.threads import Threads
from controller.settings import Settings
from controller.store.base import Store

__all__ = ["LeaderDuties"]

CLEAN_SECONDS = 600.0

SCANS = Places(4, slow_seconds=10.0, slow_most=12)
"""Dataflows whose drop folders are worked on at a time. A large file, or a device that hangs,
occupies a place for ten seconds."""


_log = structlog.get_logger(__name__)


class LeaderDuties:
    """Begins with `begin`, and ends with `end` and `wait`; may begin again.

    Args:
        settings: `tick_seconds`, `scan_seconds` and `settle_seconds`.
        store: Names the dataflows.
        drop_folder: Takes in files.
        controller: Is woken; says which dataflows are held.
        clock: The clock of the service.
        now: The machine's clock, by which the scheduler goes.
        scan_threads: Threads that list.
        clean_threads: Threads that clean.
        stopped: Set once the service stops.

    Attributes:
        scans: The listings under way.
        cleans: The cleanings under way.
        scheduler: Exists while this instance leads.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        drop_folder: DropFolder,
        controller: Controller,
        clock: SteadyClock,
        now: Callable[[], datetime],
        scan_threads: Threads,
        clean_threads: Threads,
        stopped: threading.Event,
    ) -> None:
        self._settings, self._store = settings, store
        self._drop_folder, self._controller = drop_folder, controller
        self._now, self._stopped = now, stopped
        self.scans = Rounds("scan", self._scan, executor=scan_threads, places=SCANS, clock=clock)
        self.cleans = Rounds(
            "clean", self._clean, executor=clean_threads, places=SCANS, clock=clock
        )
        self.scheduler: BackgroundScheduler | None = None
        self._complaints: dict[str, str] = {}

    def begin(self) -> None:
        """Start the scheduler."""
        scheduler = _scheduler()
        every = {
            "tick": (self._controller.wake, self._settings.tick_seconds),
            "scan": (self._ask_scans, self._settings.scan_seconds),
            "clean": (self._ask_cleans, CLEAN_SECONDS),
        }
        for rounds in (self.scans, self.cleans):
            rounds.begin()
        for name, (work, seconds) in every.items():
            scheduler.add_job(work, "interval", seconds=seconds, id=name)
        scheduler.start()
        self.scheduler = scheduler

    def end(self) -> None:
        """Submit no more work, and ask what is under way to end; see `wait`."""
        scheduler, self.scheduler = self.scheduler, None
        for rounds in (self.scans, self.cleans):
            rounds.stop()
        if scheduler is not None:
            scheduler.shutdown(wait=False)  # its jobs only submit work

    def wait(self, timeout: float) -> bool:
        """Wait for the reading of files to end; return whether none is under way any more.

        Args:
            timeout: In seconds.
        """
        until = time.monotonic() + timeout
        return all(
            rounds.wait(max(0.0, until - time.monotonic())) for rounds in (self.scans, self.cleans)
        )

    def bring_forward(self) -> None:
        """Bring forward what the scheduler would do too late, as its clock was set back."""
        if (scheduler := self.scheduler) is not None:
            bring_forward(scheduler.get_jobs(), datetime.now(UTC))

    def watch(self) -> None:
        """Bring the next listing forward at each hint of the file system, until a stop."""
        try:
            self._drop_folder.watch(self._stopped, self._scan_soon)
        except Exception:  # a hint only: the scheduler lists the folders anyway
            _log.exception("watch.failed")

    def _ask_scans(self) -> None:
        self.scans.ask(self._scanned())

    def _ask_cleans(self) -> None:
        self.cleans.ask(record.name for record in self._store.dataflows())

    def _scanned(self) -> list[str]:
        # During a version change files wait, to be checked by the new version.
        held = self._controller.held
        return [record.name for record in self._store.dataflows() if record.name not in held]

    def scan(self) -> None:
        """List every drop folder once, in this thread; for tests that step by hand."""
        for name in self._scanned():
            self._scan(name)

    def clean(self) -> None:
        """Clean every drop folder once, in this thread; for tests that step by hand."""
        for record in self._store.dataflows():
            self._clean(record.name)

    def _clean(self, name: str) -> None:
        """Remove dropped files whose retention has ended; failures are retried."""
        try:
            record = self._store.dataflow(name)
            dataflow = self._controller.dataflow(name)
            self._drop_folder.clean(record, dataflow, stopping=self.cleans.stopping)
        except CbpError as error:
            _log.warning("clean.failed", dataflow=name, error=error.as_dict())
        except Exception:  # last resort of a job: the next round tries again
            _log.exception("clean.failed", dataflow=name)

    def _scan(self, name: str) -> None:
        """Make one pass over the drop folders of a dataflow; failures are retried."""
        try:
            report = self._scan_one(name)
        except (NotFoundError, IntakeStoppedError):
            return  # deleted meanwhile, or left to the next start
        except LogConflictError as error:
            self._controller.stop_leading(error.message)
        except Exception as error:  # last resort of a job: the next listing tries again
            self._complain(name, str(error), error)
        else:
            if report.ready:
                self._scan_soon()
            elif report.waiting:
                self._scan_at(self._now() + timedelta(seconds=self._settings.settle_seconds))

    def _scan_one(self, name: str) -> ScanReport:
        # Not during a deletion: a scan would create its folders again.
        with self._controller.exclusive(name, "has its files read"):
            record, dataflow = self._store.dataflow(name), self._controller.dataflow(name)
            report = self._drop_folder.scan(record, dataflow, stopping=self.scans.stopping)
        self._complain(name, "; ".join(error.message for error in report.failures))
        return report

    def _complain(self, dataflow: str, reason: str, error: Exception | None = None) -> None:
        """Log a failure once, not at every listing; `reason` is empty without a failure."""
        if self._complaints.get(dataflow, "") == reason:
            return
        self._complaints[dataflow] = reason
        if reason:
            _log.error("scan.failed", dataflow=dataflow, reason=reason, exc_info=error)
        else:
            _log.info("scan.works_again", dataflow=dataflow)

    def _scan_soon(self) -> None:
        self._scan_at(self._now())

    def _scan_at(self, when: datetime) -> None:
        """Bring the next listing forward; the interval continues from there."""
        scheduler = self.scheduler
        if scheduler is None or self._stopped.is_set():
            return
        if (job := scheduler.get_job("scan")) is not None:
            job.modify(next_run_time=min(when, job.next_run_time or when))


def _scheduler() -> BackgroundScheduler:
    """Return a scheduler that neither skips jobs nor piles them up."""
    return BackgroundScheduler(
        timezone=UTC,
        executors={"default": JobThreads(2)},
        job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
    )
