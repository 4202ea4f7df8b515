"""Expiry of state in a call of many groups: `cbp.engine.kernel.expiry`, on whole columns.

`called_groups` also returns which groups the plan of a translator in SQL reads, and `CallExpiry`
completes its results.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.engine.kernel.arrow.emission import Emission
from cbp.engine.kernel.arrow.groups import Groups
from cbp.engine.kernel.expiry import Timers, settled_timers
from cbp.engine.state.due_groups import Woken, is_due
from cbp.model.dataflow.expiry import expires_at
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec


def called_groups(
    spec: TranslatorSpec, groups: Groups, inputs: Collection[str], woken: Woken | None
) -> Int64s:
    """Return the numbers of the groups whose author is called, ascending; the others are idle.

    Records of `inputs` call a group, and timers do if the run looks at them (`woken`).
    """
    if woken is None:
        return np.arange(len(groups))
    called = np.zeros(len(groups), np.bool_)
    for name in inputs:
        called |= Groups.sizes(groups, name) > 0
    for state in spec.authored:
        if state.timers:
            called |= _due(groups, state, woken.until)
    return np.flatnonzero(called)


class CallExpiry:
    """The groups of one call whose state may expire; those that are not called are idle."""

    def __init__(
        self, spec: TranslatorSpec, groups: Groups, time: datetime, called: Int64s
    ) -> None:
        self._spec, self._groups, self._time = spec, groups, time
        self._idle = np.ones(len(groups), np.bool_)
        self._idle[called] = False

    def complete(self, emission: Emission) -> dict[str, Timers]:
        """Add what idle groups keep to the emissions; return the changes of the hidden timers."""
        hidden = {timers.expires: timers for timers in self._spec.expiries}
        settled: dict[str, Timers] = {}
        for state in self._spec.authored:
            stays = self._idle
            if state.name in hidden:
                timers = hidden[state.name]
                stays = self._idle & ~_due(self._groups, timers, self._time)
                if state.keep:
                    emission.drop(state.name, np.flatnonzero(self._idle & ~stays))
                settled[timers.name] = self._settled(emission, state, timers, stays)
            if not state.keep and stays.any():  # these records are emitted again, so that they stay
                ids = Groups.ids(self._groups, state.name)
                rows = np.flatnonzero(stays[ids])
                if len(rows):
                    table = getattr(self._groups, state.name)
                    emission.add(state.name, table.take(pa.array(rows)), ids[rows])
        return settled

    def _settled(
        self, emission: Emission, state: StateSpec, timers: StateSpec, stays: Mask
    ) -> Timers:
        offsets = Groups.offsets(self._groups, timers.name)
        sizes = np.diff(offsets)
        new = np.zeros(len(sizes), np.bool_)
        new[emission.wrote(state.name)] = True
        if state.keep:
            new |= ~self._idle & (sizes > 0)
        times = getattr(self._groups, timers.name).column(TIMER_COLUMN).cast(pa.int64()).to_numpy()
        at = expires_at(self._time, state.expire_ms)
        return settled_timers(times, offsets[:-1], sizes, new, stays, at)


def _due(groups: Groups, timers: StateSpec, until: datetime) -> Mask:
    due = np.zeros(len(groups), np.bool_)
    due[Groups.ids(groups, timers.name)[is_due(getattr(groups, timers.name), until)]] = True
    return due
