"""Metrics for Prometheus, computed from the store at each scrape.

Labels are names from dataflow documents only; never keys, files or increments, since their
number has no bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from fastapi import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from cbp.model.schedule.lease import Role, Standing
from controller.api.answers.schemas import DataflowDetail, StageOut
from controller.api.figures.overview import Overview, OverviewDep
from controller.api.routing.dependencies import ControllerDep, StandingDep, StoreDep
from controller.api.routing.routers import router
from controller.loop.controller import Controller
from controller.store.base import Store

__all__ = ["routes"]

routes = router("metrics")


@routes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(
    overview: OverviewDep, controller: ControllerDep, store: StoreDep, standing: StandingDep
) -> Response:
    """Return the metrics of all dataflows in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(overview, controller, store, standing))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Figures(Collector):
    def __init__(
        self, overview: Overview, controller: Controller, store: Store, standing: Standing
    ) -> None:
        now, records = datetime.now(UTC), store.dataflows()
        self._leads, self._epoch = float(standing.role is Role.LEADS), standing.epoch
        self._lanes = controller.lane_counts
        self._scrubs = [controller.scrubs.last(record.name) for record in records]
        self._dataflows = [overview.detail(record, now) for record in records]

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("cbp_dataflows", "Registered dataflows.", len(self._dataflows))
        yield GaugeMetricFamily("cbp_leads", "1 while this instance leads.", self._leads)
        yield GaugeMetricFamily("cbp_lease_epoch", "Epoch of the lease, as seen.", self._epoch)
        yield from self._of_dataflows()
        yield from self._of_stages()
        yield from self._of_queues()
        yield from self._of_lanes()
        yield from self._of_scrubs()

    def _of_dataflows(self) -> Iterable[Metric]:
        lag = GaugeMetricFamily(
            "cbp_lag_seconds",
            "Age of the oldest unprocessed increment; 0: none.",
            labels=["dataflow"],
        )
        paused = GaugeMetricFamily(
            "cbp_dataflow_paused", "1 when the operator paused it.", labels=["dataflow"]
        )
        degraded = GaugeMetricFamily(
            "cbp_dataflow_degraded",
            "1 while it retries, has stopped, or cannot be read.",
            labels=["dataflow"],
        )
        for dataflow in self._dataflows:
            summary = dataflow.summary
            lag.add_metric([summary.name], summary.lag_seconds or 0.0)
            paused.add_metric([summary.name], float(summary.desired == "paused"))
            degraded.add_metric(
                [summary.name], float(summary.state in ("retrying", "stopped", "broken"))
            )
        yield from (lag, paused, degraded)

    def _of_stages(self) -> Iterable[Metric]:
        labels = ["dataflow", "stage"]
        epochs = CounterMetricFamily("cbp_stage_epochs", "Committed epochs.", labels=labels)
        failures = GaugeMetricFamily("cbp_stage_failures", "Failed tries in a row.", labels=labels)
        stopped = GaugeMetricFamily(
            "cbp_stage_stopped", "1 when it stopped by itself.", labels=labels
        )
        for dataflow, stage in _stages(self._dataflows):
            epochs.add_metric([dataflow, stage.name], stage.epoch)
            failures.add_metric([dataflow, stage.name], stage.failures)
            stopped.add_metric([dataflow, stage.name], float(stage.state == "stopped"))
        yield from (epochs, failures, stopped)

    def _of_queues(self) -> Iterable[Metric]:
        labels = ["dataflow", "stage", "input"]
        increments = GaugeMetricFamily("cbp_queue_increments", "Queued.", labels=labels)
        records = GaugeMetricFamily("cbp_queue_records", "Queued.", labels=labels)
        size = GaugeMetricFamily("cbp_queue_bytes", "Queued.", labels=labels)
        for dataflow, stage in _stages(self._dataflows):
            for queue in stage.queues:
                names = [dataflow, stage.name, queue.input]
                increments.add_metric(names, queue.increments)
                records.add_metric(names, queue.records)
                size.add_metric(names, queue.bytes)
        yield from (increments, records, size)

    def _of_scrubs(self) -> Iterable[Metric]:
        damages = GaugeMetricFamily(
            "cbp_damaged_files", "Files that are known to be damaged.", labels=["dataflow"]
        )
        ended = GaugeMetricFamily(
            "cbp_scrub_timestamp_seconds",
            "When everything on disk was last read to its end; absent: never.",
            labels=["dataflow"],
        )
        for one in self._scrubs:
            damages.add_metric([one.dataflow], len(one.damages))
            if one.ended_at is not None:
                ended.add_metric([one.dataflow], one.ended_at.timestamp())
        yield from (damages, ended)

    def _of_lanes(self) -> Iterable[Metric]:
        labels = ["dataflow", "lane"]
        runs = CounterMetricFamily(
            "cbp_runs", "Runs that this instance committed, by lane.", labels=labels
        )
        seconds = CounterMetricFamily(
            "cbp_run_seconds", "What the jobs of these runs took.", labels=labels
        )
        registered = {dataflow.summary.name for dataflow in self._dataflows}
        for one in self._lanes:
            if one.dataflow in registered:
                runs.add_metric([one.dataflow, one.lane], one.runs)
                seconds.add_metric([one.dataflow, one.lane], one.seconds)
        yield from (runs, seconds)


def _stages(dataflows: list[DataflowDetail]) -> Iterable[tuple[str, StageOut]]:
    return ((d.summary.name, stage) for d in dataflows for stage in d.stages)
