"""Lists dataflows that make no progress although the service works; cheap enough for every probe.

It needs three SQL statements, however many dataflows there are. While the row of a stage cannot be
read, it needs one more for each dataflow.

Absent on purpose: queues and tables. `overview` has the figures of one dataflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from cbp.errors import CbpError
from cbp.errors.counts import format_times
from cbp.model.schedule.waiting import Wait
from controller.api.answers.schemas import DegradedOut, StageState
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.sinks.sink_standing import trouble_of
from controller.store.base import DataflowRecord, StageRecord, Store


def degraded_now(
    controller: Controller, store: Store, drop_folder: DropFolder
) -> list[DegradedOut]:
    """Return the dataflows that are being retried or have stopped, by name."""
    records = store.dataflows()
    stages = _stages_by_dataflow(store, records)
    waits: dict[str, dict[str, Wait]] = {record.name: {} for record in records}
    for (name, stage), wait in controller.every_wait().items():
        waits.setdefault(name, {})[stage] = wait
    sinks: dict[str, list[str]] = {record.name: [] for record in records}
    for row in store.sinks():
        if trouble := trouble_of(row):
            sinks.setdefault(row.dataflow, []).append(trouble)
    degraded: list[DegradedOut | None] = []
    for name in (record.name for record in records):
        mine = stages[name]
        if isinstance(mine, Exception):
            unreadable = DegradedOut(dataflow=name, state="broken", reason=reason_of(mine))
            degraded.append(unreadable)
            continue
        outside = [trouble.words for trouble in controller.troubles(name)]
        outside += [*drop_folder.troubled(name), *sinks[name]]
        degraded.append(_degraded(name, mine, waits[name], outside))
    return [one for one in degraded if one is not None]


def sink_troubles(store: Store, record: DataflowRecord) -> list[str]:
    """Return the errors of a dataflow's sinks; reads the store only if it has sinks."""
    if not record.document.get("sinks"):
        return []
    return [trouble for row in store.sinks(record.name) if (trouble := trouble_of(row))]


def _stages_by_dataflow(
    store: Store, records: Iterable[DataflowRecord]
) -> Mapping[str, list[StageRecord] | Exception]:
    """Return the stages of each dataflow, or why they cannot be read."""
    stages: dict[str, list[StageRecord] | Exception] = {}
    try:
        together: dict[str, list[StageRecord]] = {record.name: [] for record in records}
        for stage in store.all_stages():
            together.setdefault(stage.dataflow, []).append(stage)
        stages |= together
    except Exception as failure:  # a probe must be answered even if one dataflow is unreadable
        if isinstance(failure, CbpError) and failure.retryable:
            raise  # the cause is not one dataflow
        for record in records:
            try:
                stages[record.name] = store.stages(record.name)
            except Exception as error:  # only this dataflow is listed as broken
                stages[record.name] = error
    return stages


def reason_of(error: Exception) -> str:
    """Return why a dataflow cannot be read."""
    return error.message if isinstance(error, CbpError) else f"{type(error).__name__}: {error}"


def _degraded(
    name: str, stages: Sequence[StageRecord], waits: Mapping[str, Wait], outside: Iterable[str]
) -> DegradedOut | None:
    """Judge one dataflow; `outside` are failures outside its stages, in words."""
    reasons: dict[StageState, list[str]] = {"stopped": [], "retrying": [*outside]}
    for stage in stages:
        wait = waits.get(stage.stage)
        is_outside = wait is not None and wait.kind == "retry" and wait.error is not None
        state = stage_state(stage, None if is_outside else wait)
        if state in reasons:
            reasons[state].append(_words(stage, wait))
    every = dict.fromkeys([*reasons["stopped"], *reasons["retrying"]])
    if not every:
        return None
    worst: Literal["stopped", "retrying"] = "stopped" if reasons["stopped"] else "retrying"
    return DegradedOut(dataflow=name, state=worst, reason="; ".join(every))


def stage_state(
    stage: StageRecord,
    wait: Wait | None,
    *,
    is_running: bool = False,
    is_paused: bool = False,
    set_aside: int = 0,
) -> StageState:
    """Return a stage's state, as all answers show it; `wait`: why the stage did not start."""
    if wait is not None and wait.kind == "retry":
        return "retrying"  # also while a run's result is being completed
    if is_running:
        return "running"
    if stage.has_stopped or (wait is not None and wait.kind == "stopped" and wait.error):
        return "stopped"
    if stage.is_paused or is_paused:
        return "paused"
    if stage.failures:
        return "retrying"
    return "set_aside" if set_aside else "waiting"


def stage_error(stage: StageRecord, wait: Wait | None) -> Mapping[str, Any] | None:
    """Return the error that stopped a stage, or that makes it wait."""
    if wait is not None and wait.error is not None:
        return wait.error.as_dict()
    return stage.error


def _words(stage: StageRecord, wait: Wait | None) -> str:
    is_known = wait is not None and wait.kind in ("retry", "stopped") and wait.words
    why = stage.paused_because or (wait.words if wait and is_known else "is retried")
    tries = f", failed {format_times(stage.failures, 'in a row')}" if stage.failures else ""
    again = f", next try at {stage.retry_at:%Y-%m-%d %H:%M:%S} UTC" if stage.retry_at else ""
    return f"{stage.stage}: {why}{tries}{again}"
