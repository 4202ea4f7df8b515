"""Sums of floating-point numbers that depend neither on their order nor on how they are grouped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def exact_sum(numbers: Sequence[float]) -> float:
    """Return the float next to the sum; NaN if both infinities, or a NaN, are among the numbers."""
    try:
        return math.fsum(numbers)
    except ValueError:  # both infinities
        return math.nan
    except OverflowError:  # perhaps only on the way
        if infinite := {number for number in numbers if math.isinf(number)}:
            return math.nan if len(infinite) > 1 else infinite.pop()
    total = sum(map(Fraction, numbers))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
