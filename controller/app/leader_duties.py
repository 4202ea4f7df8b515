"""Periodic work of the leader: it lists and cleans drop folders, and publishes to sinks.

A drop folder is listed at an event of the file system, or at the time that its last listing named.
The scheduler asks for the listings that no event announces (`DueListings`), and for passes over
sinks that have something to publish. Each listing of a dataflow (with the files that it reads),
each fetch of objects for a source and each pass over a sink has a thread of its own while it lasts.
A fetch is asked for when its dataflow is listed. The scheduler exists only while this instance
leads.

Guaranteed: a listing that fails or hangs keeps no other dataflow waiting, and its failure is logged
once (tests/controller/app/test_service.py). A watch that fails begins again after a pause
(tests/controller/app/test_leader_duties.py). Idle folders are not listed. If an event was lost, or
came while its dataflow was held, a later listing replaces it (tests/controller/app/test_idle.py).

`DueListings` chooses the drop folders that are listed at an interval, without an event or a timer:

    another revision   a file was taken in, a resume lets files in, a version has other sources
    missed             it was held when an event or a timer came, or its last listing failed
    without events     only listings find the files of a source, as on a network file system
    its turn           an event can be lost, so each dataflow is listed once in 300 intervals

So a service with few dataflows lists one of them each interval, and one with a thousand lists four.

`Rounds` runs one kind of this work for all dataflows, in parallel, within a limit of places. The
work of one dataflow never runs twice at a time, the one that has waited longest is next, and `ask`
never blocks (tests/controller/app/test_background_rounds.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import structlog
from apscheduler.executors.base import MaxInstancesReachedError
from apscheduler.executors.pool import ThreadPoolExecutor as JobThreads
from apscheduler.schedulers.background import BackgroundScheduler

from cbp.errors import CbpError, LeaseLostError, LogConflictError, NotFoundError, OperatingError
from cbp.model.schedule.backoff import Backoff
from cbp.model.schedule.idle_until import next_in_turn
from cbp.model.schedule.parallel_runs import ActiveRun, Places
from controller.clock import SteadyClock, bring_forward
from controller.ingest.drop_folder import DropFolder
from controller.ingest.errors import IntakeStoppedError, NewColumnsError
from controller.ingest.folder.folder_report import ScanReport
from controller.loop import Controller
from controller.loop.operations.added_columns import add_columns
from controller.loop.runs.threads import Threads
from controller.run_logs import run_logs_of
from controller.settings import Settings
from controller.sinks import SinkPublishing
from controller.store.base import DataflowRecord, Store

CLEAN_SECONDS = 600.0
FORGET_SECONDS = 30.0
LOGS_SECONDS = 60.0

SCANS = Places(4, slow_seconds=10.0, slow_most=12)
"""How many dataflows have their drop folders listed, or cleaned, at a time. A large file, or a
device that hangs, occupies a place for ten seconds."""

FETCHES = Places(4, slow_seconds=12.0, slow_most=12)
"""For how many sources objects are fetched at a time; one that hangs occupies a place for some
seconds more than an orderly fetch takes."""

SINKS = Places(4, slow_seconds=10.0, slow_most=12)
"""How many sinks are written to at a time; one that hangs occupies a place for ten seconds."""

WATCH_AGAIN = Backoff((0.2, 1.0), 60.0)
"""Pauses before a failed watch is restarted, such as one without a handle of the system."""

_log = structlog.get_logger(__name__)


class LeaderDuties:
    """Starts with `begin`, and ends with `end` and `wait`; can then be started again.

    Args:
        on_columns: Called with a dataflow, the added columns of a file, and the version, after
            columns were added to the schema of a source.
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
        seconds: Callable[[], float],
        sinks: SinkPublishing,
        stopped: threading.Event,
        on_columns: Callable[[str, NewColumnsError, int], None],
    ) -> None:
        self._settings, self._store = settings, store
        self._run_logs = run_logs_of(settings)
        self._drop_folder, self._controller = drop_folder, controller
        self._now, self._clock, self._stopped = now, clock, stopped
        self._seconds, self._sinks, self._on_columns = seconds, sinks, on_columns

        def rounds(name: str, work: Callable[[str], None], places: Places) -> Rounds:
            return Rounds(name, work, executor=Threads(name), places=places, clock=clock)

        self.scans = rounds("scan", self._scan, SCANS)
        self.cleans = rounds("clean", self._clean, SCANS)
        self.fetches = rounds("fetch", self._fetch, FETCHES)
        self.publications = rounds("sink", self._publish, SINKS)
        self._rounds = (self.scans, self.cleans, self.fetches, self.publications)
        self.scheduler: BackgroundScheduler | None = None
        self._listings, self._seen_at = DueListings(), now()
        self._complaints: dict[str, str] = {}

    def begin(self) -> None:
        """Start the scheduler."""
        scheduler = _scheduler()
        every = {
            "scan": (self._ask_scans, self._settings.scan_seconds),
            "clean": (self._ask_cleans, CLEAN_SECONDS),
            "sinks": (self._ask_sinks, self._settings.tick_seconds),
            "forget": (self.forget_events, FORGET_SECONDS),
            "logs": (self.prune_logs, LOGS_SECONDS),
        }
        self._listings.begin()
        for rounds in self._rounds:
            rounds.begin()
        for name, (work, seconds) in every.items():
            scheduler.add_job(work, "interval", seconds=seconds, id=name)
        scheduler.start()
        self.scheduler = scheduler

    def end(self) -> None:
        """Submit no more work, and ask work under way to end; see `wait`."""
        scheduler, self.scheduler = self.scheduler, None
        for rounds in self._rounds:
            rounds.stop()
        if scheduler is not None:
            scheduler.shutdown(wait=False)  # its jobs only submit work

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for files being read; return whether none is left."""
        until = self._seconds() + timeout
        return all(rounds.wait(max(0.0, until - self._seconds())) for rounds in self._rounds)

    def bring_forward(self) -> None:
        """Bring forward work that the scheduler would do too late after the clock was set back."""
        now = self._now()
        if now < self._seen_at:
            self._listings.begin()  # lists all folders, since timers of files may be late
        self._seen_at = now
        if (scheduler := self.scheduler) is not None:
            bring_forward(scheduler.get_jobs(), now)

    def watch(self) -> None:
        """List a drop folder at each event of the file system, until a stop.

        Events are lost while a failed watch is restarted, so all folders are listed after that.
        """
        failures, logged = 0, ""
        while not self._stopped.is_set():
            begun = self._seconds()
            try:
                self._drop_folder.watch(self._stopped, self._scan_soon)
                return
            except Exception as error:  # a hint only: the scheduler lists the folders anyway
                failures = 1 if self._seconds() - begun > WATCH_AGAIN.most else failures + 1
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("watch.failed", error=type(error).__name__, reason=logged)
            self._stopped.wait(WATCH_AGAIN.seconds(failures))
            self._scan_soon(self._scanned())

    def forget_events(self) -> None:
        """Remove events beyond the limits of number or age; a failure is logged."""
        age_ms = int(self._settings.events_hours * 3_600_000)
        before_ms = int(self._now().timestamp() * 1000) - age_ms
        try:
            while self._store.forget_events(keep=self._settings.events_max, before_ms=before_ms):
                pass
        except CbpError as error:
            _log.warning("events.not_forgotten", error=error.as_dict())

    def prune_logs(self) -> None:
        """Remove the oldest logs of runs beyond the limits; a failure is logged."""
        try:
            self._run_logs.prune(self._now().timestamp())
        except OSError as error:
            _log.warning("logs.not_pruned", error=str(error))

    def _ask_scans(self) -> None:
        revisions = self._store.revisions()
        for name in tuple(self._complaints):
            if name not in revisions:  # deleted; a later dataflow of its name is another one
                self._complaints.pop(name, None)
        self.scans.ask(self._listings.due(revisions, self._controller.held))

    def _ask_cleans(self) -> None:
        self.cleans.ask(record.name for record in self._store.dataflows())

    def _ask_sinks(self) -> None:
        held = self._controller.held
        pairs = self._sinks.due()
        self.publications.ask(f"{name}/{sink}" for name, sink in pairs if name not in held)

    def fetch(self) -> None:
        """Fetch objects for every due source, in this thread; for tests that step by hand."""
        for name in self._scanned():
            for source in self._due_fetches(name):
                self._fetch(f"{name}/{source}")

    def _due_fetches(self, name: str) -> list[str]:
        record, dataflow = self._store.dataflow(name), self._controller.dataflow(name)
        return self._drop_folder.buckets.due(record, dataflow)

    def _fetch(self, which: str) -> None:
        """Claim new objects of a source; failures are shown with the source, and retried."""
        name, _, source = which.partition("/")
        try:
            record, dataflow = self._store.dataflow(name), self._controller.dataflow(name)
            self._drop_folder.buckets.fetch(
                record,
                dataflow,
                source,
                hold=lambda: self._registered(record),
                stopping=self.fetches.stopping,
            )
        except (NotFoundError, IntakeStoppedError):
            return  # deleted meanwhile, or left to the next start
        except LogConflictError as error:
            self._controller.stop_leading(error.message)

    @contextmanager
    def _registered(self, record: DataflowRecord) -> Iterator[None]:
        """Hold a dataflow; raises `NotFoundError` if it was deleted or created again meanwhile."""
        with self._controller.exclusive(record.name, "takes in objects of its buckets"):
            if self._store.dataflow(record.name).created_at != record.created_at:
                raise NotFoundError(kind="dataflow", name=record.name)
            yield

    def publish(self) -> None:
        """Make one pass over every sink, in this thread; for tests that step by hand."""
        for name, sink in self._sinks.all():
            self._publish(f"{name}/{sink}")

    def _publish(self, which: str) -> None:
        """Make one pass over a sink; its failures are stored, and retried."""
        name, _, sink = which.partition("/")
        try:
            more = self._sinks.publish(name, sink, stopping=self.publications.stopping)
        except (NotFoundError, LeaseLostError):
            return  # deleted meanwhile, or left to the instance that leads
        except LogConflictError as error:
            self._controller.stop_leading(error.message)
        except CbpError as error:  # the next round tries again
            _log.warning("sink.not_begun", dataflow=name, sink=sink, error=error.as_dict())
        else:
            if more and self.scheduler is not None:
                self.publications.ask([which])

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
            self.fetches.ask(f"{name}/{source}" for source in self._due_fetches(name))
            record, report = self._scan_one(name)
        except (NotFoundError, IntakeStoppedError):
            return  # deleted meanwhile, or left to the next start
        except LogConflictError as error:
            self._controller.stop_leading(error.message)
        except Exception as error:  # last resort of a job: the next listing tries again
            self._complain(name, str(error), error)
            self._listings.miss([name])
        else:
            self._listings.poll(name, report.polled)
            if report.new_columns:
                self._add_columns(record, report.new_columns[0])
            elif report.ready:
                self._scan_soon([name])
            elif report.next_at is not None:
                self._scan_at(name, report.next_at)

    def _add_columns(self, record: DataflowRecord, wanted: NewColumnsError) -> None:
        """Add new columns of a file to the schema of its source; then the file is read again."""
        try:
            version = add_columns(self._controller.change, record, wanted.source, wanted.columns)
        except LogConflictError as error:
            self._controller.stop_leading(error.message)
            return
        except CbpError as error:
            again = isinstance(error, OperatingError)
            self._drop_folder.refuse_columns(wanted, record.name, error, again=again)
        else:
            self._on_columns(record.name, wanted, version)
        self._scan_soon([record.name])

    def _scan_one(self, name: str) -> tuple[DataflowRecord, ScanReport]:
        # Not while the dataflow is deleted: a scan would create its folders again.
        with self._controller.exclusive(name, "takes in files"):
            record, dataflow = self._store.dataflow(name), self._controller.dataflow(name)
            report = self._drop_folder.scan(record, dataflow, stopping=self.scans.stopping)
        self._complain(name, "; ".join(error.message for error in report.failures))
        return record, report

    def _complain(self, dataflow: str, reason: str, error: Exception | None = None) -> None:
        """Log a failure once, not at every listing; `reason` is empty without a failure."""
        if self._complaints.get(dataflow, "") == reason:
            return
        self._complaints[dataflow] = reason
        if reason:
            _log.error("scan.failed", dataflow=dataflow, reason=reason, exc_info=error)
        else:
            _log.info("scan.works_again", dataflow=dataflow)

    def _scan_soon(self, dataflows: Iterable[str]) -> None:
        """List the drop folders of these dataflows at once, if this instance leads."""
        if self.scheduler is not None and not self._stopped.is_set():
            due, held = set(dataflows), self._controller.held
            self._listings.miss(due.intersection(held))
            self.scans.ask(sorted(due.difference(held)))

    def _scan_at(self, dataflow: str, when: datetime) -> None:
        """List the drop folders of a dataflow also at this time of the service's clock.

        Listings before it do not postpone it, so a file waits for one settle time only.
        """
        scheduler = self.scheduler
        if scheduler is None or self._stopped.is_set():
            return
        scheduler.add_job(
            self._scan_soon,
            "date",
            run_date=self._now() + (when - self._clock()),
            args=[[dataflow]],
            id=f"settle:{dataflow}",
            replace_existing=True,
            max_instances=100,  # a skipped job would not be repeated
        )


def _scheduler() -> BackgroundScheduler:
    """Return a scheduler that runs each due job once, even if it is late."""
    return BackgroundScheduler(
        timezone=UTC,
        executors={"default": _OneOfEach(2)},
        job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
    )


class _OneOfEach(JobThreads):  # type: ignore[misc]  # it has no types
    """Skips a job that is due while it still waits or runs, since that also does this work."""

    def submit_job(self, job: Any, run_times: list[datetime]) -> None:
        """Submit a job, unless it still waits or runs: APScheduler would then log a warning."""
        with suppress(MaxInstancesReachedError):
            super().submit_job(job, run_times)


class DueListings:
    """Remembers which listings are due; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revisions: Mapping[str, int] = {}
        self._missed: set[str] = set()
        self._polled: set[str] = set()
        self._turn = ""

    def begin(self) -> None:
        """Begin a term, in which nothing has been listed yet."""
        with self._lock:
            self._revisions, self._missed, self._polled = {}, set(), set()

    def miss(self, names: Iterable[str]) -> None:
        """Note that dataflows could not be listed when they were due."""
        with self._lock:
            self._missed.update(names)

    def poll(self, name: str, needed: bool) -> None:
        """Note whether a dataflow has a source whose files only listings find."""
        with self._lock:
            if needed:
                self._polled.add(name)
            else:
                self._polled.discard(name)

    def due(self, revisions: Mapping[str, int], held: Collection[str]) -> list[str]:
        """Return the dataflows to list now, by name; held dataflows are listed later."""
        with self._lock:
            turn = next_in_turn(list(revisions), self._turn)
            self._turn = turn[-1] if turn else ""
            known, self._revisions = self._revisions, dict(revisions)
            changed = {name for name, one in revisions.items() if known.get(name) != one}
            self._polled &= revisions.keys()
            wanted = (changed | self._missed | self._polled | set(turn)) & revisions.keys()
            self._missed = wanted.intersection(held)
            return sorted(wanted.difference(held))


class Rounds:
    """Runs the work of dataflows in threads; safe to use from several threads."""

    def __init__(
        self,
        name: str,
        work: Callable[[str], None],
        *,
        executor: Executor,
        places: Places,
        clock: Callable[[], datetime],
    ) -> None:
        self._name, self._work, self._executor = name, work, executor
        self._places, self._clock = places, clock
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._under_way: dict[str, datetime] = {}
        self._stopping = False

    def ask(self, dataflows: Iterable[str]) -> None:
        """Queue work for these dataflows, after waiting ones; returns at once.

        A dataflow whose work is running is queued, too: something may have arrived since it began.
        """
        with self._changed:
            if self._stopping:
                return
            for dataflow in dataflows:
                self._waiting.setdefault(dataflow)
        self._start()

    def stopping(self) -> bool:
        """Return whether running work should end as soon as it can."""
        return self._stopping

    def begin(self) -> None:
        """Accept work again, once the running work has ended."""
        with self._changed:
            self._stopping = False

    def stop(self) -> None:
        """Start no more work, and ask running work to stop; returns at once."""
        with self._changed:
            self._stopping = True
            self._waiting.clear()

    def wait(self, timeout: float) -> bool:
        """Wait until no work is running; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, timeout)

    def _start(self) -> None:
        while (dataflow := self._next()) is not None:
            self._executor.submit(self._do, dataflow)

    def _next(self) -> str | None:
        with self._changed:
            now = self._clock()
            first = next((name for name in self._waiting if name not in self._under_way), None)
            works = [ActiveRun(name, "", since) for name, since in self._under_way.items()]
            # Whether there is a place depends only on running work: checking one name is enough.
            if first is None or self._places.next(works, [first], now) is None:
                return None
            del self._waiting[first]
            self._under_way[first] = now
            return first

    def _do(self, dataflow: str) -> None:
        try:
            self._work(dataflow)
        except Exception:  # a thread must not die: the next turn tries again
            _log.exception("round.failed", work=self._name, dataflow=dataflow)
        finally:
            with self._changed:
                del self._under_way[dataflow]
                self._changed.notify_all()
            self._start()
