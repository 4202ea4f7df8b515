"""Lists dataflows that make no progress although the service works; cheap enough for every probe.

It takes three statements, however many dataflows there are; only while the row of a stage cannot be
read, each dataflow takes one more.

Absent on purpose: queues and tables. `overview` has the figures of one dataflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cbp.errors import CbpError
from cbp.errors.counts import format_times
from cbp.model.schedule.waiting import Wait
from controller.api.answers.schemas import DegradedOut
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.sinks.standing import trouble_of
from controller.store.base import DataflowRecord, StageRecord, Store

__all__ = ["degraded_now", "sink_troubles"]


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
            degraded.append(_unreadable(name, mine))
            continue
        outside = [trouble.words for trouble in controller.troubles(name)]
        outside += [*drop_folder.troubled(name), *sinks[name]]
        degraded.append(_degraded(name, mine, waits[name], outside))
    return [one for one in degraded if one is not None]


def sink_troubles(store: Store, record: DataflowRecord) -> list[str]:
    """Return what is wrong with the sinks of a dataflow; asks the store only if it has some."""
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
    except Exception as failure:  # a probe must be answered whatever one dataflow does
        if isinstance(failure, CbpError) and failure.retryable:
            raise  # not because of one dataflow
        for record in records:
            try:
                stages[record.name] = store.stages(record.name)
            except Exception as error:  # the others are listed, and this one as broken
                stages[record.name] = error
    return stages


def _unreadable(name: str, error: Exception) -> DegradedOut:
    reason = error.message if isinstance(error, CbpError) else f"{type(error).__name__}: {error}"
    return DegradedOut(dataflow=name, state="broken", reason=reason)


def _degraded(
    name: str, stages: Sequence[StageRecord], waits: Mapping[str, Wait], outside: Iterable[str]
) -> DegradedOut | None:
    """Judge one dataflow; `outside` is what fails beside its stages, in words."""
    stopped = [_words(s, s.paused_because) for s in stages if s.has_stopped]
    stopped += [
        f"{stage}: {w.words}" for stage, w in waits.items() if w.kind == "stopped" and w.error
    ]
    retrying = [*outside]
    retrying += [
        f"{stage}: {w.words}" for stage, w in waits.items() if w.kind == "retry" and not w.error
    ]
    retrying += [_words(s, "is tried again") for s in stages if s.is_failing]
    if not (stopped or retrying):
        return None
    return DegradedOut(
        dataflow=name,
        state="stopped" if stopped else "retrying",
        reason="; ".join(dict.fromkeys([*stopped, *retrying])),
    )


def _words(stage: StageRecord, why: str) -> str:
    tries = f", failed {format_times(stage.failures, 'in a row')}" if stage.failures else ""
    again = f", again at {stage.retry_at:%Y-%m-%d %H:%M:%S} UTC" if stage.retry_at else ""
    return f"{stage.stage}: {why}{tries}{again}"
