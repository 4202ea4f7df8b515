"""Rolls a dataflow back and plays it on."""

from __future__ import annotations

from typing import Any

from cbp.engine.interface.garbage_collector import Retention
from tests.controller.world import World

TINY = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)


def play(world: World, epochs: int, *, name: str = "diamond", start: int = 0) -> list[Any]:
    """Bring increments, and return the picture behind each."""
    pictures = [world.picture()]
    for number in range(start, start + epochs):
        world.clock.advance(1)
        world.arrive(name, "a", (f"w{number % 3}", number), ("w", 1))
        if name == "diamond" and number % 2:
            world.arrive(name, "b", (f"w{number % 2}", number), ("w", 1))
        world.ticks()
        pictures.append(world.picture())
    return pictures


def back(world: World, to: str, *, name: str = "diamond", **more: Any) -> Any:
    return world.controller.amendments.roll_back(name, to, who="me", why="a bad file", **more)


def plan(world: World, to: str, *, name: str = "diamond", **more: Any) -> Any:
    return world.controller.amendments.plan_roll_back(name, to, **more)


def number(picture: dict[str, Any], name: str = "diamond") -> str:
    return str(sum(picture[f"{name} epochs"].values()))


def tables(picture: dict[str, Any], name: str = "diamond") -> dict[str, Any]:
    """Return the tables of a picture."""
    return {k: v for k, v in picture.items() if not k.endswith(("queues",))}
