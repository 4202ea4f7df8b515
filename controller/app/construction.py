"""Constructs the drop folder and the controller's environment from the settings of a service."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.model.flow.retention import FlowRetention
from cbp.model.schedule.slots import Places
from controller.ingest import DropFolder, IngestLimits, ReaderPool
from controller.ingest.reading import read_file
from controller.loop import Environment, LoopLimits, RetryPolicy
from controller.loop.housekeeping.input_retention import Keep
from controller.loop.runs.threads import Threads
from controller.registry import Registry
from controller.settings import Settings
from controller.store.base import Store

__all__ = ["drop_folder_for", "environment_for"]


def drop_folder_for(
    settings: Settings,
    *,
    store: Store,
    files: Files,
    clock: Callable[[], datetime],
    readers: ReaderPool | None,
    on_accept: Callable[[], None],
    on_close: Callable[[str, str, str], None],
    faults: Faults,
    limits: IngestLimits | None = None,
) -> DropFolder:
    """Return what takes in files.

    Args:
        settings: `drop_root`, `settle_seconds`, and the limits and the retention of files.
        store: The metadata store.
        files: Where increments are written.
        clock: The clock of the service.
        readers: Processes that read files; without them the calling thread reads.
        on_accept: Called when an increment was accepted.
        on_close: Called with dataflow, source and key when a marker closes a frame.
        faults: Called at every durable effect.
        limits: Those that are no settings; `None`: the defaults.
    """
    return DropFolder(
        store=store,
        files=files,
        clock=clock,
        drop_root=settings.drop_root,
        on_accept=on_accept,
        on_close=on_close,
        settle_seconds=settings.settle_seconds,
        limits=_limits(settings, limits or IngestLimits()),
        reader=read_file if readers is None else readers,
        keep=FlowRetention(settings.keep_finished_hours * 3600, settings.keep_finished_bytes),
        faults=faults,
    )


def environment_for(
    settings: Settings,
    *,
    store: Store,
    engine: Engine,
    registry: Registry,
    files: Files,
    clock: Callable[[], datetime],
    arrivals: DropFolder,
    runs: Threads,
    framers: Threads,
    answerers: Threads,
    removers: Threads,
    faults: Faults,
    limits: LoopLimits,
) -> Environment:
    """Return what the controller works with: the parts that are given, and its bounds.

    Args:
        settings: The bounds of runs, retries, retention and scrubbing.
        store: The metadata store.
        engine: Executes the runs.
        registry: The translators that a document may name.
        files: The folders of the tables.
        clock: The clock of the service.
        arrivals: The drop folder.
        runs: Threads of runs.
        framers: Threads that call framing.
        answerers: Threads that call author's code for answers.
        removers: Threads that remove folders.
        faults: Called at every durable effect.
        limits: Bounds of the controller that are no settings.
    """
    return Environment(
        store=store,
        engine=engine,
        registry=registry,
        files=files,
        clock=clock,
        tables_root=settings.tables.rstrip("/"),
        places=Places(
            settings.parallel_runs_max, settings.slow_run_seconds, settings.slow_runs_max
        ),
        retry=RetryPolicy(
            settings.failures_max,
            settings.retry_delays_seconds,
            settings.retry_seconds_max,
        ),
        executor=runs,
        arrivals=arrivals,
        draw=random.random,
        framers=framers,
        answerers=answerers,
        removers=removers,
        run_seconds_max=settings.run_seconds_max,
        runnable_seconds_max=settings.runnable_seconds_max,
        faults=faults,
        retention=_retention(settings),
        keep=Keep(settings.input_retention, settings.keep_runs),
        collect_every=settings.collect_every,
        scrub_seconds=settings.scrub_days * 86400,
        dataflows_max=settings.dataflows_max,
        limits=limits,
    )


def _retention(settings: Settings) -> Retention:
    return Retention(
        versions_min=settings.keep_versions_min,
        versions_max=settings.keep_versions_max,
        seconds=settings.keep_hours * 3600,
        attempt_seconds=settings.attempt_hours * 3600,
    )


def _limits(settings: Settings, others: IngestLimits) -> IngestLimits:
    return replace(
        others,
        file_bytes_max=settings.file_bytes_max,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        ratio_max=settings.decompression_ratio_max,
        line_bytes_max=settings.line_bytes_max,
        seconds_max=settings.file_seconds_max,
        memory_bytes_max=settings.file_memory_bytes_max,
    )
