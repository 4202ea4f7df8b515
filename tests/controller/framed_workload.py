"""A workload with framed inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cbp.engine.direct import LocalEngine
from cbp.model.flow.increment import Increment
from tests.controller.framings import ByKey, ByStretch
from tests.controller.world import SCHEMA, World

DOCUMENT: dict[str, Any] = {
    "name": "two",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "keys": {"translator": "by_key", "inputs": {"items": "a"}, "buckets": 2},
        # With a memo, over a flow whose epochs are undone and made again.
        "again": {"translator": "by_stretch", "inputs": {"items": "keys.totals"}, "buckets": 2},
    },
}


def begun(root: Path, document: dict[str, Any] = DOCUMENT, **more: Any) -> World:
    world = World(root, engine=LocalEngine, **more)
    world.translators |= {"by_key": ByKey, "by_stretch": ByStretch}
    world.restart()
    world.controller.register(document)
    return world


def play(world: World) -> list[dict[str, Any]]:
    """Bring increments and close both flows; return the picture behind each step."""
    pictures = [world.picture()]
    steps: list[Any] = [
        [("x", 1), ("y", 1), ("x", 2)],
        "keys.totals",
        [("x", 2), ("y", 3)],
        "a",
        [("z", 3), ("x", 4)],
        [("y", 4), ("y", 5)],
        "keys.totals",
        [("x", 5), ("x", 6)],
    ]
    for step in steps:
        world.clock.advance(1)
        if isinstance(step, str):
            world.controller.close("two", step)
        else:
            world.arrive("two", "a", *step)
        world.ticks()
        pictures.append(world.picture())
    return pictures


def standing(world: World, name: str = "two") -> Any:
    """Return where queues and framings stand; files that are made again have other names."""

    def shown(one: Increment | None) -> Any:
        return one and (one.index, one.framing_key, one.records)

    return {
        f"{stage}.{input_}": (
            [(shown(queued.increment), queued.read) for queued in one.queue],
            one.framing and (one.framing.memo, one.framing.next, one.framing.last),
            shown(one.framing.open) if one.framing else None,
            [increment.index for increment in one.arrived],
            one.closes,
        )
        for stage, inputs in world.store.connectors(name).items()
        for input_, one in inputs.items()
    }
