"""Seeded random draws that several workloads use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Ids", "scattered", "zipf"]

_SCATTER = 2_654_435_761  # a prime above any number of keys: spreads the popular ranks

Ids = npt.NDArray[np.int64]


def zipf(chance: np.random.Generator, universe: int, count: int) -> Ids:
    """Draw ranks from 0 with probability about 1 / (rank + 1)."""
    drawn: Ids = np.power(float(universe), chance.random(count)).astype(np.int64) - 1
    return drawn


def scattered(ranks: Ids, universe: int) -> Ids:
    """Permute 0 .. universe - 1."""
    spread: Ids = ranks % universe * _SCATTER % universe
    return spread
