"""Announcements of a tick: events of waits that change, and of troubles that begin or end.

A stage's wait is announced when its kind changes. These changes are in memory only, so they get
events of their own. Waits that change with every run, such as a wait for input, have none: the
events of runs show them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import structlog

from cbp.errors import CbpError
from cbp.model.schedule.waiting import Kind, Wait
from controller.loop.runs.in_flight import StageId
from controller.store.base import Event

_ANNOUNCED: Collection[Kind] = ("readers", "retry", "paused", "stopped")

_log = structlog.get_logger(__name__)


def changes(
    before: Mapping[StageId, str],
    now: Mapping[StageId, str],
    degraded_before: Collection[str],
    degraded_now: Collection[str],
) -> list[Event]:
    """Return the events of changes between two ticks, in order."""
    waits = [
        Event(kind="stage.waiting", dataflow=key[0], stage=key[1], subject=now.get(key, ""))
        for key in sorted(before.keys() | now.keys())
        if before.get(key, "") != now.get(key, "")
    ]
    began = [
        Event(kind="degraded.began", dataflow=name)
        for name in sorted(set(degraded_now) - set(degraded_before))
    ]
    ended = [
        Event(kind="degraded.ended", dataflow=name)
        for name in sorted(set(degraded_before) - set(degraded_now))
    ]
    return [*waits, *began, *ended]


class Announcements:
    """Remembers the state at the last tick."""

    def __init__(self, announce: Callable[..., None]) -> None:
        self._announce = announce
        self._kinds: dict[str, dict[StageId, str]] = {}
        self._degraded: set[str] = set()
        self._looked: dict[str, Mapping[StageId, Wait]] = {}

    def see(self, looked: Mapping[str, Mapping[StageId, Wait]], troubled: Collection[str]) -> None:
        """Announce changes; if the store fails, the next tick announces them.

        Args:
            looked: Dataflow -> the waits of its stages, for the dataflows that the tick
                examined; others are unchanged.
        """
        self._looked |= looked
        kinds = {
            name: {key: str(wait.kind) for key, wait in waits.items() if wait.kind in _ANNOUNCED}
            for name, waits in self._looked.items()
        }
        before = {key: kind for name in kinds for key, kind in self._kinds.get(name, {}).items()}
        now = {key: kind for mine in kinds.values() for key, kind in mine.items()}
        degraded = {
            name
            for name, waits in self._looked.items()
            if name in troubled or any(map(_fails, waits.values()))
        }
        events = changes(before, now, self._degraded & self._looked.keys(), degraded)
        if events:
            try:
                self._announce(*events)
            except CbpError as error:
                _log.warning("events.not_announced", error=error.as_dict())
                return
        for name, mine in kinds.items():
            self._kinds.pop(name, None)
            if mine:
                self._kinds[name] = mine
        self._degraded = self._degraded - self._looked.keys() | degraded
        self._looked = {}


def _fails(wait: Wait) -> bool:
    return wait.kind == "retry" or (wait.kind == "stopped" and wait.error is not None)
