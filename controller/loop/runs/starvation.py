"""Starvation: finds runs that have had work but no slot of the engine for some seconds.

The engine is asked only when its answer can make another run give way (`Places.matters`); without
contention it costs nothing.

Guaranteed: the time is counted again for a run that got a slot in between, or that waited for a run
that was asked to end, even if that run ended between two calls
(tests/controller/loop/runs/test_giving_way.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from cbp.engine.interface.runs import RunControl
from cbp.errors import OperatingError
from cbp.model.schedule.places import STARVED_SECONDS, ActiveRun, Places
from controller.loop.runs.in_flight import StageId

_log = structlog.get_logger(__name__)


class Starving:
    """Remembers since when each run has no slot; used by the thread that ticks only."""

    def __init__(
        self, *, control: RunControl, clock: Callable[[], datetime], places: Places
    ) -> None:
        self._control, self._clock, self._places = control, clock, places
        self._since: dict[str, datetime] = {}
        self._last: dict[str, datetime] = {}
        self._asked_to_end = 0

    def mark(
        self, active: Mapping[StageId, ActiveRun], *, asked_to_end: int = 0
    ) -> dict[StageId, ActiveRun]:
        """Return the work that goes on, with the starving runs marked.

        Args:
            asked_to_end: How many pieces of work were asked to end so far. One of them may have
                ended between two calls and is then missing in `active`.
        """
        now = self._clock()
        going = [work for work in active.values() if work.run and not work.recorded]
        runs = [work.run for work in going]
        starved = self._without_slots(runs) if self._places.matters(going, now) else ()
        self._last = {run: at for run, at in self._last.items() if run in runs}
        self._last |= dict.fromkeys(starved, now)
        # Slots of runs that are ending, or have just ended, may become free.
        ending = any(work.ending for work in going) or asked_to_end != self._asked_to_end
        self._asked_to_end = asked_to_end
        self._since = {} if ending else {run: self._since.get(run, now) for run in starved}
        return {key: self._marked(work, now) for key, work in active.items()}

    def _marked(self, work: ActiveRun, now: datetime) -> ActiveRun:
        since = self._since.get(work.run)
        starved = since is not None and (now - since).total_seconds() >= STARVED_SECONDS
        return replace(work, starved=starved, starved_at=self._last.get(work.run))

    def _without_slots(self, runs: Sequence[str]) -> Collection[str]:
        try:
            return self._control.starved(runs)
        except OperatingError as error:  # then no run gives way, as without contention
            _log.warning("starving.unknown", error=error.as_dict())
            return ()
