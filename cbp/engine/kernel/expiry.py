"""Expiry of state, in a window of groups: idle groups, and the emissions of a run for them.

    window -> idle groups -> the author is called for the others
                          -> states: what the author emitted; for idle groups, what stays
           -> hidden timers: set again for called groups, removed if they fired

Records that a run emits in place of the author are compared with the state like an author's. Timers
are compared as columns: every call of a group sets one, so a record in Python for each would cost
as much as the state. The rules are in `cbp.model.dataflow.expiry`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.engine.columnar.groups import span_rows
from cbp.engine.columnar.kept_records import Deletion
from cbp.engine.kernel.group_batch import Source, Window
from cbp.model.dataflow.expiry import expires_at
from cbp.model.dataflow.run_context import microseconds
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec

Buffers = Mapping[str, list[Any]]
Ends = dict[str, list[int]]
Wrote = Mapping[str, Mask]


@dataclass(frozen=True, slots=True)
class Timers:
    """How a call changes hidden timers: `died` are removed; `groups`, ascending, get a new one."""

    died: Int64s
    groups: Int64s
    at: datetime


class Expiry:
    """The groups of a bucket whose state may expire; `wakes`: the run looks for due timers."""

    def __init__(self, spec: TranslatorSpec, time: datetime, *, wakes: bool) -> None:
        self._time, self._wakes = time, wakes
        self._states = {state.name: state for state in spec.states}
        self._hidden = {timers.expires: timers for timers in spec.expiries}
        self._authored = spec.authored
        self._ends_at = {
            name: expires_at(time, self._states[name].expire_ms) for name in self._hidden
        }

    def called(self, window: Window) -> Mask:
        """Return which groups of a window are called; the others are idle."""
        called = np.full(len(window.keys), not self._wakes)
        if called.all():
            return called
        for source in window.inputs:
            called |= source.sizes > 0
        for source in window.states:
            state = self._states[source.name]
            if state.timers and not state.expires:
                at = state.schema.index(TIMER_COLUMN)
                for group in np.flatnonzero(~called).tolist():
                    called[group] = any(row[at] <= self._time for row in source.of(group))
        return called

    def is_expired(self, state: str, window: Window, group: int) -> bool:
        """Return whether an idle group loses its records of a state."""
        if state not in self._hidden:
            return False
        source = _source(window, self._hidden[state])
        mine = _times(source)[source.starts[group] : source.stops[group]]
        return bool((mine <= microseconds(self._time)).any())

    def changed_timers(self, state: StateSpec, window: Window, called: Mask, wrote: Mask) -> Timers:
        """Return how a state's hidden timers change: each group with records of the state has one.

        `wrote` are the groups whose author emitted, put or deleted a record of the state.
        """
        source = _source(window, self._hidden[state.name])
        times, sizes = _times(source), source.sizes
        new = wrote | (called & (sizes > 0)) if state.keep else wrote
        groups = np.repeat(np.arange(len(sizes)), sizes)
        expired = np.zeros(len(sizes), np.bool_)
        expired[groups[times[span_rows(source.starts, sizes)] <= microseconds(self._time)]] = True
        stays = ~wrote & ~called & ~expired
        return settled_timers(times, source.starts, sizes, new, stays, self._ends_at[state.name])

    def complete(self, window: Window, called: Mask, buffers: Buffers, ends: Ends) -> Wrote:
        """Add what idle groups emit to `buffers` and `ends`, which are completed in place.

        Returns, by state that expires, the groups whose author emitted a record of it.
        """
        every: dict[str, Mask] = {}
        for state in self._authored:
            wrote = np.zeros(len(called), np.int64)
            wrote[called] = np.diff(ends[state.name], prepend=0)
            if not called.all():
                buffer = buffers[state.name]
                sizes = wrote.tolist()
                buffer[:], ends[state.name] = self._widened(state, window, called, sizes, buffer)
            if state.name in self._hidden:
                every[state.name] = wrote > 0
        return every

    def _widened(
        self, state: StateSpec, window: Window, called: Mask, wrote: list[int], emitted: list[Any]
    ) -> tuple[list[Any], list[int]]:
        rows: list[Any] = []
        ends: list[int] = []
        start = 0
        for group, (is_called, size) in enumerate(zip(called.tolist(), wrote, strict=True)):
            if is_called:
                rows += emitted[start : start + size]
                start += size
            else:
                rows += self.emissions_of(state, window, group)
            ends.append(len(rows))
        return rows, ends

    def emissions_of(self, state: StateSpec, window: Window, group: int) -> Sequence[Any]:
        """Return the engine's emissions for a state of an idle group, whose author is not called.

        Until its records have expired, a state that is replaced gets all of them again.
        """
        expired = self.is_expired(state.name, window, group)
        if state.keep:
            (kept,) = [source for source in window.kept if source.name == state.name]
            if not expired:
                return ()
            return [Deletion(kept.shape.second_of(row)) for row in kept.handle(group)]
        return () if expired else _source(window, state).of(group)


def settled_timers(
    times: Int64s, starts: Int64s, sizes: Int64s, new: Mask, stays: Mask, at: datetime
) -> Timers:
    """Return the new hidden timers of some groups; an unchanged one is not written again.

    Group g has `times[starts[g]:starts[g] + sizes[g]]`, in microseconds since 1970. Groups that are
    `new` have one timer afterwards, due at `at`; those of `stays` keep theirs; others lose theirs.
    """
    groups, rows = np.repeat(np.arange(len(sizes)), sizes), span_rows(starts, sizes)
    stay = stays[groups]
    equal = np.flatnonzero(new[groups] & (times[rows] == microseconds(at)))
    again, first = np.unique(groups[equal], return_index=True)
    stay[equal[first]] = True
    born = new.copy()
    born[again] = False
    return Timers(rows[~stay], np.flatnonzero(born), at)


def _times(source: Source) -> Int64s:
    assert source.times is not None, "the source of hidden timers must have their times"
    return source.times


def _source(window: Window, state: StateSpec) -> Source:
    return next(source for source in window.states if source.name == state.name)
