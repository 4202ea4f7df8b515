"""What tests of retention share: a service that keeps little, looks often, and is given words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cbp.engine.delta import tables
from cbp.engine.interface.garbage_collector import Retention
from controller.loop import LoopLimits
from tests.controller.world import World

__all__ = ["OFTEN", "TINY", "looking_often", "play"]

OFTEN = LoopLimits(records_kept=2)
"""Limits with which positions are put all the time."""

TINY = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)


@contextmanager
def looking_often() -> Iterator[pytest.MonkeyPatch]:
    """Put checkpoints all the time."""
    with pytest.MonkeyPatch.context() as patch:
        defaults = {**tables.open_table.__kwdefaults__, "checkpoint_interval": 4}  # type: ignore[dict-item]
        patch.setattr(tables.open_table, "__kwdefaults__", defaults)
        yield patch


def play(world: World, epochs: int, start: int = 0) -> None:
    """Let words arrive, an increment a second, and everything run."""
    for number in range(start, start + epochs):
        world.clock.advance(1)
        world.arrive("one", "a", (f"w{number % 3}", number))
        world.ticks()
