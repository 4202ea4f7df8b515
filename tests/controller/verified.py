"""What tests of verification share: a service that verifies, input for it, and every way to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.model.verification import Request, Verification
from tests.controller.world import Inline, World

__all__ = ["EACH_WAY", "WAYS", "fed", "verified", "world_of"]

WAYS = [
    Request(),
    Request(split="at_once"),
    Request(engine="reference"),
    Request(split="at_once", engine="reference"),
]
EACH_WAY = pytest.mark.parametrize("request_", WAYS, ids=lambda r: f"{r.split}-{r.engine}")


def world_of(root: Path, **translators: type) -> World:
    """Return a service on tables that verifies in the thread that asks, with these translators."""
    world = World(root, engine=LocalEngine, verifier=Inline())
    world.translators |= translators
    world.restart()
    return world


def verified(world: World, name: str, request: Request | None = None) -> Verification:
    begun = world.controller.verifications.start(name, request or Request())
    return world.controller.verifications.show(begun.id)


def fed(world: World, document: dict[str, Any], rounds: int = 4) -> World:
    world.controller.register(document)
    for number in range(rounds):
        for source in document["sources"]:
            world.arrive(document["name"], source, ("a", number), ("b", 1), ("c" * number, 2))
        world.clock.advance(1)
        world.ticks()
    return world
