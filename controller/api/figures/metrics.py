"""Metrics for Prometheus, from a fixed number of statements for a scrape.

Labels are names from dataflow documents, and words of ours; never keys, files, runs or increments,
since their number has no bound. Each help text says what to do with the figure. Counters count
since this instance started, so a restart begins at 0, as Prometheus expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cbp.errors import CbpError
from cbp.model.schedule.lease import Role
from controller.api.figures.degraded import degraded_now
from controller.api.requests.metric_sources import MetricSources
from controller.loop.runs.run_counts import BUCKETS, FIGURES, WAITS, Counts
from controller.sinks.sink_standing import standing_of
from controller.store.base import DataflowRecord, GaugeRows, Store

_FLOW, _STAGE = ["dataflow"], ["dataflow", "stage"]
_INPUT = ["dataflow", "stage", "input"]
_TOTALS = {
    "bytes_read": "Bytes of state that runs read; if this grows faster than the input, groups are "
    "large: check the choice of keys.",
    "bytes_in": "Bytes of input that runs read.",
    "bytes_written": "Bytes that runs wrote; compare them with the free space on the disk.",
    "records_in": "Records of input that runs read; its rate is the throughput.",
    "records_out": "Records that runs emitted.",
    "groups": (
        "Groups that were called; if these are most groups of a state, an increment touches too "
        "many keys."
    ),
}


class MetricsScrape(Collector):
    """The metrics at one moment."""

    def __init__(self, sources: MetricSources) -> None:
        controller, store = sources.controller, sources.store
        self._now = sources.now()
        self._standing = sources.standing()
        self._revisions, self._set_aside = store.revisions(), controller.set_aside_counts
        self._records = store.dataflows()
        self._names = {record.name for record in self._records}
        self._gauges = store.gauges()
        self._lease_left = _lease_left(store)
        self._counts = controller.run_counts
        self._degraded = _degraded(sources, self._records, self._gauges)
        self._scrubs = [controller.scrubs.last(name) for name in sorted(self._names)]
        self._sinks = store.sinks()
        self._quarantined, self._cache_bytes = sources.slow_figures()
        self._streams, self._disks = sources.feed.streams, sources.disks()
        self._requests, self._request_seconds = sources.requests.all()
        self._refusals, self._unstored = sources.audit.refusals, sources.audit.unstored

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield from self._of_the_instance()
        yield from self._of_dataflows()
        yield from self._of_stages()
        yield from self._of_queues()
        yield from self._of_runs(self._counts)
        yield from self._of_lanes()
        yield from self._of_scrubs()
        yield from self._of_sinks()
        yield from self._of_requests()
        yield from self._of_the_audit_log()

    def _of_the_instance(self) -> Iterator[Metric]:
        counts = self._counts
        leads = float(self._standing.role is Role.LEADS)
        yield _gauge("cbp_dataflows", "Registered dataflows.", len(self._records))
        text = "1 while this instance leads; the sum over all instances must be 1."
        yield _gauge("cbp_leads", text, leads)
        epoch = (
            "Epoch of the lease, as this instance sees it; if it rises often, leaders may be "
            "losing the connection to the database."
        )
        yield _gauge("cbp_lease_epoch", epoch, self._standing.epoch)
        left = (
            "Seconds until the lease expires; near 0 the leader fails to renew the lease: check "
            "the database."
        )
        if self._lease_left is not None:
            yield _gauge("cbp_lease_left_seconds", left, self._lease_left)
        yield _counter(
            "cbp_ticks",
            "Ticks of the loop; if there is none for a minute, the loop hangs.",
            counts.ticks,
        )
        failed = (
            "Ticks that failed; while this rises, no run starts: search the log for tick.failed."
        )
        yield _counter("cbp_failed_ticks", failed, counts.failed_ticks)
        slow = (
            "Seconds that ticks took, in all; if they take nearly a second each, runs start late."
        )
        yield _counter("cbp_tick_seconds", slow, counts.tick_seconds)
        streams = "Clients that follow the events; at CBP_EVENT_STREAMS_MAX more are refused."
        yield _gauge("cbp_event_streams", streams, self._streams)
        cache = (
            "Bytes of index copies; the copies may be removed at any time, which makes look-ups "
            "slower."
        )
        yield _gauge("cbp_cache_bytes", cache, self._cache_bytes)
        text = (
            "Free bytes on the disk of each folder; near 0 runs fail: free some space "
            "(`cbp disk NAME`)."
        )
        free = GaugeMetricFamily("cbp_disk_free_bytes", text, labels=["folder"])
        text = (
            "1 while files can be created in a folder; 0 if it is mounted read-only or not "
            "writable."
        )
        writable = GaugeMetricFamily("cbp_disk_writable", text, labels=["folder"])
        for room in self._disks:
            for folder in room.folders:
                free.add_metric([folder.partition(" ")[0]], room.free_bytes)
                writable.add_metric([folder.partition(" ")[0]], float(room.writable))
        yield from (free, writable)

    def _of_dataflows(self) -> Iterator[Metric]:
        text = (
            "Age of the oldest unprocessed increment in seconds, or 0; `cbp waiting` shows why it "
            "waits."
        )
        lag = GaugeMetricFamily("cbp_lag_seconds", text, labels=_FLOW)
        paused = GaugeMetricFamily(
            "cbp_dataflow_paused",
            "1 while an operator has paused the dataflow; `cbp resume` ends this.",
            labels=_FLOW,
        )
        text = (
            "1 while the dataflow retries, has stopped, or cannot be read; `cbp status` shows why."
        )
        degraded = GaugeMetricFamily("cbp_dataflow_degraded", text, labels=_FLOW)
        oldest = self._gauges.oldest_waiting()
        for record in self._records:
            lag.add_metric([record.name], self._age(oldest.get(record.name)))
            paused.add_metric([record.name], float(record.is_paused))
            degraded.add_metric([record.name], float(record.name in self._degraded))
        yield from (lag, paused, degraded)
        text = "Files in quarantine, at most a minute old; `cbp claims` shows the reason of each."
        files = GaugeMetricFamily("cbp_quarantined_files", text, labels=["dataflow", "source"])
        for (dataflow, source), count in sorted(self._quarantined.items()):
            files.add_metric([dataflow, source], count)
        yield files
        text = "Records that a stage has set aside; fix its code, then `cbp give-back`."
        aside = GaugeMetricFamily("cbp_set_aside_records", text, labels=_STAGE)
        for record in self._records:
            for stage, count in self._set_aside.of(record, self._revisions).items():
                aside.add_metric([record.name, stage], count)
        yield aside

    def _of_stages(self) -> Iterator[Metric]:
        epochs = CounterMetricFamily(
            "cbp_stage_epochs",
            "Committed epochs; a flat line under load means that the stage does not run.",
            labels=_STAGE,
        )
        text = "Failed attempts in a row; `cbp runs` shows the error."
        failures = GaugeMetricFamily("cbp_stage_failures", text, labels=_STAGE)
        text = "1 while a failure has stopped the stage; fix the cause, then run `cbp retry`."
        stopped = GaugeMetricFamily("cbp_stage_stopped", text, labels=_STAGE)
        text = "Age in seconds of the oldest increment that the stage has not read."
        lag = GaugeMetricFamily("cbp_stage_lag_seconds", text, labels=_STAGE)
        oldest: dict[tuple[str, str], float] = {}
        for queue in self._gauges.queues:
            key = queue.dataflow, queue.stage
            oldest[key] = max(self._age(queue.oldest_at), oldest.get(key, 0.0))
        for stage in self._gauges.stages:
            labels = [stage.dataflow, stage.stage]
            epochs.add_metric(labels, stage.epoch)
            failures.add_metric(labels, stage.failures)
            stopped.add_metric(labels, float(stage.has_stopped))
            lag.add_metric(labels, oldest.get((stage.dataflow, stage.stage), 0.0))
        text = (
            "Seconds that a stage waited: `readers` for downstream stages (back-pressure), "
            "`place` for a slot (CBP_PARALLEL_RUNS_MAX). The rate is the share of time spent "
            "waiting."
        )
        waited = CounterMetricFamily(
            "cbp_stage_waited_seconds", text, labels=["dataflow", "stage", "reason"]
        )
        for stage in self._gauges.stages:
            for kind in WAITS:
                place = stage.dataflow, stage.stage, kind
                waited.add_metric(list(place), self._counts.waited.get(place, 0.0))
        yield from (epochs, failures, stopped, lag, waited)

    def _of_queues(self) -> Iterator[Metric]:
        text = "that wait at an input; if the number grows, the stage is slower than its input."
        increments = GaugeMetricFamily("cbp_queue_increments", f"Increments {text}", labels=_INPUT)
        records = GaugeMetricFamily("cbp_queue_records", f"Records {text}", labels=_INPUT)
        size = GaugeMetricFamily("cbp_queue_bytes", f"Bytes {text}", labels=_INPUT)
        for queue in self._gauges.queues:
            labels = [queue.dataflow, queue.stage, queue.input]
            increments.add_metric(labels, queue.increments)
            records.add_metric(labels, queue.records)
            size.add_metric(labels, queue.bytes)
        yield from (increments, records, size)

    def _of_sinks(self) -> Iterator[Metric]:
        labels = ["dataflow", "sink"]
        text = "Increments that a sink has not published yet; they are kept. See `cbp sinks list`."
        waiting = GaugeMetricFamily("cbp_sink_waiting_increments", text, labels=labels)
        text = "Age in seconds of the oldest increment that a sink has not published, or 0."
        lag = GaugeMetricFamily("cbp_sink_lag_seconds", text, labels=labels)
        text = "Failed attempts in a row; `cbp sinks show` explains what to do."
        failures = GaugeMetricFamily("cbp_sink_failures", text, labels=labels)
        for row in self._sinks:
            waiting.add_metric([row.dataflow, row.sink], max(row.end - row.next, 0))
            lag.add_metric([row.dataflow, row.sink], self._age(row.waits_since))
            failures.add_metric([row.dataflow, row.sink], standing_of(row).failures)
        yield from (waiting, lag, failures)

    def _of_runs(self, counts: Counts) -> Iterator[Metric]:
        text = "Runs that ended, by outcome; if `failed` rises, an operator is needed."
        ended = CounterMetricFamily("cbp_ended_runs", text, labels=["dataflow", "outcome"])
        for (dataflow, outcome), runs in sorted(counts.runs.items()):
            if dataflow in self._names:
                ended.add_metric([dataflow, outcome], runs)
        text = "Seconds that committed runs spent in a phase; investigate the largest phase first."
        phases = CounterMetricFamily("cbp_run_phase_seconds", text, labels=["dataflow", "phase"])
        for (dataflow, phase), seconds in sorted(counts.phase_seconds.items()):
            if dataflow in self._names:
                phases.add_metric([dataflow, phase], seconds)
        yield from (ended, phases)
        text = (
            "Seconds of one phase of a run, over all dataflows; `job` includes the author's code."
        )
        histogram = HistogramMetricFamily("cbp_run_phase_duration_seconds", text, labels=["phase"])
        for phase, buckets in sorted(counts.buckets.items()):
            total = sum(s for (_, name), s in counts.phase_seconds.items() if name == phase)
            histogram.add_metric([phase], _cumulated(buckets), total)
        yield histogram
        for figure in FIGURES:
            if figure in _TOTALS:
                unit, _, what = figure.partition("_")
                name = f"cbp_run_{what}_{unit}" if what else f"cbp_run_{unit}"
                family = CounterMetricFamily(name, _TOTALS[figure], labels=_FLOW)
                for dataflow in sorted(self._names):
                    family.add_metric([dataflow], counts.figures.get((dataflow, figure), 0.0))
                yield family
        text = "Look-ups of state; `index`: an index copy was used, `scan`: the file was read."
        lookups = CounterMetricFamily("cbp_state_lookups", text, labels=["dataflow", "way"])
        for dataflow in sorted(self._names):
            for way in ("index", "scan"):
                value = counts.figures.get((dataflow, f"lookups_{way}"), 0.0)
                lookups.add_metric([dataflow, way], value)
        yield lookups

    def _of_lanes(self) -> Iterator[Metric]:
        labels = ["dataflow", "lane"]
        text = (
            "Runs that this instance committed, by lane; in `spark` even a small run costs a "
            "whole Spark job."
        )
        runs = CounterMetricFamily("cbp_runs", text, labels=labels)
        seconds = CounterMetricFamily(
            "cbp_run_seconds", "Seconds that the jobs of these runs took.", labels=labels
        )
        for _, one in sorted(self._counts.lanes.items()):
            if one.dataflow in self._names:
                runs.add_metric([one.dataflow, one.lane], one.runs)
                seconds.add_metric([one.dataflow, one.lane], one.seconds)
        yield from (runs, seconds)

    def _of_scrubs(self) -> Iterator[Metric]:
        text = "Files that are known to be damaged; `cbp doctor` says how to repair them."
        damages = GaugeMetricFamily("cbp_damaged_files", text, labels=_FLOW)
        text = (
            "Unix time at which a scrub last read everything on disk; absent if none ever finished."
        )
        ended = GaugeMetricFamily("cbp_scrub_timestamp_seconds", text, labels=_FLOW)
        for one in self._scrubs:
            damages.add_metric([one.dataflow], len(one.damages))
            if one.ended_at is not None:
                ended.add_metric([one.dataflow], one.ended_at.timestamp())
        yield from (damages, ended)

    def _of_requests(self) -> Iterator[Metric]:
        text = (
            "Requests, by route; for status 5xx read the log; many 401 and 403 mean that someone "
            "tries tokens."
        )
        requests = CounterMetricFamily(
            "cbp_http_requests", text, labels=["method", "route", "status"]
        )
        for labels, count in sorted(self._requests.items()):
            requests.add_metric(list(labels), count)
        text = (
            "Seconds until the head of the answer was sent; divide by requests for the mean wait "
            "of clients."
        )
        seconds = CounterMetricFamily("cbp_http_request_seconds", text, labels=["method", "route"])
        for names, value in sorted(self._request_seconds.items()):
            seconds.add_metric(list(names), value)
        yield from (requests, seconds)

    def _of_the_audit_log(self) -> Iterator[Metric]:
        text = "Refused requests, by error; `cbp audit --outcome refused` shows their origin."
        refused = CounterMetricFamily("cbp_refused_requests", text, labels=["error_code"])
        for code, count in sorted(self._refusals.items()):
            refused.add_metric([code], count)
        yield refused
        text = (
            "Entries that could not be stored in the audit log; the service's log has them as "
            "`audit.not_stored`."
        )
        yield _counter("cbp_unstored_audit_entries", text, self._unstored)

    def _age(self, at: datetime | None) -> float:
        return 0.0 if at is None else max(0.0, (self._now - at).total_seconds())


def _degraded(
    sources: MetricSources, records: Iterable[DataflowRecord], gauges: GaugeRows
) -> set[str]:
    """Return degraded dataflows and unreadable parts, except those that are paused by hand."""
    listed = degraded_now(sources.controller, sources.store, sources.drop_folder)
    degraded = {one.dataflow for one in listed} | set(gauges.unreadable)
    return degraded - {record.name for record in records if record.is_paused}


def _lease_left(store: Store) -> float | None:
    try:
        lease, now_ms = store.lease()
    except CbpError:
        return None
    return max(0.0, (lease.expires_ms - now_ms) / 1000)


def _cumulated(buckets: list[int]) -> list[tuple[str, float]]:
    """Return the buckets as Prometheus has them: each holds all that are not longer."""
    total, bounds = 0, [*map(str, BUCKETS), "+Inf"]
    cumulated = []
    for bound, runs in zip(bounds, buckets, strict=True):
        total += runs
        cumulated.append((bound, float(total)))
    return cumulated


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value)
