"""The state of dataflows: figures for the list, and for one dataflow.

All figures are read from the store when they are asked for; nothing is cached. The parts are read
one after the other, so a run that commits in between may show in only some of them. The figures
are for people; no decision depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import structlog
from fastapi import Depends

from cbp.errors import CbpError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.flow.retention import NO_WISH, FlowRetention, RetentionWish
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.waiting import Wait
from controller.api.answers.schemas import (
    DataflowDetail,
    DataflowState,
    DataflowSummary,
    KeepOut,
    KeptOut,
    QueueOut,
    SourceOut,
    StageOut,
    StageState,
    StateOut,
)
from controller.api.routing.dependencies import ControllerDep, SettingsDep, StoreDep
from controller.loop.controller import Controller
from controller.store.base import DataflowRecord, StageRecord, Store

__all__ = ["Overview", "OverviewDep", "members_of"]

_log = structlog.get_logger(__name__)

# The worst state of any stage is the state of its dataflow.
_WORST_FIRST: tuple[tuple[StageState, DataflowState], ...] = (
    ("stopped", "stopped"),
    ("retrying", "retrying"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Collects the figures of dataflows.

    Attributes:
        input_retention: How long inputs stay for sources whose dataflow does not say.
    """

    controller: Controller
    store: Store
    input_retention: FlowRetention

    def summarise(self, record: DataflowRecord, now: datetime) -> DataflowSummary:
        """Return the figures of one dataflow for the list; a broken dataflow is listed too."""
        try:
            return self._summary(record, self._stages(record, None, now))
        except NotFoundError:
            raise
        except Exception as error:  # the others are shown, and this one as broken
            return _broken(record, error)

    def detail(self, record: DataflowRecord, now: datetime) -> DataflowDetail:
        """Return one dataflow with its sources, stages and queues; a broken one is shown too."""
        try:
            return self._detail(record, now)
        except NotFoundError:
            raise
        except Exception as error:  # the others are shown, and this one as broken
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
        stages = self._stages(record, dataflow, now)
        return DataflowDetail(
            summary=self._summary(record, stages),
            folder=record.folder,
            sources=[] if dataflow is None else _sources(dataflow, self.input_retention),
            stages=stages,
            document=dict(record.document),
            definition_problem=trouble,
        )

    def _compiled(self, name: str) -> tuple[Dataflow | None, str | None]:
        """Compile a dataflow; return a message instead if a package is missing."""
        try:
            return self.controller.dataflow(name), None
        except NotFoundError:
            raise
        except CbpError as error:
            return None, error.message

    def _summary(self, record: DataflowRecord, stages: list[StageOut]) -> DataflowSummary:
        queues = [queue for stage in stages for queue in stage.queues]
        lags = [stage.lag_seconds for stage in stages if stage.lag_seconds is not None]
        successes = [stage.last_success_at for stage in stages if stage.last_success_at is not None]
        troubles = self.controller.troubles(record.name)
        state = _dataflow_state(record, stages)
        if troubles and state == "ok":
            state = "retrying"
        return DataflowSummary(
            name=record.name,
            version=record.version,
            desired=record.desired,
            state=state,
            stages=len(stages),
            queued_increments=sum(queue.increments for queue in queues),
            queued_records=sum(queue.records for queue in queues),
            lag_seconds=max(lags, default=None),
            last_success_at=max(successes, default=None),
            failures=sum(stage.failures for stage in stages if stage.runs_with == stage.name),
            problem=_problem(state, stages, [trouble.words for trouble in troubles]),
            created_at=record.created_at,
        )

    def _stages(
        self, record: DataflowRecord, dataflow: Dataflow | None, now: datetime
    ) -> list[StageOut]:
        """Return every stage. A stage that runs with others follows its leader and names it."""
        waits = self.controller.waits(record.name)
        connectors = self.store.connectors(record.name)
        runs = self.store.intended_runs()
        running = {run.stage for run in runs if run.dataflow == record.name}
        members = members_of(self.controller, record.name)
        stages_out = []
        for stage in self.store.stages(record.name):
            queues = self._queues(record, stage.stage, connectors.get(stage.stage, {}))
            oldest = min((q.oldest_at for q in queues if q.oldest_at is not None), default=None)
            leader = StageOut(
                **_declared(record, stage.stage, dataflow),
                runs_with=stage.stage,
                state=_stage_state(record, stage, waits.get(stage.stage), stage.stage in running),
                waiting=stage.paused_because or _words(waits.get(stage.stage)),
                epoch=stage.epoch,
                lag_seconds=None if oldest is None else max(0.0, (now - oldest).total_seconds()),
                failures=stage.failures,
                retry_at=stage.retry_at,
                last_success_at=self._last_success(record.name, stage.stage),
                memo=stage.memo,
                turns=stage.turns,
                queues=queues,
            )
            others = members.get(stage.stage, (stage.stage,))[1:]
            stages_out += [
                leader,
                *(_beside(leader, _declared(record, n, dataflow)) for n in others),
            ]
        return stages_out

    def _queues(
        self, record: DataflowRecord, stage: str, connectors: Mapping[str, Connector]
    ) -> list[QueueOut]:
        wiring = _node(record, stage).get("inputs", {})
        return [
            self._queue(record.name, connector, str(wiring.get(name, "")))
            for name, connector in sorted(connectors.items())
        ]

    def _queue(self, dataflow: str, connector: Connector, flow: str) -> QueueOut:
        queued = [entry.increment for entry in connector.queue]
        unread = connector.unread
        oldest_at = None
        if unread and connector.framing is None:  # a frame's number names no increment
            try:
                oldest = self.store.increment(dataflow, unread[0].flow, unread[0].index)
                oldest_at = oldest.created_at
            except NotFoundError:  # consumed and collected since the queue was read
                oldest_at = None
        return QueueOut(
            input=connector.input,
            flow=flow or (queued[0].flow if queued else ""),
            increments=len(queued),
            unread=len(unread),
            records=sum(increment.records for increment in queued),
            bytes=sum(increment.bytes for increment in queued),
            oldest_at=oldest_at,
        )

    def _last_success(self, dataflow: str, stage: str) -> datetime | None:
        runs = self.store.runs(dataflow, stage=stage, status=RunStatus.COMMITTED, limit=1)
        return runs.items[0].finished_at if runs.items else None


async def _overview(controller: ControllerDep, store: StoreDep, settings: SettingsDep) -> Overview:
    return Overview(controller=controller, store=store, input_retention=settings.input_retention)


OverviewDep = Annotated[Overview, Depends(_overview)]


def _broken(record: DataflowRecord, error: Exception) -> DataflowSummary:
    """Return what is known of a dataflow whose parts cannot be read."""
    _log.error("dataflow.unreadable", dataflow=record.name, exc_info=error)
    cause = error.message if isinstance(error, CbpError) else f"{type(error).__name__}: {error}"
    problem = f"its figures cannot be read: {cause}; the log has the stack, `cbp doctor` may help"
    return DataflowSummary(
        name=record.name,
        version=record.version,
        desired=record.desired,
        state="broken",
        stages=len(_object(_object(record.document).get("stages"))),
        queued_increments=0,
        queued_records=0,
        lag_seconds=None,
        last_success_at=None,
        failures=0,
        problem=problem,
        created_at=record.created_at,
    )


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _problem(
    state: DataflowState, stages: Iterable[StageOut], troubles: Iterable[str]
) -> str | None:
    """Return why a dataflow makes no progress; `None` if it does."""
    if state not in ("retrying", "stopped"):
        return None
    reasons = [
        f"{stage.name}: {stage.waiting or 'tries again now'}{_tries(stage)}"
        for stage in stages
        if (stage.state in ("retrying", "stopped") or stage.failures)
        and stage.runs_with == stage.name
    ]
    return "; ".join(dict.fromkeys([*troubles, *reasons]))


def _tries(stage: StageOut) -> str:
    return f" (failed {stage.failures} times in a row)" if stage.failures else ""


def _dataflow_state(record: DataflowRecord, stages: Iterable[StageOut]) -> DataflowState:
    if record.desired == "paused":
        return "paused"
    states: set[StageState] = {stage.state for stage in stages}
    if any(stage.failures for stage in stages):
        states.add("retrying")  # also while the next try runs
    return next((worst for state, worst in _WORST_FIRST if state in states), "ok")


def members_of(controller: Controller, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return leader -> the stages that run together; empty if the dataflow does not compile."""
    try:
        return controller.members(name)
    except NotFoundError:
        raise
    except CbpError:
        return {}


def _beside(leader: StageOut, declared: Mapping[str, Any]) -> StageOut:
    """Return a stage that runs with another one, and so has no queue of its own to wait for."""
    its_own = {**declared, "queues": [], "lag_seconds": None, "memo": None}
    return leader.model_copy(update=its_own)


def _declared(record: DataflowRecord, stage: str, dataflow: Dataflow | None) -> dict[str, Any]:
    """Return what is known of a stage without reading its runs."""
    document = _node(record, stage)
    node = None if dataflow is None else dataflow.stages.get(stage)
    if node is None:
        name = str(document.get("translator", ""))
        unknown: dict[str, Any] = {"buckets": None, "runnable": "", "outputs": {}, "states": []}
        unknown["keep"] = {}
        return {"name": stage, "translator": name, "cycle": [], **unknown}
    spec = node.translator
    return {
        "name": stage,
        "translator": str(document.get("translator", spec.name)),
        "buckets": node.buckets,
        "runnable": node.runnable.name,
        "cycle": list(dataflow.cycles().get(stage, ())) if dataflow is not None else [],
        "outputs": {f"{stage}.{output.name}": str(output.schema) for output in spec.outputs},
        "keep": {
            f"{stage}.{output}": KeptOut(
                hours=None if wish.seconds is None else wish.seconds / 3600, bytes=wish.bytes or 0
            )
            for output, wish in node.keep.items()
        },
        "states": [
            StateOut(
                name=state.name,
                columns=str(state.schema),
                key=str(spec.key_of(state)),
                grouping=state.grouping,
            )
            for state in spec.states
        ],
    }


def _words(wait: Wait | None) -> str:
    return "" if wait is None else wait.words


def _stage_state(
    record: DataflowRecord, stage: StageRecord, wait: Wait | None, running: bool
) -> StageState:
    if wait is not None and wait.kind == "retry":
        return "retrying"  # also while a run's result is being completed
    if running:
        return "running"
    if stage.paused_because or (wait is not None and wait.kind == "stopped" and wait.error):
        return "stopped"
    if record.desired == "paused":
        return "paused"
    return "retrying" if stage.failures else "waiting"


def _sources(dataflow: Dataflow, service: FlowRetention) -> list[SourceOut]:
    return [
        SourceOut(
            name=source.name,
            columns=str(source.schema),
            format=source.format,
            options={name: str(value) for name, value in source.options.items()},
            keep=_kept(source.keep, service),
            duplicates=source.duplicates,
        )
        for source in dataflow.sources.values()
    ]


def _kept(wish: RetentionWish, service: FlowRetention) -> KeepOut:
    kept = wish.over(service)
    by: Literal["dataflow", "service"] = "service" if wish == NO_WISH else "dataflow"
    return KeepOut(hours=kept.seconds / 3600, bytes=kept.bytes, by=by)


def _node(record: DataflowRecord, stage: str) -> Mapping[str, Any]:
    node = record.document.get("stages", {}).get(stage, {})
    assert isinstance(node, Mapping)
    return node
