"""A service whose database is gone, and whose folders are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cbp.engine.direct import LocalEngine
from tests.controller.world import World

__all__ = ["lose_the_store"]


def lose_the_store(world: World, root: Path, counts: dict[str, int]) -> World:
    """Return a world with the same tables and an empty database, rebuilt."""
    (name,) = (record.name for record in world.store.dataflows())
    new = World(root, engine=LocalEngine)
    new.tables = world.tables
    new.restart()

    class SourceLogs:
        def prepare(self, record: Any, dataflow: Any) -> None:
            pass

        def recover(self, record: Any, dataflow: Any) -> None:
            for flow, count in counts.items():
                for index in range(new.store.next_index(name, flow), count):
                    new.enqueue(name, world.store.increment(name, flow, index).increment)

    new.controller.arrivals = SourceLogs()
    assert new.controller.rebuild() == [name]
    return new
