"""Time that grows with the size of what is done, measured without an absolute time.

Four times the size may take nine times as long here, where quadratic work takes sixteen. What is
measured is the processor's time of this thread, the least of several tries.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["GROWTH", "GROWTH_MAX", "WORTH_SECONDS", "assert_linear", "thread_seconds"]

GROWTH, GROWTH_MAX = 4, 9
WORTH_SECONDS = 0.03
"""Below this noise is not growth."""


def thread_seconds(work: Callable[[], object]) -> float:
    """Return the processor's time of this thread that some work takes."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def assert_linear(seconds: Callable[[int], float], few: int) -> None:
    """Fail unless `GROWTH` times as many take at most `GROWTH_MAX` times as long.

    Args:
        seconds: Does the work with so many of something, and returns how long it took.
        few: Large enough that quadratic work with `GROWTH` times as many takes `WORTH_SECONDS`.
    """
    for _ in range(3):
        short = min(seconds(few) for _ in range(3))
        long = min(seconds(GROWTH * few) for _ in range(2))
        if long < WORTH_SECONDS or long <= GROWTH_MAX * short:
            return
    raise AssertionError(f"{short:.4f} s, then {long:.4f} s for {GROWTH} times the size")
