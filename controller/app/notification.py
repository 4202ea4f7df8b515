"""Constructs the parts that notify other systems: alert watch, and feed of ended runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from cbp.model.dataflow.dataflow import Dataflow
from controller.alerts import (
    AlertLimits,
    AlertWatch,
    Channel,
    DataflowHealth,
    EmailChannel,
    WebhookChannel,
)
from controller.alerts.conditions import HealthState
from controller.alerts.disk_room import disk_alerts, disk_rooms
from controller.api.figures.degraded import degraded_now
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.settings import Settings
from controller.store.base import Store
from controller.telemetry import LineageExporter, RunExporter, RunFeed, TraceExporter


def run_feed_for(
    settings: Settings, *, controller: Controller, store: Store, leads: Callable[[], bool]
) -> RunFeed:
    """Return the feed; without a receiver in the settings it has no exporter.

    Raises:
        TelemetryPackagesMissingError: A receiver is set, and its packages are not installed.
    """

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
    """Return the watch; without a configured channel it only lists alerts."""
    return AlertWatch(
        health=lambda: _healths(controller, store, drop_folder, clock()),
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
    controller: Controller, store: Store, drop_folder: DropFolder, now: datetime
) -> Iterator[DataflowHealth]:
    """Yield the health of every dataflow; the number of statements is fixed."""
    degraded = {one.dataflow: one for one in degraded_now(controller, store, drop_folder)}
    gauges, revisions = store.gauges(), store.revisions()
    oldest = gauges.oldest_waiting()
    quarantined: dict[str, dict[str, int]] = {}
    for (dataflow, source), count in store.quarantined().items():
        quarantined.setdefault(dataflow, {})[source] = count
    for record in store.dataflows():
        name, one = record.name, degraded.get(record.name)
        state: HealthState = "ok" if one is None else one.state
        reason = "" if one is None else one.reason
        if name in gauges.unreadable and state != "broken":
            state, reason = "broken", "the queues of this dataflow cannot be read; run `cbp doctor`"
        elif record.is_paused and state != "broken":
            state, reason = "paused", ""
        waits_since = oldest.get(name)
        lag = None if waits_since is None else max(0.0, (now - waits_since).total_seconds())
        aside = controller.set_aside_counts.of(record, revisions)
        yield DataflowHealth(name, state, reason, lag, quarantined.get(name, {}), aside)
