"""Constructs the parts of a service from its settings; `service.py` connects them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files, LocalFiles, local_path
from cbp.errors import CbpError, Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.retention import FlowRetention
from cbp.model.schedule.parallel_runs import Places
from controller.alerts import (
    AlertLimits,
    AlertWatch,
    Channel,
    DataflowHealth,
    EmailChannel,
    WebhookChannel,
)
from controller.alerts.conditions import DrainHealth, HealthState, RebuildHealth
from controller.alerts.disk_room import disk_alerts, disk_rooms
from controller.allowed_folders import AllowedFolders
from controller.api.figures.degraded import degraded_now
from controller.app.drained_inputs import DrainedInputs, WaitsSince
from controller.ingest.drop_folder import DropFolder
from controller.ingest.folder.bucket_feed import Buckets
from controller.ingest.folder.bucket_listing import AllowedLocations, location_mistakes
from controller.ingest.folder.object_store import S3Store
from controller.ingest.folder.table_feed import table_mistakes
from controller.ingest.limits import IngestLimits
from controller.ingest.ports import RequireFollowed, allow_all
from controller.ingest.reader.file_reader import read_files
from controller.ingest.reader.reader_pool import ReaderPool
from controller.loop import Environment, RetryPolicy
from controller.loop.assembly import Parts
from controller.loop.controller import Controller
from controller.loop.housekeeping.input_retention import Keep
from controller.loop.rebuild.build_in_progress import RebuildJob
from controller.loop.records.version_log import Descriptions
from controller.loop.runs.threads import Threads
from controller.outbound.addresses import AddressRules
from controller.registry import Registry, TranslatorFiles
from controller.run_exports import LineageExporter, RunExporter, RunFeed, TraceExporter
from controller.settings import Settings
from controller.sinks import SinkNotes, SinkPlaces, SinkPublishing
from controller.sinks.publishing import Mirrors
from controller.sinks.targets import Targets
from controller.store.base import PAUSED_BY_HAND, DataflowRecord, GaugeRows, Store

_log = structlog.get_logger(__name__)

EXPRESS_BYTES = 1 << 20
"""A run that reads at most this much Parquet takes a fraction of a second, as a rule."""


def drop_folder_for(
    settings: Settings,
    *,
    store: Store,
    files: Files,
    clock: Callable[[], datetime],
    readers: ReaderPool | None,
    on_accept: Callable[[], None],
    on_close: Callable[[str, str, str], None],
    require_followed: RequireFollowed = allow_all,
    faults: Faults,
    limits: IngestLimits | None = None,
) -> DropFolder:
    """Return the part that takes in files; without `readers` the calling thread reads them."""
    key, secret = settings.s3_access_key_id, settings.s3_secret_access_key
    return DropFolder(
        store=store,
        files=files,
        clock=clock,
        drop_root=settings.drop_root,
        on_accept=on_accept,
        on_close=on_close,
        require_followed=require_followed,
        settle_seconds=settings.settle_seconds,
        limits=replace(
            limits or IngestLimits(),
            file_bytes_max=settings.file_bytes_max,
            decompressed_bytes_max=settings.decompressed_bytes_max,
            ratio_max=settings.decompression_ratio_max,
            line_bytes_max=settings.line_bytes_max,
            seconds_max=settings.file_seconds_max,
            memory_bytes_max=settings.file_memory_bytes_max,
        ),
        reader=read_files if readers is None else readers,
        stuck_readers=tuple if readers is None else readers.stuck,
        keep=FlowRetention(settings.keep_finished_hours * 3600, settings.keep_finished_bytes),
        faults=faults,
        tables=tables_for(settings),
        buckets=Buckets(
            allowed=AllowedLocations(settings.source_locations),
            make_store=lambda: S3Store(
                settings.s3_endpoint,
                None if key is None else key.get_secret_value(),
                None if secret is None else secret.get_secret_value(),
            ),
            seconds=settings.source_list_seconds,
            executor=Threads("object"),
        ),
    )


def tables_for(settings: Settings) -> AllowedFolders:
    """Return the folders in which sources may read Delta tables."""
    return AllowedFolders("CBP_SOURCE_ROOTS", settings.source_roots, _own_folders(settings))


def _own_folders(settings: Settings) -> tuple[Path, ...]:
    own = (settings.drop_root, settings.cache, settings.sink_secrets)
    tables = (Path(local_path(settings.tables)),) if "://" not in settings.tables else ()
    return (*own, *tables)


def refused_places(settings: Settings) -> Callable[[Dataflow], Iterator[Mistake]]:
    """Return a function that finds the paths in a document that the settings do not allow."""
    sinks, tables = sink_places_for(settings), tables_for(settings)
    locations = AllowedLocations(settings.source_locations)

    def find(dataflow: Dataflow) -> Iterator[Mistake]:
        yield from sinks.mistakes(dataflow)
        yield from table_mistakes(dataflow, tables)
        yield from location_mistakes(dataflow, locations)

    return find


def sink_places_for(settings: Settings) -> SinkPlaces:
    """Return the places to which sinks may write and post."""
    return SinkPlaces(settings.sink_roots, settings.sink_secrets, _own_folders(settings))


def sinks_for(settings: Settings, parts: Parts, *, faults: Faults) -> SinkPublishing:
    """Return the part that publishes to sinks."""
    given, places = parts.given, sink_places_for(settings)
    return SinkPublishing(
        store=given.store,
        catalog=parts.catalog,
        increments=given.engine.increments,
        open_log=parts.open_log,
        exclusion=parts.exclusion,
        notes=SinkNotes(given.files, faults),
        make_target=Targets(
            places,
            LocalFiles(faults),
            faults,
            settings.advertise_url,
            AddressRules.of(settings.outbound_hosts),
        ).make,
        mirrors=Mirrors(parts.snapshots, given.engine.records, Descriptions(given.files)),
        clock=given.clock,
        draw=given.draw,
        random_hex=given.random_hex,
    )


def environment_for(settings: Settings, **given: Any) -> Environment:
    """Return what the controller is given: the settings, and the parts in `given`."""
    return Environment(
        registry=Registry(settings.allowed_packages, files=TranslatorFiles(settings.translators)),
        answerers=Threads("answer"),
        removers=Threads("remove"),
        tables_root=settings.tables.rstrip("/"),
        places=Places(
            settings.parallel_runs_max,
            settings.slow_run_seconds,
            settings.slow_runs_max,
            express_bytes=EXPRESS_BYTES,
        ),
        retry=RetryPolicy(
            settings.failures_max, settings.retry_delays_seconds, settings.retry_seconds_max
        ),
        draw=random.random,
        run_seconds_max=settings.run_seconds_max,
        runnable_seconds_max=settings.runnable_seconds_max,
        retention=Retention(
            versions_min=settings.keep_versions_min,
            versions_max=settings.keep_versions_max,
            seconds=settings.keep_hours * 3600,
            attempt_seconds=settings.attempt_hours * 3600,
        ),
        keep=Keep(settings.input_retention, settings.keep_runs),
        collect_every=settings.collect_every,
        scrub_seconds=settings.scrub_days * 86400,
        dataflows_max=settings.dataflows_max,
        refused=refused_places(settings),
        seed_folders=tables_for(settings),
        rebuild_share=settings.rebuild_share,
        **given,
    )


def engine_for(
    settings: Settings, *, faults: Faults = NO_FAULTS, limits: EngineLimits = DEFAULT_LIMITS
) -> Engine:
    """Return the engine that the settings name; imports Spark only if needed."""
    cache = str(settings.cache)
    limits = replace(
        limits,
        whole_run_bytes=settings.whole_run_bytes_max,
        superstep_log_ms=round(1000 * settings.superstep_log_seconds),
    )
    if settings.engine == "local":
        from cbp.engine.direct import LocalEngine
        from cbp.engine.workers.worker_executor import WorkerExecutor

        executor = None
        if settings.worker_processes:
            most = settings.parallel_runs_max + 2  # two for the express places
            executor = WorkerExecutor(
                free_max=most,
                ready=most,
                memory_bytes_max=settings.worker_memory_bytes_max,
                loop_tasks_max=settings.loop_tasks_max,
            )
        return LocalEngine(cache=cache, executor=executor, faults=faults, limits=limits)
    from cbp.engine.spark import SparkEngine, SparkSettings

    session = SparkSettings(
        master=settings.spark_master,
        conf=settings.spark_conf,
        driver_memory=settings.spark_driver_memory,
        resident_workers=settings.resident_workers,
        job_start_seconds=settings.job_start_seconds,
        plan_optimisations=settings.plan_optimisations,
        loop_tasks_max=settings.loop_tasks_max,
        scratch=True,
    )
    return SparkEngine(session, cache=cache, deferred=True, faults=faults, limits=limits)


def run_feed_for(
    settings: Settings, *, controller: Controller, store: Store, leads: Callable[[], bool]
) -> RunFeed:
    """Return the feed of ended runs; without a receiver in the settings it has no exporter."""

    def describe(dataflow: str, stage: str) -> tuple[Dataflow, tuple[str, ...]]:
        members = controller.members(dataflow)
        return controller.dataflow(dataflow), members.get(stage, (stage,))

    return RunFeed(store, describe=describe, leads=leads, exporters=_exporters(settings))


def _exporters(settings: Settings) -> Iterator[RunExporter]:
    if settings.otlp_endpoint:
        yield TraceExporter(settings.otlp_endpoint, instance=settings.advertise_url)
    if settings.openlineage_url:
        key = settings.openlineage_api_key
        yield LineageExporter(
            settings.openlineage_url, api_key=key.get_secret_value() if key else ""
        )


HOLD_SECONDS = 60.0


def alert_watch_for(
    settings: Settings,
    *,
    controller: Controller,
    store: Store,
    drop_folder: DropFolder,
    leads: Callable[[], bool],
    clock: Callable[[], datetime],
) -> AlertWatch:
    """Return the part that raises alerts; without a configured channel it only lists them."""
    drained = DrainedInputs(drop_folder.waits_since) if settings.alert_lag_seconds else None
    known = dict[str, DataflowHealth]()
    return AlertWatch(
        health=lambda: _healths(controller, store, drop_folder, drained, clock(), known),
        others=lambda: disk_alerts(disk_rooms(settings)),
        leads=leads,
        channels=_channels(settings),
        limits=AlertLimits(
            settings.alert_lag_seconds, HOLD_SECONDS, settings.alert_repeat_hours * 3600
        ),
        clock=clock,
    )


def _channels(settings: Settings) -> Iterator[Channel]:
    url = settings.advertise_url
    if settings.alert_webhook_url is not None:
        yield WebhookChannel(settings.alert_webhook_url.get_secret_value(), service_url=url)
    if settings.smtp_url is not None and settings.alert_email_to:
        yield EmailChannel(
            settings.smtp_url.get_secret_value(),
            sender=settings.alert_email_from,
            recipients=settings.alert_email_to,
            service_url=url,
        )


def _healths(
    controller: Controller,
    store: Store,
    drop_folder: DropFolder,
    drained: DrainedInputs | None,
    now: datetime,
    known: dict[str, DataflowHealth],
) -> Iterator[DataflowHealth]:
    """Yield the health of every dataflow; the number of statements is fixed.

    Args:
        drained: Finds out since when files wait for drained dataflows; `None` if there are no
            alerts about that.
        known: The results of the last round; updated, perhaps by several threads. They replace what
            cannot be found out now, so that a fault ends no alert.
    """
    records = store.dataflows()
    names = {record.name for record in records}
    for deleted in [name for name in tuple(known) if name not in names]:
        known.pop(deleted, None)
    waits_since = None if drained is None else drained.round(records)
    degraded = {one.dataflow: one for one in degraded_now(controller, store, drop_folder)}
    gauges, revisions = store.gauges(), store.revisions()
    oldest, paused = gauges.oldest_waiting(), _paused_stages(gauges)
    quarantined: dict[str, dict[str, int]] = {}
    for (dataflow, source), count in store.quarantined().items():
        quarantined.setdefault(dataflow, {})[source] = count
    for record in records:
        name, one = record.name, degraded.get(record.name)
        state: HealthState = "ok" if one is None else one.state
        reason = "" if one is None else one.reason
        if name in gauges.unreadable and state != "broken":
            state, reason = "broken", "the queues of this dataflow cannot be read; run `cbp doctor`"
        elif record.is_paused and state != "broken":
            state, reason = "paused", ""
        first = oldest.get(name)
        lag = None if first is None else max(0.0, (now - first).total_seconds())
        health = DataflowHealth(
            name,
            state,
            reason,
            lag,
            paused_stages=paused.get(name, ()),
            quarantined=quarantined.get(name, {}),
        )
        try:
            health = replace(
                health,
                rebuild=_rebuild_health(controller.rebuild_jobs.needs_person(record), now),
                drain=_drain_health(record, controller, waits_since, now),
                set_aside=controller.set_aside_counts.of(record, revisions),
            )
        except Exception:  # whatever it is: the alerts of other dataflows do not depend on it
            _log.exception("alerts.health_incomplete", dataflow=name)
            if (old := known.get(name)) is not None:
                health = replace(
                    health, rebuild=old.rebuild, drain=old.drain, set_aside=old.set_aside
                )
        known[name] = health
        yield health


def _rebuild_health(job: RebuildJob | None, now: datetime) -> RebuildHealth | None:
    """Return what alerts need to know about a rebuild; `None` if no operator needs to act."""
    if job is None:
        return None
    if job.status == "failed":
        why = "" if job.error is None else str(job.error)
        return RebuildHealth("failed", error=why)
    return RebuildHealth("ready", (now - job.began_at).total_seconds() - job.seconds)


def _drain_health(
    record: DataflowRecord, controller: Controller, waits_since: WaitsSince | None, now: datetime
) -> DrainHealth | None:
    """Return how long files have waited for a drained dataflow; `None` if none wait."""
    if record.takes_in or waits_since is None:
        return None
    try:
        since = waits_since(record, controller.compiled(record))
    except CbpError:  # it does not compile, which is an alert of its own
        return None
    if since is None:
        return None
    return DrainHealth(record.desired, max(0.0, (now - since).total_seconds()))


def _paused_stages(gauges: GaugeRows) -> dict[str, tuple[str, ...]]:
    """Return dataflow -> its stages that an operator paused, and that have input."""
    waiting = {(one.dataflow, one.stage) for one in gauges.queues if one.oldest_at is not None}
    paused: dict[str, tuple[str, ...]] = {}
    for one in gauges.stages:
        if one.paused_because == PAUSED_BY_HAND and (one.dataflow, one.stage) in waiting:
            paused[one.dataflow] = (*paused.get(one.dataflow, ()), one.stage)
    return paused
