"""What tests of retention share: a service that keeps little, looks often, and is given words."""

from __future__ import annotations

from typing import Any

from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from controller.loop import LoopLimits
from tests.controller.world import World

__all__ = ["OFTEN", "TINY", "play"]

OFTEN: dict[str, Any] = {
    "limits": LoopLimits(records_kept=2),
    "engine_limits": EngineLimits(checkpoint_entries=4),
}
"""Options of a world that puts positions and checkpoints all the time."""

TINY = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)


def play(world: World, epochs: int, start: int = 0) -> None:
    """Let words arrive, an increment a second, and everything run."""
    for number in range(start, start + epochs):
        world.clock.advance(1)
        world.arrive("one", "a", (f"w{number % 3}", number))
        world.ticks()
