"""Constructs telemetry: which systems are notified of ended runs, and what a run belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cbp.model.dataflow.dataflow import Dataflow
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
