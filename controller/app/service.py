"""The service: its parts connected, started and stopped.

Threads: one loop thread ticks whenever something happened, or once per `tick_seconds`. The
listings of drop folders have threads of their own (`leader_duties`). Each run and each piece of
framing has a thread of its own while it lasts; `parallel_runs_max` limits the runs. On a shared
database one more thread renews the lease. Every durable effect passes the fence first. An instance
that follows answers reads, and has its engine ready.

Guaranteed: the API answers only after recovery, or once another instance is known to lead. A stop
waits `drain_seconds` for the runs under way, then cancels them. The next start repeats them, and
reads files again that were being read (tests/controller/app/test_service.py).
Not needed for correctness: an orderly stop.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool

from cbp.clock import MACHINE
from cbp.engine.interface.engine import Engine
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import files_for
from cbp.errors import CbpError, LeaseLostError
from cbp.model.schedule.lease import Role
from controller.access.access import Access
from controller.app.construction import (
    alert_watch_for,
    drop_folder_for,
    engine_for,
    environment_for,
    run_feed_for,
    sinks_for,
)
from controller.app.leader_duties import LeaderDuties
from controller.clock import SteadyClock
from controller.ingest.errors import NewColumnsError
from controller.ingest.reader.reader_pool import ReaderPool
from controller.loop import DEFAULT_LOOP_LIMITS, Controller, Fence, LeaseKeeper, LoopLimits, Parts
from controller.loop.leadership.lease_keeper import boot_seconds
from controller.loop.records.dataflow_folder import warn_of_other_places
from controller.loop.runs.threads import Threads
from controller.settings import Settings
from controller.store.access import AuditRecord
from controller.store.base import open_store

WARM_SECONDS = 10.0
"""Time between two checks of readers and workers; each check starts at most one of each."""

ITSELF, ADDED = "service", "columns_add"
"""Actor and action in the audit log of changes that the service makes without a request."""

_log = structlog.get_logger(__name__)


class Service:
    """All parts of one service, connected; `start` starts it.

    Args:
        limits: Limits of the controller that are not settings.
        seconds: Returns seconds that never go back, for the lease, the clock and a stop.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        engine: Engine | None = None,
        faults: Faults = NO_FAULTS,
        limits: LoopLimits = DEFAULT_LOOP_LIMITS,
        now: Callable[[], datetime] = MACHINE.now,
        seconds: Callable[[], float] = boot_seconds,
    ) -> None:
        self.settings, self._seconds = settings, seconds
        for folder in (settings.root, settings.drop_root, settings.cache):
            folder.mkdir(parents=True, exist_ok=True)
        if settings.sink_roots == (settings.root / "sinks",):
            # Only the default folder is created: another one may be a mount that is missing now.
            settings.sink_roots[0].mkdir(exist_ok=True)
        # The store has its own fence, since followers also write to it, such as operators' choices.
        self.store = open_store(settings.database_url, faults=faults)
        self.leadership = LeaseKeeper(
            store=self.store,
            address=settings.advertise_url,
            seconds=settings.lease_seconds,
            on_change=lambda: self.controller.wake(),
            on_retire=lambda reason: self.controller.stop_leading(reason),
            clock=seconds,
        )
        faults = Fence(faults, self.leadership.check)
        files = files_for(settings.tables, faults=faults, settings=settings.spark_conf)
        self._engine = engine or engine_for(settings, faults=faults)
        self.clock = SteadyClock(now, seconds)
        self._threads = Threads("run")
        self._framers = Threads("frame")
        self._readers = ReaderPool() if settings.reader_processes else None
        self.drop_folder = drop_folder_for(
            settings,
            store=self.store,
            files=files,
            clock=self.clock,
            readers=self._readers,
            on_accept=lambda: self.controller.wake(),
            on_close=self._close,
            require_followed=self._require_followed,
            faults=faults,
        )
        environment = environment_for(
            settings,
            store=self.store,
            engine=self._engine,
            files=files,
            clock=self.clock,
            arrivals=self.drop_folder,
            executor=self._threads,
            framers=self._framers,
            faults=faults,
            limits=limits,
        )
        self.parts = Parts(environment)
        self.controller = Controller(self.parts)
        self.sinks = sinks_for(settings, self.parts, faults=faults)
        self._stop, self._released = threading.Event(), threading.Event()
        self._stop_by = math.inf
        self._duties_lock = threading.Lock()
        self._duties = LeaderDuties(
            settings,
            store=self.store,
            drop_folder=self.drop_folder,
            controller=self.controller,
            clock=self.clock,
            now=now,
            seconds=seconds,
            sinks=self.sinks,
            stopped=self._stop,
            on_columns=self._note_columns,
        )
        # One pass over everything, in the calling thread; for tests that step by hand.
        self.scan, self.fetch = self._duties.scan, self._duties.fetch
        self.clean, self.publish = self._duties.clean, self._duties.publish
        self.alerts = alert_watch_for(
            settings,
            controller=self.controller,
            store=self.store,
            drop_folder=self.drop_folder,
            leads=lambda: self.leadership.role is Role.LEADS,
            clock=self.clock,
        )
        self._alerter = threading.Thread(
            target=self.alerts.watch, args=(self._stop,), name="alerts", daemon=True
        )
        self.run_feed = run_feed_for(
            settings,
            controller=self.controller,
            store=self.store,
            leads=lambda: self.leadership.role is Role.LEADS,
        )
        self._exporter = threading.Thread(
            target=self.run_feed.follow, args=(self._stop,), name="telemetry", daemon=True
        )
        self._keeper = threading.Thread(target=self._keep_lease, name="lease", daemon=True)
        self._loop = threading.Thread(target=self._tick_forever, name="loop", daemon=True)
        self._watcher = threading.Thread(target=self._duties.watch, name="watch", daemon=True)

    @cached_property
    def access(self) -> Access:
        """Tokens, sessions and the audit log; made, with the token file, when first needed."""
        return Access(self.settings, self.store)

    @asynccontextmanager
    async def lifespan(self, _app: Any) -> AsyncIterator[None]:
        """The context in which an ASGI server runs the service."""
        # Both calls block for as long as recovery and runs under way take.
        await run_in_threadpool(self.start)
        try:
            yield
        finally:
            await run_in_threadpool(self.stop)

    def start(self) -> None:
        """Take the lease and recover, or follow; then start to tick."""
        settings = self.settings
        warn_of_other_places(self.store.dataflows(), settings.tables.rstrip("/"))
        self.leadership.begin()
        if self.store.shared:
            self._keeper.start()
        self._attend()
        self._loop.start()
        self._watcher.start()
        self._alerter.start()
        if self.run_feed.exporters:
            self._exporter.start()
        role = self.leadership.role
        _log.info("service.started", url=settings.url, engine=settings.engine, role=role)

    def lead(self) -> None:
        """Take the lease and recover, without an API: for commands that write like a leader.

        Waits for the present lease to run out; `stop` releases it. Raises `LeaseLostError`.
        """
        deadline = self._seconds() + 2 * self.settings.lease_seconds
        self.leadership.begin()
        while (role := self.leadership.role) is not Role.LEADS:
            if self._seconds() > deadline:
                raise LeaseLostError(None, self.leadership.reason(role))
            self._released.wait(self.leadership.interval_seconds)
            self.leadership.keep()
        if self.store.shared:
            self._keeper.start()
        self.controller.lead(self.leadership.epoch)

    def begin_stop(self) -> None:
        """Start no more runs from now on; work under way has `drain_seconds` to end.

        Returns at once, so a signal handler may call it; `stop` does the rest.
        """
        self._stop_by = min(self._stop_by, self._seconds() + self.settings.drain_seconds)
        self.controller.stop_starting()

    def stop(self) -> None:
        """Stop taking files, wait for runs, release everything; idempotent."""
        if self._stop.is_set():
            return
        self.begin_stop()
        self._stop.set()
        drained = ended = False
        # A step that fails or hangs does not prevent the next ones; the next start does the rest.
        with _going_on("duties"):
            self._end_duties_in_time()
            self.controller.wake()
            for thread in (self._loop, self._watcher, self._alerter, self._exporter):
                if thread.is_alive():
                    thread.join(timeout=self._seconds_left())
        with _going_on("runs"):
            drained = self.controller.drain(self._seconds_left())
        with _going_on("files"):
            # Do not wait for a device that hangs: the next start finds the claim again.
            ended = self._duties.wait(self._seconds_left())
        # The lease is kept until here, so that work under way can finish.
        self._released.set()
        if self._keeper.is_alive():
            self._keeper.join(timeout=self.settings.lease_seconds)
        # Do not wait for threads: one that hangs may never end.
        self._threads.shutdown(wait=False, cancel_futures=True)
        for name, release in (
            ("readers", self._readers.close if self._readers is not None else lambda: None),
            ("lease", self._give_up_lease),
            ("engine", self._engine.close),
            ("store", self.store.close),
        ):
            with _going_on(name):
                release()
        _log.info("service.stopped", drained=drained, duties_ended=ended)

    def _seconds_left(self) -> float:
        return max(0.0, self._stop_by - self._seconds())

    def _end_duties_in_time(self) -> None:
        # A recovery may hold the lock: wait for its end. It starts nothing after a stop.
        if self._duties_lock.acquire(timeout=max(1.0, self._seconds_left())):
            try:
                self._duties.end()
            finally:
                self._duties_lock.release()

    def warm(self) -> None:
        """Keep readers and workers ready until the stop, so that files do not wait for them.

        Returns at once. A process that ended is replaced within `WARM_SECONDS`.
        """
        for name, begin in (("worker", self._engine.control.warm), ("reader", self._warm_readers)):
            threading.Thread(
                target=self._keep_warm, args=(begin,), name=f"warm-{name}", daemon=True
            ).start()

    def _keep_warm(self, begin: Callable[[], None]) -> None:
        while not self._stop.is_set():
            # A process that cannot start now, for example for lack of memory, is tried again.
            with _going_on("processes", event="warm.failed"):
                begin()
            self._stop.wait(WARM_SECONDS)

    def _warm_readers(self) -> None:
        if self._readers is not None:
            self._readers.warm()

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
        """Begin or end the duties of a leader; return whether the loop may tick."""
        with self._duties_lock:
            if self._stop.is_set():
                return False
            role = self.leadership.role
            if role is Role.LEADS and self._duties.scheduler is None:
                self.controller.lead(self.leadership.epoch)
                self._duties.begin()
            elif role is Role.LEADS and self.store.shared and self.controller.problem:
                # Another controller wrote an entry of a log: find out who leads, and recover.
                self.leadership.retire(self.controller.problem)
            elif role is Role.RETIRES:
                self._duties.end()
                seconds = self.settings.lease_seconds
                if self.controller.retire(seconds) and self._duties.wait(seconds):
                    self.leadership.follow()
            elif role is Role.FOLLOWS:
                self.controller.follow(self.leadership.reason(role))
            # A follower's tick starts no run, and records why.
            return role is not Role.UNSURE

    def _note_columns(self, dataflow: str, added: NewColumnsError, version: int) -> None:
        """Record in the audit log that columns were added to a schema automatically."""
        columns = ", ".join(added.columns)
        entry = AuditRecord(
            at=self.access.audit.now(),
            actor=ITSELF,
            scope="",
            action=ADDED,
            outcome="done",
            status=200,
            dataflow=dataflow,
            target={"source": added.source, "claim": added.claim, "version": str(version)},
            reason=f"{added.file[:200]} has the new columns {columns} (unknown: add)"[:1_000],
        )
        self.access.audit.record(entry)

    def _require_followed(self, dataflow: str, source: str, /, *, rebuild: bool) -> None:
        self.controller.retained.check(dataflow, source, rebuild=rebuild)

    def _close(self, dataflow: str, source: str, key: str) -> None:
        self.controller.close(dataflow, source, key=key, reason="marker")

    def _tick_forever(self) -> None:
        while not self._stop.is_set():
            self.controller.wait(self.settings.tick_seconds)
            try:
                self._duties.bring_forward()
                self.access.do_due_work()
                if self._attend():
                    self.controller.tick()
            except Exception:  # last resort of the loop: the store may recover
                _log.exception("tick.failed")
                self._stop.wait(self.settings.tick_seconds)


@contextmanager
def _going_on(part: str, *, event: str = "stop.failed") -> Iterator[None]:
    """Log an error of one part, by default during a stop, and continue with the next part."""
    try:
        yield
    except Exception:  # last resort
        _log.exception(event, part=part)
