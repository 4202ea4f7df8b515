"""Metrics for Prometheus; a scrape needs a fixed number of SQL statements.

Labels are names from dataflow documents, or fixed words; never keys, files, runs or increments,
since their number has no bound. Each help text says what to do with the figure. Counters start at 0
with this instance, as Prometheus expects.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from pathlib import Path

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cbp.clock import MACHINE
from cbp.errors import CbpError
from cbp.model.schedule.lease import Role
from controller.alerts.disk_room import disk_rooms
from controller.api.figures.degraded import degraded_now
from controller.api.routing.dependencies import Parts
from controller.loop.runs.run_counts import BUCKETS, WAITS
from controller.sinks.sink_standing import standing_of
from controller.store.base import DataflowRecord, GaugeRows, Store

SLOW_SECONDS = 60.0
"""How old the expensive figures may be: files in quarantine, and bytes of the cache."""

_Samples = Iterable[tuple[Sequence[str], float]]
"""Samples of a metric: the values of the labels, and the figure."""

_FLOW, _STAGE = ["dataflow"], ["dataflow", "stage"]
_TOTALS = {
    "bytes_read": "cbp_run_read_bytes",
    "bytes_in": "cbp_run_in_bytes",
    "bytes_written": "cbp_run_written_bytes",
    "records_in": "cbp_run_in_records",
    "records_out": "cbp_run_out_records",
    "groups": "cbp_run_groups",
}
_HELP = {
    "cbp_dataflows": "Registered dataflows.",
    "cbp_leads": "1 while this instance leads; the sum over all instances must be 1.",
    "cbp_lease_epoch": "Epoch of the lease, as this instance sees it; if it rises often, leaders "
    "may be losing the connection to the database.",
    "cbp_lease_left_seconds": "Seconds until the lease expires; near 0 the leader fails to renew "
    "the lease: check the database.",
    "cbp_ticks": "Ticks of the loop; if there is none for a minute, the loop hangs.",
    "cbp_failed_ticks": "Ticks that failed; while this rises, no run starts: search the log for "
    "tick.failed.",
    "cbp_tick_seconds": "Seconds that ticks took, in all; if they take nearly a second each, runs "
    "start late.",
    "cbp_event_streams": "Clients that follow the events; clients beyond "
    "CBP_EVENT_STREAMS_MAX are refused.",
    "cbp_cache_bytes": "Bytes of index copies; the copies may be removed at any time, which makes "
    "look-ups slower.",
    "cbp_disk_free_bytes": "Free bytes on the disk of each folder; near 0 runs fail: free some "
    "space (`cbp disk NAME`).",
    "cbp_disk_writable": "1 while files can be created in a folder; 0 if it is mounted read-only "
    "or not writable.",
    "cbp_lag_seconds": "Age of the oldest unprocessed increment in seconds, or 0; `cbp waiting` "
    "shows why it waits.",
    "cbp_dataflow_paused": "1 while an operator has paused the dataflow; `cbp resume` ends this.",
    "cbp_dataflow_degraded": "1 while the dataflow retries, has stopped, or cannot be read; `cbp "
    "status` shows why.",
    "cbp_quarantined_files": "Files in quarantine, at most a minute old; `cbp claims` shows the "
    "reason of each.",
    "cbp_set_aside_records": "Records that a stage has set aside; fix its code, then `cbp "
    "give-back`.",
    "cbp_stage_epochs": "Committed epochs; a flat line under load means that the stage does not "
    "run.",
    "cbp_stage_failures": "Failed attempts in a row; `cbp runs` shows the error.",
    "cbp_stage_stopped": "1 while a failure has stopped the stage; fix the cause, then run `cbp "
    "retry`.",
    "cbp_stage_lag_seconds": "Age in seconds of the oldest increment that the stage has not read.",
    "cbp_stage_waited_seconds": "Seconds that a stage waited: `readers` for downstream stages "
    "(back-pressure), `place` for a slot (CBP_PARALLEL_RUNS_MAX). The rate is the share of time "
    "spent waiting.",
    "cbp_queue_increments": "Increments that wait at an input; if the number grows, the stage is "
    "slower than its input.",
    "cbp_queue_records": "Records that wait at an input; if the number grows, the stage is slower "
    "than its input.",
    "cbp_queue_bytes": "Bytes that wait at an input; if the number grows, the stage is slower "
    "than its input.",
    "cbp_sink_waiting_increments": "Increments that a sink has not published yet; they are kept. "
    "See `cbp sinks list`.",
    "cbp_sink_lag_seconds": "Age in seconds of the oldest increment that a sink has not "
    "published, or 0.",
    "cbp_sink_failures": "Failed attempts in a row; `cbp sinks show` explains what to do.",
    "cbp_ended_runs": "Runs that ended, by outcome; if `failed` rises, an operator is needed.",
    "cbp_run_phase_seconds": "Seconds that committed runs spent in a phase; investigate the "
    "largest phase first.",
    "cbp_run_phase_duration_seconds": "Seconds of one phase of a run, over all dataflows; `job` "
    "includes the author's code.",
    "cbp_run_read_bytes": "Bytes of state that runs read; if this grows faster than the input, "
    "groups are large: check the choice of keys.",
    "cbp_run_in_bytes": "Bytes of input that runs read.",
    "cbp_run_written_bytes": "Bytes that runs wrote; compare them with the free space on the disk.",
    "cbp_run_in_records": "Records of input that runs read; its rate is the throughput.",
    "cbp_run_out_records": "Records that runs emitted.",
    "cbp_run_groups": "Groups that were called; if these are most groups of a state, an increment "
    "touches too many keys.",
    "cbp_state_lookups": "Look-ups of state; `index`: an index copy was used, `scan`: the file "
    "was read.",
    "cbp_runs": "Runs that this instance committed, by lane; in `spark` even a small run costs a "
    "whole Spark job.",
    "cbp_run_seconds": "Seconds that the jobs of these runs took.",
    "cbp_damaged_files": "Files that are known to be damaged; `cbp doctor` says how to repair "
    "them.",
    "cbp_scrub_timestamp_seconds": "Unix time at which a scrub last read everything on disk; "
    "absent if none ever finished.",
    "cbp_http_requests": "Requests, by route; for status 5xx read the log; many 401 and 403 mean "
    "that someone tries tokens.",
    "cbp_http_request_seconds": "Seconds until the head of the answer was sent; divide by "
    "requests for the mean wait of clients.",
    "cbp_refused_requests": "Refused requests, by error; `cbp audit --outcome refused` shows "
    "their origin.",
    "cbp_unstored_audit_entries": "Entries that could not be stored in the audit log; the "
    "service's log has them as `audit.not_stored`.",
}


class SlowFigures:
    """The files in quarantine, and the bytes of the cache; read once a minute."""

    def __init__(
        self, store: Store, cache: Path, monotonic: Callable[[], float] = MACHINE.seconds
    ) -> None:
        self._store, self._cache, self._monotonic = store, cache, monotonic
        self._lock = threading.Lock()
        self._last: tuple[float, Mapping[tuple[str, str], int], int] | None = None

    def __call__(self) -> tuple[Mapping[tuple[str, str], int], int]:
        """Return the files in quarantine by dataflow and source, and the bytes of the cache."""
        with self._lock:
            now = self._monotonic()
            if self._last is None or now - self._last[0] > SLOW_SECONDS:
                self._last = (now, self._store.quarantined(), _bytes_below(self._cache))
            return self._last[1:]


class MetricsScrape(Collector):
    """The metrics at one moment."""

    def __init__(self, parts: Parts) -> None:
        controller, store = parts.controller, parts.store
        self._now = parts.now()
        self._standing = parts.standing()
        self._revisions, self._set_aside = store.revisions(), controller.set_aside_counts
        self._records = store.dataflows()
        self._names = {record.name for record in self._records}
        self._gauges = store.gauges()
        self._lease_left = _lease_left(store)
        self._counts = controller.run_counts
        self._degraded = _degraded(parts, self._gauges, self._records)
        self._scrubs = [controller.scrubs.last(name) for name in sorted(self._names)]
        self._sinks = store.sinks()
        self._quarantined, self._cache_bytes = parts.slow_figures()
        self._streams, self._disks = parts.events.streams, disk_rooms(parts.settings)
        self._requests, self._request_seconds = parts.requests.all()
        self._refusals, self._unstored = parts.access.audit.refusals, parts.access.audit.unstored

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield from self._of_the_instance()
        yield from self._of_dataflows()
        yield from self._of_stages()
        yield from self._of_queues()
        yield from self._of_runs()
        yield from self._of_lanes()
        yield from self._of_scrubs()
        yield from self._of_sinks()
        yield from self._of_requests()

    def _of_the_instance(self) -> Iterator[Metric]:
        counts = self._counts
        yield _gauge("cbp_dataflows", len(self._records))
        yield _gauge("cbp_leads", self._standing.role is Role.LEADS)
        yield _gauge("cbp_lease_epoch", self._standing.epoch)
        if self._lease_left is not None:
            yield _gauge("cbp_lease_left_seconds", self._lease_left)
        yield _counter("cbp_ticks", counts.ticks)
        yield _counter("cbp_failed_ticks", counts.failed_ticks)
        yield _counter("cbp_tick_seconds", counts.tick_seconds)
        yield _gauge("cbp_event_streams", self._streams)
        yield _gauge("cbp_cache_bytes", self._cache_bytes)
        folders = [(name.split(" ")[:1], room) for room in self._disks for name in room.folders]
        free = [(labels, room.free_bytes) for labels, room in folders]
        yield _gauges("cbp_disk_free_bytes", ["folder"], free)
        writable = [(labels, room.writable) for labels, room in folders]
        yield _gauges("cbp_disk_writable", ["folder"], writable)

    def _of_dataflows(self) -> Iterator[Metric]:
        records, oldest = self._records, self._gauges.oldest_waiting()
        lags = [([one.name], self._age(oldest.get(one.name))) for one in records]
        yield _gauges("cbp_lag_seconds", _FLOW, lags)
        paused = [([one.name], one.is_paused) for one in records]
        yield _gauges("cbp_dataflow_paused", _FLOW, paused)
        degraded = [([one.name], one.name in self._degraded) for one in records]
        yield _gauges("cbp_dataflow_degraded", _FLOW, degraded)
        files = sorted(self._quarantined.items())
        yield _gauges("cbp_quarantined_files", ["dataflow", "source"], files)
        aside = [
            ([record.name, stage], count)
            for record in records
            for stage, count in self._set_aside.of(record, self._revisions).items()
        ]
        yield _gauges("cbp_set_aside_records", _STAGE, aside)

    def _of_stages(self) -> Iterator[Metric]:
        stages = [((one.dataflow, one.stage), one) for one in self._gauges.stages]
        yield _counters("cbp_stage_epochs", _STAGE, [(name, one.epoch) for name, one in stages])
        failures = [(name, one.failures) for name, one in stages]
        yield _gauges("cbp_stage_failures", _STAGE, failures)
        stopped = [(name, one.has_stopped) for name, one in stages]
        yield _gauges("cbp_stage_stopped", _STAGE, stopped)
        oldest: dict[tuple[str, str], float] = {}
        for queue in self._gauges.queues:
            key = queue.dataflow, queue.stage
            oldest[key] = max(self._age(queue.oldest_at), oldest.get(key, 0.0))
        lags = [(name, oldest.get(name, 0.0)) for name, _ in stages]
        yield _gauges("cbp_stage_lag_seconds", _STAGE, lags)
        waits = [(*name, kind) for name, _ in stages for kind in WAITS]
        waited = [(wait, self._counts.waited.get(wait, 0.0)) for wait in waits]
        yield _counters("cbp_stage_waited_seconds", [*_STAGE, "reason"], waited)

    def _of_queues(self) -> Iterator[Metric]:
        queues = [([one.dataflow, one.stage, one.input], one) for one in self._gauges.queues]
        labels = [*_STAGE, "input"]
        yield _gauges("cbp_queue_increments", labels, [(at, one.increments) for at, one in queues])
        yield _gauges("cbp_queue_records", labels, [(at, one.records) for at, one in queues])
        yield _gauges("cbp_queue_bytes", labels, [(at, one.bytes) for at, one in queues])

    def _of_sinks(self) -> Iterator[Metric]:
        sinks, labels = [([row.dataflow, row.sink], row) for row in self._sinks], [*_FLOW, "sink"]
        waiting = [(name, max(row.end - row.next, 0)) for name, row in sinks]
        yield _gauges("cbp_sink_waiting_increments", labels, waiting)
        lags = [(name, self._age(row.waits_since)) for name, row in sinks]
        yield _gauges("cbp_sink_lag_seconds", labels, lags)
        failures = [(name, standing_of(row).failures) for name, row in sinks]
        yield _gauges("cbp_sink_failures", labels, failures)

    def _of_runs(self) -> Iterator[Metric]:
        counts, names = self._counts, sorted(self._names)
        ended = [one for one in sorted(counts.runs.items()) if one[0][0] in self._names]
        yield _counters("cbp_ended_runs", [*_FLOW, "outcome"], ended)
        phases = [one for one in sorted(counts.phase_seconds.items()) if one[0][0] in self._names]
        yield _counters("cbp_run_phase_seconds", [*_FLOW, "phase"], phases)
        name, bounds = "cbp_run_phase_duration_seconds", [*map(str, BUCKETS), "+Inf"]
        histogram = HistogramMetricFamily(name, _HELP[name], labels=["phase"])
        for phase, buckets in sorted(counts.buckets.items()):
            total = sum(s for (_, name), s in counts.phase_seconds.items() if name == phase)
            # A bucket of Prometheus counts all values up to its bound.
            cumulated = zip(bounds, map(float, accumulate(buckets)), strict=True)
            histogram.add_metric([phase], list(cumulated), total)
        yield histogram
        for figure, name in _TOTALS.items():
            totals = [([one], counts.figures.get((one, figure), 0.0)) for one in names]
            yield _counters(name, _FLOW, totals)
        lookups = [
            ([one, way], counts.figures.get((one, f"lookups_{way}"), 0.0))
            for one in names
            for way in ("index", "scan")
        ]
        yield _counters("cbp_state_lookups", [*_FLOW, "way"], lookups)

    def _of_lanes(self) -> Iterator[Metric]:
        every = [one for _, one in sorted(self._counts.lanes.items())]
        lanes = [([one.dataflow, one.lane], one) for one in every if one.dataflow in self._names]
        labels = [*_FLOW, "lane"]
        yield _counters("cbp_runs", labels, [(lane, one.runs) for lane, one in lanes])
        yield _counters("cbp_run_seconds", labels, [(lane, one.seconds) for lane, one in lanes])

    def _of_scrubs(self) -> Iterator[Metric]:
        damages = [([one.dataflow], len(one.damages)) for one in self._scrubs]
        yield _gauges("cbp_damaged_files", _FLOW, damages)
        ends = [([one.dataflow], one.ended_at) for one in self._scrubs]
        times = [(name, end.timestamp()) for name, end in ends if end is not None]
        yield _gauges("cbp_scrub_timestamp_seconds", _FLOW, times)

    def _of_requests(self) -> Iterator[Metric]:
        requests, seconds = sorted(self._requests.items()), sorted(self._request_seconds.items())
        yield _counters("cbp_http_requests", ["method", "route", "status"], requests)
        yield _counters("cbp_http_request_seconds", ["method", "route"], seconds)
        refused = [([code], count) for code, count in sorted(self._refusals.items())]
        yield _counters("cbp_refused_requests", ["error_code"], refused)
        yield _counter("cbp_unstored_audit_entries", self._unstored)

    def _age(self, at: datetime | None) -> float:
        return 0.0 if at is None else max(0.0, (self._now - at).total_seconds())


def _degraded(parts: Parts, gauges: GaugeRows, records: Iterable[DataflowRecord]) -> set[str]:
    """Return degraded and unreadable dataflows, except those that an operator paused."""
    listed = degraded_now(parts.controller, parts.store, parts.drop_folder)
    degraded = {one.dataflow for one in listed} | set(gauges.unreadable)
    return degraded - {record.name for record in records if record.is_paused}


def _lease_left(store: Store) -> float | None:
    try:
        lease, now_ms = store.lease()
    except CbpError:
        return None
    return max(0.0, (lease.expires_ms - now_ms) / 1000)


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, _HELP[name], value)


def _counter(name: str, value: float) -> Metric:
    return CounterMetricFamily(name, _HELP[name], value)


def _gauges(name: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = GaugeMetricFamily(name, _HELP[name], labels=labels)
    for values, figure in samples:
        family.add_metric(values, float(figure))
    return family


def _counters(name: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = CounterMetricFamily(name, _HELP[name], labels=labels)
    for values, figure in samples:
        family.add_metric(values, figure)
    return family


def _bytes_below(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(path, name), follow_symlinks=False).st_size
    return total
