"""Idle until: the time until which a dataflow does nothing unless its data changes.

    waits for input, a frame, an operator    forever
    waits for its timer or its next try      until then
    runs, is asked, waits for others         it does not rest, and is checked at each tick

A loop over dataflows leaves out dataflows that rest, until their data has another revision.
Dataflows that rest are still checked in turn (`next_in_turn`), so that a change without a
notification is found, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from cbp.model.schedule.scheduler import StageView
from cbp.model.schedule.waiting import Kind, Wait

FOR_EVER = datetime.max.replace(tzinfo=UTC)

TURNS = 300
"""Number of calls of `next_in_turn` within which each name has a turn."""

_RESTS: Collection[Kind] = ("input", "frame", "timer", "retry", "paused", "stopped")


def rests_until(
    views: Iterable[StageView], waits: Mapping[tuple[str, str], Wait]
) -> datetime | None:
    """Return the time until which the decided stages rest; `None` if one does not rest."""
    end = FOR_EVER
    for view in views:
        wait = waits.get(view.id)
        # The next tick may succeed, for example once code can be loaded again.
        if wait is None or wait.error is not None or wait.kind not in _RESTS or view.finishing:
            return None
        if wait.kind == "retry" and view.retry_at is not None:
            end = min(end, view.retry_at)
        elif view.active and view.due_at is not None:
            end = min(end, view.due_at)
    return end


def next_in_turn(names: Sequence[str], behind: str, *, turns: int = TURNS) -> Sequence[str]:
    """Return which of the sorted names have their turn, given the last name that had its turn.

    Each name has one turn in `turns` calls; between two calls, names may be added and removed.
    """
    begin = bisect_right(names, behind)
    most = -(-len(names) // turns)
    return names[begin : begin + most] or names[:most]
