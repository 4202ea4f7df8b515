"""Engines with small limits, so that few records reach them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cbp.engine.direct import DirectEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits

SHUFFLED = EngineLimits(arranged_reads=0)
"""Spark shuffles every increment."""


def limits_of(*, shuffled: bool, **changed: int) -> EngineLimits:
    """Return limits by which Spark shuffles every increment, or only large ones."""
    return replace(SHUFFLED if shuffled else DEFAULT_LIMITS, **changed)


def with_limits(engine: Any, limits: EngineLimits) -> DirectEngine:
    """Return an engine on the same executor, with other limits."""
    other: DirectEngine = engine._beside(limits=limits)
    return other
