"""The part of the store that the API reads, in memory; a test puts records into its lists."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cbp.errors import NotFoundError, OperatingError
from cbp.model.flow.connector import Connector
from cbp.model.flow.punctuation import Punctuation
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.lease import Lease
from controller.store.base import (
    ClaimRecord,
    DataflowRecord,
    EventRecord,
    GaugeRows,
    IncrementRecord,
    Page,
    QueueGauge,
    RunRecord,
    StageGauge,
    StageRecord,
)
from controller.store.records import SinkRecord
from tests.controller.api.fake_access import FakeAccessStore
from tests.controller.api.fake_pages import page_of

__all__ = ["FakeStore"]


class FakeStore(FakeAccessStore):
    """The part of the store that the API reads, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, DataflowRecord] = {}
        self.stage_records: list[StageRecord] = []
        self.queues: dict[str, dict[str, Connector]] = {}
        self.increment_records: list[IncrementRecord] = []
        self.claim_records: list[ClaimRecord] = []
        self.run_records: list[RunRecord] = []
        self.punctuation_records: list[Punctuation] = []
        self.event_records: list[EventRecord] = []
        self.sink_records: list[SinkRecord] = []
        self.broken = False
        self._revisions = itertools.count()

    def ping(self) -> None:
        if self.broken:
            message = "the database does not answer"
            raise OperatingError(message)

    def stamp(self) -> None:
        """None: nothing notices when a test changes a list."""

    def dataflows(self) -> list[DataflowRecord]:
        return [self.records[name] for name in sorted(self.records)]

    def revisions(self) -> dict[str, int]:
        """A new one each time: nothing notices when a test changes a list."""
        return {name: next(self._revisions) for name in sorted(self.records)}

    def dataflow(self, name: str) -> DataflowRecord:
        if name not in self.records:
            raise NotFoundError(kind="dataflow", name=name)
        return self.records[name]

    def stages(self, dataflow: str) -> list[StageRecord]:
        return [stage for stage in self.stage_records if stage.dataflow == dataflow]

    def all_stages(self) -> list[StageRecord]:
        return [stage for name in self.records for stage in self.stages(name)]

    def connectors(self, dataflow: str) -> dict[str, dict[str, Connector]]:
        return self.queues if dataflow in self.records else {}

    def gauges(self) -> GaugeRows:
        stages, queues, unreadable = list[StageGauge](), list[QueueGauge](), set[str]()
        for name in self.records:
            try:
                stages += [
                    StageGauge(name, one.stage, one.epoch, one.failures, one.paused_because)
                    for one in self.stages(name)
                ]
                queues += [
                    QueueGauge(name, stage, input_, len(connector.queue), connector.records)
                    for stage, inputs in self.connectors(name).items()
                    for input_, connector in inputs.items()
                ]
            except Exception:
                unreadable.add(name)
        return GaugeRows(tuple(stages), tuple(queues), frozenset(unreadable))

    def sinks(self, dataflow: str | None = None) -> list[SinkRecord]:
        return [one for one in self.sink_records if dataflow in (None, one.dataflow)]

    def want_sink(self, dataflow: str, sink: str, **_wanted: Any) -> SinkRecord:
        for one in self.sinks(dataflow):
            if one.sink == sink:
                return one
        raise NotFoundError(kind="sink", name=f"{dataflow}.{sink}")

    def queued(self) -> set[str]:
        gauges = self.gauges()
        return {one.dataflow for one in gauges.queues if one.increments} | gauges.unreadable

    def paused_stages(self) -> dict[str, dict[str, str]]:
        return {
            name: {one.stage: one.paused_because for one in self.stages(name) if one.is_paused}
            for name in self.records
        }

    def quarantined(self) -> dict[tuple[str, str], int]:
        return {("clicks", "urls"): 1}

    def quarantined_of(self, dataflow: str, sources: Iterable[str]) -> dict[str, int]:
        refused = [claim.source for claim in self.claim_records if claim.status == "quarantined"]
        return {source: refused.count(source) for source in sources if source in refused}

    def lease(self) -> tuple[Lease, int]:
        return Lease(1, "here", "http://here", 5_000), 1_000

    def intended_runs(self) -> list[RunRecord]:
        return [run for run in self.run_records if run.status is RunStatus.INTENDED]

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        for record in self.increment_records:
            at = record.dataflow, record.increment.flow, record.increment.index
            if at == (dataflow, flow, index):
                return record
        raise NotFoundError(kind="increment", name=f"{flow}/{index}")

    def increments(
        self,
        dataflow: str,
        flow: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[IncrementRecord]:
        actual = [
            r
            for r in self.increment_records
            if flow in (None, r.increment.flow)
            and (since is None or r.created_at >= since)
            and (until is None or r.created_at < until)
        ]
        return page_of(actual, cursor, limit)

    def claims(
        self,
        dataflow: str,
        source: str | None = None,
        *,
        status: str | None = None,
        index: int | None = None,
        code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ClaimRecord]:
        actual = [
            claim
            for claim in self.claim_records
            if source in (None, claim.source)
            and status in (None, claim.status)
            and index in (None, claim.index)
            and code in (None, (claim.reason or {}).get("code"))
            and (since is None or claim.created_at >= since)
            and (until is None or claim.created_at < until)
        ]
        return page_of(actual, cursor, limit)

    def claim_counts(self, dataflow: str) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for claim in self.claim_records:
            if claim.dataflow == dataflow:
                mine = counts.setdefault(claim.source, {})
                mine[claim.status] = mine.get(claim.status, 0) + 1
        return counts

    def find_claims(self, ids: Sequence[str]) -> dict[str, ClaimRecord]:
        return {claim.id: claim for claim in self.claim_records if claim.id in ids}

    def runs(
        self,
        dataflow: str | None = None,
        *,
        stage: str | None = None,
        status: RunStatus | None = None,
        epoch: int | None = None,
        error_code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[RunRecord]:
        actual = [
            run
            for run in self.run_records
            if dataflow in (None, run.dataflow)
            and stage in (None, run.stage)
            and status in (None, run.status)
            and epoch in (None, run.epoch)
            and error_code in (None, (run.error or {}).get("error_code"))
            and (since is None or run.started_at >= since)
            and (until is None or run.started_at < until)
        ]
        return page_of(actual, cursor, limit)

    def arrival_times(self, keys: Iterable[Any]) -> dict[Any, datetime]:
        known = {
            (record.dataflow, record.increment.flow, record.increment.index): record.created_at
            for record in self.increment_records
        }
        return {key: known[key] for key in keys if key in known}

    def origins(self, dataflow: str, keys: Iterable[Any]) -> dict[Any, Mapping[str, Any]]:
        known = {
            (record.increment.flow, record.increment.index): record.origin
            for record in self.increment_records
            if record.dataflow == dataflow
        }
        return {key: known[key] for key in keys if key in known}

    def committed_runs(self, *_: Any, **__: Any) -> list[RunRecord]:
        return []

    def punctuations(
        self,
        dataflow: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Punctuation]:
        return page_of(self.punctuation_records, cursor, limit)

    def newest_event(self) -> EventRecord:
        """Refuse a stream of events, which would not end."""
        message = "this store has no stream of events"
        raise OperatingError(message)

    def recent_events(self, dataflow: str | None = None, *, limit: int) -> list[EventRecord]:
        actual = [one for one in self.event_records if dataflow in (None, one.event.dataflow)]
        return actual[-limit:]

    def run(self, run_id: str) -> RunRecord:
        for run in self.run_records:
            if run.id == run_id:
                return run
        raise NotFoundError(kind="run", name=run_id)
