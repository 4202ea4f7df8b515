"""Asks the Runnables of stages, and decides which runs start; the decision itself is pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from cbp.model.schedule.places import Places
from cbp.model.schedule.scheduler import Schedule, decide
from controller.loop.author.runnables import Answers
from controller.loop.runs.in_flight import StageId
from controller.loop.tick.stage_views import ViewedStage

__all__ = ["Decisions"]


@dataclass
class Decisions:
    """Decides about the stages of some dataflows.

    Attributes:
        answers: What the Runnables say.
        places: How many runs there may be at a time.
        turns_max: Epochs without new input after which a cycle is reported as not draining.
    """

    answers: Answers
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
