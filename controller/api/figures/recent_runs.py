"""The last runs of a dataflow, and its failing stages: since when, with which error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from cbp.model.run.intention import RunStatus
from controller.api.answers.schemas import FailingOut, RecentRunOut
from controller.store.base import RunRecord, StageRecord, Store

RUNS_SHOWN = 24
ROW_READ_MAX = 50
"""Maximum number of attempts read of a series of failures; `since` ignores older ones."""


def recent_runs(runs: Sequence[RunRecord]) -> list[RecentRunOut]:
    """Return the runs that have ended, oldest first; `runs` begins with the newest."""
    return [
        RecentRunOut.of(
            run, status=run.status.value, seconds=(run.finished_at - run.started_at).total_seconds()
        )
        for run in reversed(runs)
        if run.finished_at is not None
    ]


def failing_stages(store: Store, dataflow: str, stages: Iterable[StageRecord]) -> list[FailingOut]:
    """Return each stage whose next run has failed or cannot begin, with its last error.

    A stage that an operator paused is left out, since it is not retried.
    """
    failing = []
    for stage in stages:
        if stage.is_paused or (not stage.failures and stage.error is None):
            continue
        runs = store.runs(dataflow, stage=stage.stage, epoch=stage.epoch, limit=ROW_READ_MAX).items
        last, first = first_of_row(runs)
        error = stage.error if last is None or last.error is None else last.error
        failing.append(
            FailingOut.of(
                stage,
                since=None if first is None else first.finished_at,
                run=None if last is None else last.id,
                tries=stage.failures,
                error=None if error is None else dict(error),
            )
        )
    return failing


def first_of_row(runs: Sequence[RunRecord]) -> tuple[RunRecord | None, RunRecord | None]:
    """Return the last and the first attempt of the newest unbroken series of failures.

    `runs` are the attempts of one epoch, newest first; attempts under way are ignored.
    """
    ended = (run for run in runs if run.finished_at is not None)
    row = list(takewhile(lambda run: run.status is RunStatus.FAILED, ended))
    return (row[0], row[-1]) if row else (None, None)
