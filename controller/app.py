"""The service: the only module that constructs all parts and connects them.

    settings -> store -> files -> engine -> controller -> drop folder -> scheduler -> API

Threads: one loop thread ticks whenever something happened, or once per `tick_seconds`. A scheduler
starts the listings of drop folders, and a watcher hints that a listing is due. Each listing of a
dataflow (with the files that it reads), each run and each piece of framing has a thread of its own
while it lasts; `parallel_runs_max` limits the runs. On a shared database one more thread keeps the
lease. The scheduler exists only while this instance leads, and every durable effect passes the
fence first. An instance that follows answers reads, with its engine warm.

Guaranteed: the API answers only after recovery, or once another instance is known to lead. A stop
waits `drain_seconds` for the runs under way, cancels the rest and leaves it to the next start,
together with the files that are being read (tests/controller/test_app.py).
Not needed for correctness: an orderly stop.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor as JobThreads
from apscheduler.schedulers.background import BackgroundScheduler
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import files_for
from cbp.errors import CbpError, LeaseLostError, LogConflictError, NotFoundError
from cbp.model.flow.retention import FlowRetention
from cbp.model.schedule.lease import Role
from cbp.model.schedule.slots import Places
from controller.api import create_api
from controller.clock import SteadyClock, bring_forward
from controller.ingest import (
    DropFolder,
    IngestLimits,
    IntakeStoppedError,
    ReaderPool,
    Rounds,
    ScanReport,
)
from controller.ingest.reading import read_file
from controller.loop import (
    Controller,
    Environment,
    Fence,
    Leadership,
    RetryPolicy,
    assemble,
)
from controller.loop.housekeeping.input_retention import Keep
from controller.loop.leadership.lease_keeper import boot_seconds
from controller.loop.records.dataflow_folder import warn_of_other_places
from controller.loop.runs.threads import Threads
from controller.registry import Registry
from controller.settings import Settings, load_settings
from controller.store import open_store

__all__ = ["Service", "api_of", "configure_logging", "create_app", "engine_for"]

CLEAN_SECONDS = 600.0

SCANS = Places(4, slow_seconds=10.0, slow_most=12)
"""Dataflows whose drop folders are worked on at a time. A large file, or a device that hangs,
occupies a place for ten seconds."""

_log = structlog.get_logger(__name__)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the service as an ASGI application; it works while its lifespan lasts.

    Args:
        settings: By default those of the environment.

    Raises:
        DefinitionError: If a setting is wrong.
        OperatingError: If the database cannot be opened, or is in use.
    """
    settings = settings or load_settings()
    configure_logging(settings)
    return api_of(Service(settings))


def api_of(service: Service) -> FastAPI:
    """Return a service as an ASGI application; it works while its lifespan lasts."""
    api = create_api(
        controller=service.controller,
        store=service.store,
        drop_folder=service.drop_folder,
        settings=service.settings,
        standing=service.leadership.standing,
        lifespan=service.lifespan,
        allowed_hosts=[urlsplit(service.settings.advertise_url).hostname or ""],
    )
    api.state.begin_stop = service.begin_stop
    return api


def engine_for(
    settings: Settings, *, faults: Faults = NO_FAULTS, limits: EngineLimits = DEFAULT_LIMITS
) -> Engine:
    """Return the engine that the settings name; imports Spark only if needed.

    Args:
        settings: `engine`, `cache`, and the settings that begin with `spark_` or `worker_`.
        faults: Called at every durable effect.
        limits: The engine's limits.
    """
    cache = str(settings.cache)
    if settings.engine == "local":
        from cbp.engine.direct import LocalEngine
        from cbp.engine.workers.executor import WorkerExecutor

        workers = WorkerExecutor(
            free_max=settings.parallel_runs_max, memory_bytes_max=settings.worker_memory_bytes_max
        )
        executor = workers if settings.worker_processes else None
        return LocalEngine(cache=cache, executor=executor, faults=faults, limits=limits)
    from cbp.engine.spark import SparkEngine, SparkSettings

    session = SparkSettings(
        master=settings.spark_master,
        conf=settings.spark_conf,
        driver_memory=settings.spark_driver_memory,
        resident_workers=settings.resident_workers,
        job_start_seconds=settings.job_start_seconds,
        plan_optimisations=settings.plan_optimisations,
        scratch=True,
    )
    return SparkEngine(session, cache=cache, faults=faults, limits=limits)


class Service:
    """All parts of one service, connected; `start` starts it.

    Args:
        settings: The settings of the service.
        engine: Replaces the engine that the settings name.
        faults: Called at every durable effect.

    Attributes:
        store: The metadata store.
        parts: The parts of the controller.
        controller: The controller, which runs the dataflows.
        drop_folder: Takes in files.
        leadership: Whether this instance leads.
    """

    def __init__(
        self, settings: Settings, *, engine: Engine | None = None, faults: Faults = NO_FAULTS
    ) -> None:
        self.settings = settings
        for folder in (settings.root, settings.drop_root, settings.cache):
            folder.mkdir(parents=True, exist_ok=True)
        # The store has its own fence: followers write there what operators want.
        self.store = open_store(settings.database_url, faults=faults)
        faults = fence = Fence(faults)
        files = files_for(settings.tables, faults=faults, settings=settings.spark_conf)
        self._engine = engine or engine_for(settings, faults=faults)
        self._clock = SteadyClock(_now, boot_seconds)
        self._threads = Threads("run")
        self._framers = Threads("frame")
        self._readers = ReaderPool() if settings.reader_processes else None
        self.drop_folder = DropFolder(
            store=self.store,
            files=files,
            clock=self._clock,
            drop_root=settings.drop_root,
            on_accept=self._wake,
            on_close=self._close,
            settle_seconds=settings.settle_seconds,
            limits=_limits(settings),
            reader=read_file if self._readers is None else self._readers,
            keep=FlowRetention(settings.keep_finished_hours * 3600, settings.keep_finished_bytes),
            faults=faults,
        )
        self.parts = assemble(
            Environment(
                store=self.store,
                engine=self._engine,
                registry=Registry(settings.allowed_packages),
                files=files,
                clock=self._clock,
                tables_root=settings.tables.rstrip("/"),
                places=Places(
                    settings.parallel_runs_max, settings.slow_run_seconds, settings.slow_runs_max
                ),
                retry=RetryPolicy(
                    settings.failures_max,
                    settings.retry_delays_seconds,
                    settings.retry_seconds_max,
                ),
                executor=self._threads,
                arrivals=self.drop_folder,
                draw=random.random,
                framers=self._framers,
                answerers=Threads("answer"),
                removers=Threads("remove"),
                run_seconds_max=settings.run_seconds_max,
                runnable_seconds_max=settings.runnable_seconds_max,
                faults=faults,
                retention=_retention(settings),
                keep=Keep(settings.input_retention, settings.keep_runs),
                collect_every=settings.collect_every,
                scrub_seconds=settings.scrub_days * 86400,
                dataflows_max=settings.dataflows_max,
            )
        )
        self.controller = Controller(self.parts)
        self._scans = self._rounds("scan", self._scan)
        self._cleans = self._rounds("clean", self._clean)
        self.leadership = Leadership(
            store=self.store,
            address=settings.advertise_url,
            seconds=settings.lease_seconds,
            on_change=self.controller.wake,
            on_retire=self.controller.stop_leading,
        )
        fence.check = self.leadership.check
        self._stop, self._released = threading.Event(), threading.Event()
        self._stop_by = math.inf
        self._duties = threading.Lock()
        self._scheduler: BackgroundScheduler | None = None
        self._keeper = threading.Thread(target=self._keep_lease, name="lease", daemon=True)
        self._loop = threading.Thread(target=self._tick_forever, name="loop", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._complaints: dict[str, str] = {}

    def lifespan(self, _app: Any) -> AbstractAsyncContextManager[None]:
        """Return the context in which an ASGI server runs the service."""
        return self._lifespan()

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        # Both calls block for as long as recovery and runs under way take.
        await run_in_threadpool(self.start)
        try:
            yield
        finally:
            await run_in_threadpool(self.stop)

    def start(self) -> None:
        """Take the lease and recover, or follow; then start to tick."""
        settings = self.settings
        settings.ensure_token()
        warn_of_other_places(self.store.dataflows(), settings.tables.rstrip("/"))
        self.leadership.begin()
        if self.store.shared:
            self._keeper.start()
        self._attend()
        self._loop.start()
        self._watcher.start()
        role = self.leadership.role
        _log.info("service.started", url=settings.url, engine=settings.engine, role=role)

    def lead(self) -> None:
        """Take the lease and recover, without an API: for commands that write like a leader.

        Waits for the present lease to run out; `stop` releases it.

        Raises:
            LeaseLostError: If another controller leads.
        """
        deadline = time.monotonic() + 2 * self.settings.lease_seconds
        self.leadership.begin()
        while (role := self.leadership.role) is not Role.LEADS:
            if time.monotonic() > deadline:
                raise LeaseLostError(None, self.leadership.reason(role))
            self._released.wait(self.leadership.interval_seconds)
            self.leadership.keep()
        if self.store.shared:
            self._keeper.start()
        self.controller.lead(self.leadership.epoch)

    def begin_stop(self) -> None:
        """Start no more runs from now on; what is under way has `drain_seconds` to end.

        Returns at once, so a signal handler may call it; `stop` does the rest.
        """
        self._stop_by = min(self._stop_by, time.monotonic() + self.settings.drain_seconds)
        self.controller.stop_starting()

    def stop(self) -> None:
        """Stop taking files, wait for runs, release everything; idempotent."""
        if self._stop.is_set():
            return
        self.begin_stop()
        self._stop.set()
        drained = ended = False
        # Whatever fails or hangs, the next steps are done: the next start finds what was left.
        with _going_on("duties"):
            self._end_duties_in_time()
            self.controller.wake()
            for thread in (self._loop, self._watcher):
                if thread.is_alive():
                    thread.join(timeout=self._seconds_left())
        with _going_on("runs"):
            drained = self.controller.drain(self._seconds_left())
        with _going_on("files"):
            # A device that hangs is left alone: the next start finds its claim again.
            ended = self._duties_ended(self._seconds_left())
        # The lease is kept until here: what is under way may end under it.
        self._released.set()
        if self._keeper.is_alive():
            self._keeper.join(timeout=self.settings.lease_seconds)
        # Do not wait for threads: one that was given up may never end.
        self._threads.shutdown(wait=False, cancel_futures=True)
        for name, release in (
            ("readers", self._close_readers),
            ("lease", self._give_up_lease),
            ("engine", self._engine.close),
            ("store", self.store.close),
        ):
            with _going_on(name):
                release()
        _log.info("service.stopped", drained=drained, duties_ended=ended)

    def _seconds_left(self) -> float:
        return max(0.0, self._stop_by - time.monotonic())

    def _close_readers(self) -> None:
        if self._readers is not None:
            self._readers.close()

    def _end_duties_in_time(self) -> None:
        # A recovery may hold the lock: it ends by itself, and starts nothing after a stop.
        if self._duties.acquire(timeout=max(1.0, self._seconds_left())):
            try:
                self._end_duties()
            finally:
                self._duties.release()

    # leadership

    def _keep_lease(self) -> None:
        while not self._released.wait(self.leadership.interval_seconds):
            self.leadership.keep()

    def _give_up_lease(self) -> None:
        try:
            self.leadership.follow()
        except CbpError as error:  # the next leader waits for the lease to run out
            _log.warning("lease.not_released", error=error.as_dict())

    def _attend(self) -> bool:
        """Begin or end the duties of a leader; return whether a tick may come."""
        with self._duties:
            if self._stop.is_set():
                return False
            role = self.leadership.role
            if role is Role.LEADS and self._scheduler is None:
                self.controller.lead(self.leadership.epoch)
                self._begin_duties()
            elif role is Role.LEADS and self.store.shared and self.controller.problem:
                # Another controller wrote an entry of a log: find out who leads, and recover.
                self.leadership.retire(self.controller.problem)
            elif role is Role.RETIRES:
                self._end_duties()
                seconds = self.settings.lease_seconds
                if self.controller.retire(seconds) and self._duties_ended(seconds):
                    self.leadership.follow()
            elif role is Role.FOLLOWS:
                self.controller.follow(self.leadership.reason(role))
            # A tick of a follower starts nothing, and says why.
            return role is not Role.UNSURE

    def _begin_duties(self) -> None:
        scheduler = _scheduler()
        every = {
            "tick": (self.controller.wake, self.settings.tick_seconds),
            "scan": (self._ask_scans, self.settings.scan_seconds),
            "clean": (self._ask_cleans, CLEAN_SECONDS),
        }
        for rounds in (self._scans, self._cleans):
            rounds.begin()
        for name, (work, seconds) in every.items():
            scheduler.add_job(work, "interval", seconds=seconds, id=name)
        scheduler.start()
        self._scheduler = scheduler

    def _end_duties(self) -> None:
        """Submit no more work, and ask what is under way to end; see `_duties_ended`."""
        scheduler, self._scheduler = self._scheduler, None
        for rounds in (self._scans, self._cleans):
            rounds.stop()
        if scheduler is not None:
            scheduler.shutdown(wait=False)  # its jobs only submit work

    def _duties_ended(self, timeout: float) -> bool:
        """Wait for the reading of files to end; return whether none is under way any more."""
        until = time.monotonic() + timeout
        return all(
            rounds.wait(max(0.0, until - time.monotonic()))
            for rounds in (self._scans, self._cleans)
        )

    def _rounds(self, name: str, work: Callable[[str], None]) -> Rounds:
        return Rounds(name, work, executor=Threads(name), places=SCANS, clock=self._clock)

    def _ask_scans(self) -> None:
        self._scans.ask(self._scanned())

    def _ask_cleans(self) -> None:
        self._cleans.ask(record.name for record in self.store.dataflows())

    def _scanned(self) -> list[str]:
        # During a version change files wait, to be checked by the new version.
        held = self.controller.held
        return [record.name for record in self.store.dataflows() if record.name not in held]

    def scan(self) -> None:
        """List every drop folder once, in this thread; for tests that step by hand."""
        for name in self._scanned():
            self._scan(name)

    def clean(self) -> None:
        """Clean every drop folder once, in this thread; for tests that step by hand."""
        for record in self.store.dataflows():
            self._clean(record.name)

    def _clean(self, name: str) -> None:
        """Remove dropped files whose retention has ended; failures are retried."""
        try:
            record = self.store.dataflow(name)
            dataflow = self.controller.dataflow(name)
            self.drop_folder.clean(record, dataflow, stopping=self._cleans.stopping)
        except CbpError as error:
            _log.warning("clean.failed", dataflow=name, error=error.as_dict())
        except Exception:  # last resort of a job: the next round tries again
            _log.exception("clean.failed", dataflow=name)

    def _wake(self) -> None:
        self.controller.wake()

    def _close(self, dataflow: str, source: str, key: str) -> None:
        self.controller.close(dataflow, source, key=key, reason="marker")

    def _scan(self, name: str) -> None:
        """Make one pass over the drop folders of a dataflow; failures are retried."""
        try:
            report = self._scan_one(name)
        except (NotFoundError, IntakeStoppedError):
            return  # deleted meanwhile, or left to the next start
        except LogConflictError as error:
            self.controller.stop_leading(error.message)
        except Exception as error:  # last resort of a job: the next listing tries again
            self._complain(name, str(error), error)
        else:
            if report.ready:
                self._scan_soon()
            elif report.waiting:
                self._scan_at(_now() + timedelta(seconds=self.settings.settle_seconds))

    def _scan_one(self, name: str) -> ScanReport:
        # Not during a deletion: a scan would create its folders again.
        with self.controller.exclusive(name, "has its files read"):
            record, dataflow = self.store.dataflow(name), self.controller.dataflow(name)
            report = self.drop_folder.scan(record, dataflow, stopping=self._scans.stopping)
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

    def _tick_forever(self) -> None:
        while not self._stop.is_set():
            self.controller.wait(self.settings.tick_seconds)
            try:
                if (scheduler := self._scheduler) is not None:
                    bring_forward(scheduler.get_jobs(), datetime.now(UTC))
                if self._attend():
                    self.controller.tick()
            except Exception:  # last resort of the loop: the store may come back
                _log.exception("tick.failed")
                self._stop.wait(self.settings.tick_seconds)

    def _watch(self) -> None:
        try:
            self.drop_folder.watch(self._stop, self._scan_soon)
        except Exception:  # a hint only: the scheduler lists the folders anyway
            _log.exception("watch.failed")

    def _scan_soon(self) -> None:
        self._scan_at(_now())

    def _scan_at(self, when: datetime) -> None:
        """Bring the next listing forward; the interval continues from there."""
        scheduler = self._scheduler
        if scheduler is None or self._stop.is_set():
            return
        if (job := scheduler.get_job("scan")) is not None:
            job.modify(next_run_time=min(when, job.next_run_time or when))


@contextmanager
def _going_on(part: str) -> Iterator[None]:
    """Log an error of one part of a stop, and go on with the next part."""
    try:
        yield
    except Exception:  # last resort of a stop
        _log.exception("stop.failed", part=part)


def configure_logging(settings: Settings) -> None:
    """Send the logs of this process to stderr, one JSON object or one line per entry.

    Every entry has `event`, `level` and `timestamp` (UTC); those of a run also
    `dataflow`, `stage` and `run`.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # No local variables in tracebacks: they hold records, and may hold secrets.
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    renderer: list[Any] = [
        structlog.processors.ExceptionRenderer(tracebacks),
        structlog.processors.JSONRenderer(),
    ]
    if settings.log_format == "console":
        plain = structlog.dev.plain_traceback
        renderer = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=settings.log_level, force=True)
    # These log every listing, every statement, and every connection that ends.
    for noisy in ("apscheduler", "alembic", "py4j", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _retention(settings: Settings) -> Retention:
    return Retention(
        versions_min=settings.keep_versions_min,
        versions_max=settings.keep_versions_max,
        seconds=settings.keep_hours * 3600,
        attempt_seconds=settings.attempt_hours * 3600,
    )


def _limits(settings: Settings) -> IngestLimits:
    return IngestLimits(
        file_bytes_max=settings.file_bytes_max,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        ratio_max=settings.decompression_ratio_max,
        line_bytes_max=settings.line_bytes_max,
        seconds_max=settings.file_seconds_max,
        memory_bytes_max=settings.file_memory_bytes_max,
    )


def _scheduler() -> BackgroundScheduler:
    """Return a scheduler that neither skips jobs nor piles them up."""
    return BackgroundScheduler(
        timezone=UTC,
        executors={"default": JobThreads(2)},
        job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
    )


def _now() -> datetime:
    return datetime.now(UTC)
