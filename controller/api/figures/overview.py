"""The state of dataflows: figures for the list, and for one dataflow.

The figures are read from the store when they are asked for. Summaries are rebuilt only for
dataflows that have changed (`controller.api.requests.shared_answers`). The parts are read one after
the other, so a run that commits in between may show in only some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import structlog
from fastapi import Depends

from cbp.clock import MACHINE
from cbp.errors import CbpError, NotFoundError
from cbp.errors.counts import format_times
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.dataflow.replacement_obstacles import obstacles
from cbp.model.flow.back_pressure import DEFAULT_LIMIT, FlowLimit
from cbp.model.flow.connector import Connector
from cbp.model.flow.retention import NO_WISH, FlowRetention, RetentionWish
from cbp.model.instants import instant_of
from cbp.model.run.intention import RunStatus
from controller.api.answers.schemas import (
    DataflowDetail,
    DataflowState,
    DataflowSummary,
    KeepOut,
    KeptOut,
    LookupOut,
    QueueOut,
    RebuildOut,
    SourceOut,
    StageOut,
    StageState,
    StateOut,
)
from controller.api.figures.degraded import reason_of, sink_troubles, stage_error, stage_state
from controller.api.figures.recent_runs import RUNS_SHOWN, failing_stages, recent_runs
from controller.api.figures.rejected import rejected_by_source
from controller.api.requests.present_state import PresentState
from controller.api.requests.shared_answers import KeptSummaries, KeptSummary
from controller.api.routing.dependencies import Now, PartsDep, PresentStateDep
from controller.loop.controller import Controller
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

_log = structlog.get_logger(__name__)

# The worst state of any stage is the state of its dataflow.
_WORST_FIRST: tuple[tuple[StageState, DataflowState], ...] = (
    ("stopped", "stopped"),
    ("retrying", "retrying"),
    ("paused", "paused"),
)


@dataclass(frozen=True, slots=True)
class _Read:
    """Facts from which several figures of a dataflow are computed; the newest run is first."""

    stages: Sequence[StageRecord]
    runs: Sequence[RunRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Collects the figures of dataflows.

    Attributes:
        input_retention: How long inputs are kept for sources without a declared retention.
    """

    controller: Controller
    store: Store
    present: PresentState
    input_retention: FlowRetention
    kept: KeptSummaries
    now: Now = MACHINE.now

    def summary_now(self, name: str) -> DataflowSummary:
        """Return the figures of one dataflow as of now; raises `NotFoundError`."""
        return self.summarise(self.store.dataflow(name), self.now())

    def summarise_all(
        self, records: Iterable[DataflowRecord], now: datetime
    ) -> list[DataflowSummary]:
        """Return the figures of dataflows for the list; broken ones are listed too."""
        # Read before the summaries' other facts, so that a change in between makes them outdated.
        # Only the records were read earlier; they are compared themselves.
        revisions = self.store.revisions()
        return [self._summarise_again(one, revisions, now) for one in records]

    def _summarise_again(
        self, record: DataflowRecord, revisions: Mapping[str, int], now: datetime
    ) -> DataflowSummary:
        name, revision = record.name, revisions.get(record.name)
        made_from = (revision, record, self.present.waits(name), self.present.troubles(name))
        kept = self.kept.find(name, made_from)
        if kept is None or revision is None:
            summary = self.summarise(record, now)
            if summary.state != "broken":
                lag = summary.lag_seconds
                oldest_at = None if lag is None else now - timedelta(seconds=lag)
                self.kept.keep(name, KeptSummary(made_from, summary, oldest_at))
            return summary
        fresh: dict[str, Any] = {
            # Tables of rejected and set-aside records are written after the increment was stored.
            "rejected": rejected_by_source(record, _object(record.document.get("sources"))),
            "set_aside": self.controller.set_aside_counts.of(record, revisions),
        }
        if kept.oldest_at is not None:
            fresh["lag_seconds"] = max(0.0, (now - kept.oldest_at).total_seconds())
        return kept.summary.model_copy(update=fresh)

    def summarise(self, record: DataflowRecord, now: datetime) -> DataflowSummary:
        """Return the figures of one dataflow; a broken dataflow is shown too."""
        try:
            read = self._read(record)
            return self._summary(record, self._stages(record, None, now, read), read)
        except NotFoundError:
            raise
        except Exception as error:  # only this dataflow is shown as broken
            return _broken(record, error)

    def detail(self, record: DataflowRecord, now: datetime) -> DataflowDetail:
        """Return one dataflow with its sources, stages and queues; a broken one is shown too."""
        try:
            return self._detail(record, now)
        except NotFoundError:
            raise
        except Exception as error:  # only this dataflow is shown as broken
            summary = _broken(record, error)
            return DataflowDetail(
                summary=summary,
                folder=record.folder,
                sources=[],
                stages=[],
                document=_object(record.document),
                definition_problem=summary.problem,
            )

    def _detail(self, record: DataflowRecord, now: datetime) -> DataflowDetail:
        dataflow, trouble = self._compiled(record.name)
        read = self._read(record)
        stages = self._stages(record, dataflow, now, read)
        return DataflowDetail(
            summary=self._summary(record, stages, read),
            folder=record.folder,
            sources=[] if dataflow is None else _sources(dataflow, self.input_retention),
            stages=stages,
            document=dict(record.document),
            definition_problem=trouble,
        )

    def _compiled(self, name: str) -> tuple[Dataflow | None, str | None]:
        """Compile a dataflow; if that fails, return the reason instead."""
        try:
            return self.controller.dataflow(name), None
        except NotFoundError:
            raise
        except CbpError as error:
            return None, error.message

    def _read(self, record: DataflowRecord) -> _Read:
        runs = self.store.runs(record.name, limit=RUNS_SHOWN).items
        return _Read(self.store.stages(record.name), runs)

    def _summary(
        self, record: DataflowRecord, stages: list[StageOut], read: _Read
    ) -> DataflowSummary:
        sources = _object(record.document.get("sources"))
        queues = [queue for stage in stages for queue in stage.queues]
        lags = [stage.lag_seconds for stage in stages if stage.lag_seconds is not None]
        successes = [stage.last_success_at for stage in stages if stage.last_success_at is not None]
        troubles = [*self.present.troubles(record.name), *sink_troubles(self.store, record)]
        state = _dataflow_state(record, stages)
        if troubles and state == "ok":
            state = "retrying"
        return DataflowSummary.of(
            record,
            state=state,
            stages=len(stages),
            queued_increments=sum(queue.increments for queue in queues),
            queued_records=sum(queue.records for queue in queues),
            lag_seconds=max(lags, default=None),
            last_success_at=max(successes, default=None),
            failures=sum(stage.failures for stage in stages if stage.runs_with == stage.name),
            failing=failing_stages(self.store, record.name, read.stages),
            troubles=troubles,
            recent=recent_runs(read.runs),
            quarantined=dict(self.store.quarantined_of(record.name, sources)),
            rejected=rejected_by_source(record, sources),
            set_aside=self.controller.set_aside_counts.of(record),
            **_problem(state, stages, troubles, is_paused=record.is_paused),
        )

    def _stages(
        self, record: DataflowRecord, dataflow: Dataflow | None, now: datetime, read: _Read
    ) -> list[StageOut]:
        """Return every stage; stages that run together follow the one that leads their runs."""
        # Computed once, since it visits the whole graph.
        cycles = {} if dataflow is None else dataflow.cycles()
        waits = self.present.waits(record.name)
        connectors = self.store.connectors(record.name)
        runs = self.store.intended_runs()
        running = {run.stage for run in runs if run.dataflow == record.name}
        members = members_of(self.controller, record.name)
        set_aside = self.controller.set_aside_counts.of(record)
        rebuilds = self._rebuilds(record.name, connectors)

        def declared(stage: str) -> dict[str, Any]:
            files: Iterable[str] = ()
            if dataflow is not None and stage in dataflow.stages:
                files = self.controller.registry.newer_files(dataflow, stage)
            more = {"newer_files": list(files), "rebuilding": rebuilds.get(stage)}
            return _declared(record, stage, dataflow, cycles) | more

        stages_out = []
        for stage in read.stages:
            wait = waits.get(stage.stage)
            queues = self._queues(record, stage.stage, connectors.get(stage.stage, {}), dataflow)
            oldest = min((q.oldest_at for q in queues if q.oldest_at is not None), default=None)
            leader = StageOut.of(
                stage,
                **declared(stage.stage),
                runs_with=stage.stage,
                state=stage_state(
                    stage,
                    wait,
                    is_running=stage.stage in running,
                    is_paused=record.is_paused,
                    set_aside=set_aside.get(stage.stage, 0),
                ),
                set_aside=set_aside.get(stage.stage, 0),
                paused_itself=stage.is_paused,
                waiting=stage.paused_because or ("" if wait is None else wait.words),
                error=stage_error(stage, wait),
                lag_seconds=None if oldest is None else max(0.0, (now - oldest).total_seconds()),
                last_success_at=self._last_success(record.name, stage.stage, read.runs),
                queues=queues,
            )
            others = members.get(stage.stage, (stage.stage,))[1:]
            # A stage that runs with its leader has no queue of its own.
            its_own: dict[str, Any] = {"queues": [], "lag_seconds": None, "memo": None}
            stages_out.append(leader)
            stages_out += [leader.model_copy(update=declared(n) | its_own) for n in others]
        return stages_out

    def _rebuilds(
        self, name: str, connectors: Mapping[str, Mapping[str, Connector]]
    ) -> dict[str, RebuildOut]:
        try:
            rebuilds = self.controller.rebuilding(name, connectors)
        except NotFoundError:
            raise
        except CbpError:  # it does not compile, which the answer says elsewhere
            return {}
        return {
            stage: RebuildOut.of(
                one,
                since=instant_of(one.since_ms),
                as_it_was=None if one.as_it_was_ms is None else instant_of(one.as_it_was_ms),
            )
            for stage, one in rebuilds.items()
        }

    def _queues(
        self,
        record: DataflowRecord,
        stage: str,
        connectors: Mapping[str, Connector],
        dataflow: Dataflow | None,
    ) -> list[QueueOut]:
        node = None if dataflow is None else dataflow.stages.get(stage)
        wiring = _node(record, stage).get("inputs", {}) if node is None else node.wiring
        return [
            self._queue(record.name, connector, str(wiring.get(name, "")), dataflow)
            for name, connector in sorted(connectors.items())
        ]

    def _queue(
        self, name: str, connector: Connector, flow: str, dataflow: Dataflow | None
    ) -> QueueOut:
        queued = [entry.increment for entry in connector.queue]
        unread = connector.unread
        oldest_at = None
        if unread and connector.framing is None:  # a frame's number names no increment
            with suppress(NotFoundError):  # consumed and collected since the queue was read
                oldest_at = self.store.increment(name, unread[0].flow, unread[0].index).created_at
        flow = flow or (queued[0].flow if queued else "")
        limit = _limit(dataflow, flow)
        return QueueOut(
            input=connector.input,
            flow=flow,
            limits={} if limit is None else limit.to_json(),
            share=0.0 if limit is None else limit.share(connector),
            unread_records=sum(increment.records for increment in unread),
            increments=len(queued),
            unread=len(unread),
            records=sum(increment.records for increment in queued),
            bytes=sum(increment.bytes for increment in queued),
            oldest_at=oldest_at,
        )

    def _last_success(
        self, dataflow: str, stage: str, newest: Sequence[RunRecord]
    ) -> datetime | None:
        for run in newest:
            if run.stage == stage and run.status is RunStatus.COMMITTED:
                return run.finished_at
        runs = self.store.runs(dataflow, stage=stage, status=RunStatus.COMMITTED, limit=1)
        return runs.items[0].finished_at if runs.items else None


async def _overview(parts: PartsDep, present: PresentStateDep) -> Overview:
    return Overview(
        controller=parts.controller,
        store=parts.store,
        present=present,
        input_retention=parts.settings.input_retention,
        kept=parts.summaries,
        now=parts.now,
    )


OverviewDep = Annotated[Overview, Depends(_overview)]


def _broken(record: DataflowRecord, error: Exception) -> DataflowSummary:
    _log.error("dataflow.unreadable", dataflow=record.name, exc_info=error)
    cause = reason_of(error)
    return DataflowSummary.of(
        record,
        state="broken",
        stages=len(_object(_object(record.document).get("stages"))),
        problem=f"the figures of this dataflow cannot be read: {cause}. See the log, and run "
        "`cbp doctor`",
        problem_code="unreadable",
        **dict.fromkeys(("queued_increments", "queued_records", "failures"), 0),
        **dict.fromkeys(("lag_seconds", "last_success_at")),
        **dict.fromkeys(("failing", "troubles", "recent"), ()),
        **{name: {} for name in ("quarantined", "rejected", "set_aside")},
    )


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _problem(
    state: DataflowState, stages: Iterable[StageOut], troubles: Iterable[str], *, is_paused: bool
) -> dict[str, str | None]:
    """Return why an active dataflow, or some of its stages, makes no progress, with a code."""
    if state == "ok" or is_paused:
        return {"problem": None, "problem_code": None}
    reasons = []
    for stage in stages:
        is_stuck = stage.state in ("retrying", "stopped", "paused") or stage.failures
        if is_stuck and stage.runs_with == stage.name:
            failed = f" (failed {format_times(stage.failures, 'in a row')})"
            tries = failed if stage.failures else ""
            reasons.append(f"{stage.name}: {stage.waiting or 'is retried now'}{tries}")
    code = "stages" if reasons else "outside"
    return {"problem": "; ".join(dict.fromkeys([*troubles, *reasons])), "problem_code": code}


def _dataflow_state(record: DataflowRecord, stages: Iterable[StageOut]) -> DataflowState:
    if record.is_paused:
        return "paused"
    states: set[StageState] = {stage.state for stage in stages}
    if any(stage.failures and stage.state != "paused" for stage in stages):
        states.add("retrying")  # also while the next attempt runs
    return next((worst for state, worst in _WORST_FIRST if state in states), "ok")


def members_of(controller: Controller, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return leader -> the stages that run together; empty if the dataflow does not compile."""
    try:
        return controller.members(name)
    except NotFoundError:
        raise
    except CbpError:
        return {}


def leader_of(controller: Controller, name: str, stage: str) -> str:
    """Return the stage that leads this one's runs; itself if the dataflow does not compile."""
    members = members_of(controller, name)
    return next((leader for leader, names in members.items() if stage in names), stage)


def _declared(
    record: DataflowRecord,
    stage: str,
    dataflow: Dataflow | None,
    cycles: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    document = _node(record, stage)
    node = None if dataflow is None else dataflow.stages.get(stage)
    if node is None:
        return {
            "name": stage,
            "translator": str(document.get("translator", "")),
            "inputs": {name: str(flow) for name, flow in document.get("inputs", {}).items()},
            **{"buckets": None, "runnable": "", "outputs": {}, "keep": {}},
            **{"states": [], "lookups": [], "cycle": []},
        }
    spec = node.translator
    return {
        "name": stage,
        "translator": str(document.get("translator", spec.name)),
        "buckets": node.buckets,
        "runnable": node.runnable.name,
        "inputs": dict(node.wiring),
        "lookups": [
            LookupOut.of(
                lookup,
                table=node.lookups[lookup.name],
                columns=str(lookup.schema),
                wakes=lookup.wake,
            )
            for lookup in spec.lookups
        ],
        "cycle": list(cycles.get(stage, ())),
        "outputs": {f"{stage}.{output.name}": str(output.schema) for output in spec.outputs},
        "keep": {
            f"{stage}.{output}": KeptOut(
                hours=None if wish.seconds is None else wish.seconds / 3600, bytes=wish.bytes or 0
            )
            for output, wish in node.keep.items()
        },
        "states": [
            StateOut.of(
                state,
                columns=str(state.schema),
                key=str(spec.key_of(state)),
                second_key=str(state.schema.select(state.second_key)),
                kind="view" if state.changes else "state",
                keeps=state.keep,
            )
            for state in spec.states
        ],
    }


def _limit(dataflow: Dataflow | None, flow: str) -> FlowLimit | None:
    """Return how much of a flow may wait at a reader; `None` for a source, or if unknown."""
    writer, _, output = flow.partition(".")
    node = None if dataflow is None or not output else dataflow.stages.get(writer)
    return None if node is None else node.limits.get(output, DEFAULT_LIMIT)


def _sources(dataflow: Dataflow, service: FlowRetention) -> list[SourceOut]:
    return [
        SourceOut.of(
            source,
            columns=str(source.schema),
            options={name: str(value) for name, value in source.options.items()},
            keep=_keep_out(source.keep, service),
            on_bad_records=source.on_bad_records.to_json(),
            uncorrectable=_uncorrectable(source, dataflow),
        )
        for source in dataflow.sources.values()
    ]


def _uncorrectable(source: SourceNode, dataflow: Dataflow) -> str:
    """Return why stages cannot apply a correction, although one of them declares `any_order`."""
    if not any(
        node.any_order and source.name in node.wiring.values() for node in dataflow.stages.values()
    ):
        return ""
    found = obstacles(source, dataflow.sources, dataflow.stages, dataflow.sinks)
    return "; ".join(f"{one.reader} cannot apply corrections: {one.why}" for one in found)


def _keep_out(wish: RetentionWish, service: FlowRetention) -> KeepOut:
    retention = wish.over(service)
    return KeepOut.of(
        retention, hours=retention.seconds / 3600, by="service" if wish == NO_WISH else "dataflow"
    )


def _node(record: DataflowRecord, stage: str) -> Mapping[str, Any]:
    node = record.document.get("stages", {}).get(stage, {})
    assert isinstance(node, Mapping)
    return node
