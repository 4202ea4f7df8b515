"""The fence: before every durable effect it is checked that this instance still leads.

    effect -> fence("log.before") -> LeaseKeeper.check -> the effect, or LeaseLostError

Invariants: tests/controller/loop/leadership/test_leadership.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cbp.engine.storage.failpoints import NO_FAULTS, Faults


class Fence:
    """Checks before every durable effect, by its failpoint, that this instance leads.

    A process that stalls between the check and its effect may continue too late. The store then
    refuses the effect by its epoch, and the logs refuse it by `put_if_absent`
    (`controller.loop.leadership.terms`). Another fence keeps foreign writers out of tables:
    `cbp.engine.delta.foreign_writer_fence`.

    In another process, such as a Spark worker, it does not check: tasks write files that no
    reader sees before the driver has recorded them.

    Args:
        faults: Called after the check.
        check: Raises unless this instance leads; by default it always does.
    """

    def __init__(
        self, faults: Faults = NO_FAULTS, check: Callable[[], object] = lambda: None
    ) -> None:
        self._faults, self._check = faults, check

    def __call__(self, point: str) -> None:
        """Pass a point; raises `LeaseLostError` in front of an effect."""
        if point.endswith(".before"):
            self._check()
        self._faults(point)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the check: only this process can answer it."""
        return functools.partial, (self._faults,)
