"""The pace of a build beside: it works a share of the time, and gives way to its dataflow.

    works for t seconds -> rests for t * (1 - share) / share, and then until no run of its dataflow
                           was under way for a moment, four times as long at most

Between the runs of updates that follow each other a file is read, or a result published. A build
that began a unit there would be in the way of the next run, and of every other one at a share of
one half. So it waits for a pause of `QUIET_SECONDS`.

A build is worked off in small units (a run, a batch that is compared), and rests between two of
them. So an update waits for the rest of one unit at most, and a build beside a dataflow
that never rests goes on: at a share of one half it works a sixth of the time at least.

Guaranteed: the shares and the limit above, and that a rest ends as soon as `check` raises
(tests/controller/loop/beside/test_pace.py).
Not guaranteed: anything within a unit. A run of a large increment takes what it takes, on its share
of the engine's slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cbp.clock import MACHINE, Clock

GIVES_WAY_MAX = 4
"""The longest that a build gives way, in rests."""

QUIET_SECONDS = 0.1
"""Runs with shorter pauses follow each other: it gives way in the pauses, too."""

UNIT_SECONDS_MIN = 0.02
"""Less than this is added to the next unit: waiting is not exact."""

LOOK_SECONDS, LEAST_SECONDS = 0.02, 0.001
"""The longest and the shortest pause between two looks at what goes on."""


@dataclass
class Pace:
    """The pace of one build; used by one thread at a time.

    Attributes:
        share: The share of time in which it works, above 0; 1 means that it never pauses.
        busy: Returns whether a run to which it gives way is under way.
        rested: Seconds of its pauses so far.
    """

    share: float = 1.0
    busy: Callable[[], bool] = lambda: False
    clock: Clock = MACHINE
    rested: float = field(init=False, default=0.0)
    _since: float = field(init=False, default=0.0)
    _hurries: bool = field(init=False, default=False)
    _seen_busy: float = field(init=False, default=-math.inf)

    def begin(self) -> None:
        """Begin to measure work; time before this call does not count."""
        self._since = self.clock.seconds()

    def slots_of(self, slots: int) -> int | None:
        """Return the largest number of engine slots for its runs; `None` means all."""
        return None if self.share >= 1 else max(1, int(slots * self.share))

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Suspend pauses in the block, since the dataflow runs nothing meanwhile."""
        self._hurries = True
        try:
            yield
        finally:
            self._hurries = False
            self.begin()

    def rest(self, check: Callable[[], object]) -> None:
        """Pause after a unit; `check` is called meanwhile, and may raise."""
        began = self.clock.seconds()
        worked = began - self._since
        if self._hurries or self.share >= 1 or worked < UNIT_SECONDS_MIN:
            return
        least = began + worked * (1 - self.share) / self.share
        most = least + GIVES_WAY_MAX * (least - began)
        while (now := self.clock.seconds()) < most:
            if self.busy():
                self._seen_busy = now
            elif now >= max(least, self._seen_busy + QUIET_SECONDS):
                break
            check()
            left = (least if now < least else most) - now
            self.clock.wait(min(LOOK_SECONDS, max(left, LEAST_SECONDS)))
        self.rested += now - began
        self._since = now
