"""Who starves: runs that have had work and no slot of the engine for some seconds.

The engine is asked only when the answer can make somebody give way (`Places.matters`), so in
peace time it costs nothing.

Guaranteed: a run that got a slot in between, or behind one that gave way, is counted anew
(tests/controller/test_giving_way.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from cbp.engine.base import Engine
from cbp.errors import OperatingError
from cbp.model.places import STARVED_SECONDS, Places, Taken
from controller.loop.underway import StageId

__all__ = ["Starving"]

_log = structlog.get_logger(__name__)


class Starving:
    """Remembers since when runs have no slot; used by the thread that ticks."""

    def __init__(self, *, engine: Engine, clock: Callable[[], datetime], places: Places) -> None:
        self._engine, self._clock, self._places = engine, clock, places
        self._since: dict[str, datetime] = {}
        self._last: dict[str, datetime] = {}

    def told(self, taken: Mapping[StageId, Taken]) -> dict[StageId, Taken]:
        """Return the work that goes on, with who of it starves."""
        now = self._clock()
        going = [work for work in taken.values() if work.run and not work.recorded]
        runs = [work.run for work in going]
        found = self._without_slots(runs) if self._places.matters(going, now) else ()
        self._last = {run: at for run, at in self._last.items() if run in runs}
        self._last |= dict.fromkeys(found, now)
        ending = any(work.ending for work in going)  # what it leaves may do
        self._since = {} if ending else {run: self._since.get(run, now) for run in found}
        return {key: self._told(work, now) for key, work in taken.items()}

    def _told(self, work: Taken, now: datetime) -> Taken:
        since = self._since.get(work.run)
        starved = since is not None and (now - since).total_seconds() >= STARVED_SECONDS
        return replace(work, starved=starved, starved_at=self._last.get(work.run))

    def _without_slots(self, runs: Sequence[str]) -> Collection[str]:
        try:
            return self._engine.starved(runs)
        except OperatingError as error:  # then nobody gives way, as in peace time
            _log.warning("starving.unknown", error=error.as_dict())
            return ()
