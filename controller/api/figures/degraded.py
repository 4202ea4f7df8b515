"""Lists dataflows that make no progress although the service works; cheap enough for every probe.

Absent on purpose: queues and tables. `overview` has the figures of one dataflow.
"""

from __future__ import annotations

from cbp.errors import CbpError
from controller.api.answers.schemas import DegradedOut
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.loop.tick import PAUSED_BY_HAND
from controller.store.base import DataflowRecord, StageRecord, Store

__all__ = ["degraded_now"]


def degraded_now(
    controller: Controller, store: Store, drop_folder: DropFolder
) -> list[DegradedOut]:
    """Return the dataflows that are being retried or have stopped, by name."""
    candidates = (_degraded(controller, store, drop_folder, record) for record in store.dataflows())
    return [one for one in candidates if one is not None]


def _degraded(
    controller: Controller, store: Store, drop_folder: DropFolder, record: DataflowRecord
) -> DegradedOut | None:
    try:
        stages = store.stages(record.name)
    except Exception as error:  # a probe must be answered whatever one dataflow does
        reason = (
            error.message if isinstance(error, CbpError) else f"{type(error).__name__}: {error}"
        )
        return DegradedOut(dataflow=record.name, state="broken", reason=reason)
    stopped = [_words(s, s.paused_because) for s in stages if _has_stopped(s)]
    waits = controller.waits(record.name).items()
    stopped += [f"{name}: {w.words}" for name, w in waits if w.kind == "stopped" and w.error]
    retrying = [trouble.words for trouble in controller.troubles(record.name)]
    retrying += drop_folder.troubled(record.name)
    retrying += [f"{name}: {w.words}" for name, w in waits if w.kind == "retry" and not w.error]
    retrying += [_words(s, "is tried again") for s in stages if s.failures and not _has_stopped(s)]
    if not (stopped or retrying):
        return None
    return DegradedOut(
        dataflow=record.name,
        state="stopped" if stopped else "retrying",
        reason="; ".join(dict.fromkeys([*stopped, *retrying])),
    )


def _has_stopped(stage: StageRecord) -> bool:
    return bool(stage.paused_because) and stage.paused_because != PAUSED_BY_HAND


def _words(stage: StageRecord, why: str) -> str:
    tries = f", failed {stage.failures} times in a row" if stage.failures else ""
    again = f", again at {stage.retry_at:%Y-%m-%d %H:%M:%S} UTC" if stage.retry_at else ""
    return f"{stage.stage}: {why}{tries}{again}"
