"""Asks the Runnables of stages, and decides which runs start; the decision itself is pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from cbp.model.schedule.places import Places
from cbp.model.schedule.scheduler import Schedule, decide
from controller.loop.author.runnables import RunnableAnswers
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.isolation import Isolation
from controller.loop.tick.stage_views import ViewedStage
from controller.store.base import Store

_log = structlog.get_logger(__name__)


@dataclass
class Decisions:
    """Decides about the stages of some dataflows.

    Attributes:
        turns_max: Epochs without new input after which a cycle is reported as not draining.
    """

    store: Store
    isolation: Isolation
    answers: RunnableAnswers
    places: Places
    turns_max: int

    def keep_time(self) -> None:
        """Give up Runnables that take too long."""
        self.answers.keep_time()

    def decide(
        self, views: Mapping[StageId, ViewedStage], now: datetime, dataflows: Collection[str]
    ) -> Schedule:
        """Return what starts, and why the rest waits."""
        chosen = {key: one for key, one in views.items() if key[0] in dataflows}
        answered = self.answers.given(
            (one.view, (one.record.version, one.record.generation))
            for one in chosen.values()
            if one.view.may_start(now)
        )
        chosen_views = (answered.get(key, one.view) for key, one in chosen.items())
        return decide(chosen_views, now=now, places=self.places, turns_max=self.turns_max)

    def stop_failed(self, schedule: Schedule) -> None:
        """Pause the stages whose Runnable failed; otherwise it would fail again at every tick."""
        for (dataflow, stage), failure in schedule.failed.items():
            details = failure.as_dict()
            _log.warning("runnable.failed", dataflow=dataflow, error=details)
            stop = partial(self.store.pause_stage, dataflow, stage, failure.message, details)
            self.isolation.attempt(dataflow, "stopped", stop)
