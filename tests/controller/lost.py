"""A service whose database is gone, and whose folders are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cbp.engine.base import source_folder
from cbp.engine.direct import LocalEngine
from cbp.errors import NotFoundError
from cbp.model.increment import DataFile, Increment
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
                    new.enqueue(name, _logged(world, name, flow, index))

    new.controller.arrivals = SourceLogs()
    assert new.controller.rebuild() == [name]
    return new


def _logged(world: World, name: str, flow: str, index: int) -> Increment:
    """Return an increment as its source's log has it, which outlives its files and row."""
    try:
        return world.store.increment(name, flow, index).increment
    except NotFoundError:
        file = DataFile(f"{source_folder(flow)}/{index:012d}-00000-gone.parquet", 1, 1)
        return Increment(flow, index, index, (file,))
