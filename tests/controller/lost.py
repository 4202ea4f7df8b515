"""A service whose database is gone, and whose folders are not: what sources bring back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.table_names import source_folder
from cbp.errors import NotFoundError
from cbp.model.flow.increment import DataFile, Increment
from tests.controller.world import World

__all__ = ["SourceLogs", "lose_the_store"]


class SourceLogs:
    """Bring back, out of memory, what the logs of a dataflow's sources would.

    Args:
        increments: Those of each source in order; what the store knows is left out.
    """

    def __init__(self, world: World, dataflow: str, increments: Iterable[Increment]) -> None:
        self._world, self._dataflow, self._increments = world, dataflow, tuple(increments)

    def prepare(self, record: Any, dataflow: Any) -> None:
        """Do nothing: nobody drops files here."""

    def recover(self, record: Any, dataflow: Any) -> None:
        """Enqueue what the store does not know."""
        for increment in self._increments:
            if self._world.store.next_index(self._dataflow, increment.flow) <= increment.index:
                self._world.enqueue(self._dataflow, increment)


def lose_the_store(
    world: World, root: Path, counts: dict[str, int], faults: Faults = NO_FAULTS
) -> World:
    """Return a world with the same tables and an empty database, rebuilt.

    Args:
        world: The world whose database is lost.
        root: The folder of the new database.
        counts: Source to the number of its increments.
        faults: What strikes while it is rebuilt.
    """
    (name,) = (record.name for record in world.store.dataflows())
    new = World(root, engine=LocalEngine, limits=world.limits, engine_limits=world.engine_limits)
    new.tables, new.translators = world.tables, world.translators
    new.restart()

    logged = [
        _logged(world, name, flow, index)
        for flow, count in counts.items()
        for index in range(count)
    ]
    new.arrivals = SourceLogs(new, name, logged)
    new.faults.to = faults
    assert new.controller.rebuild() == [name]
    return new


def _logged(world: World, name: str, flow: str, index: int) -> Increment:
    """Return an increment as its source's log has it, which outlives its files and row."""
    try:
        return world.store.increment(name, flow, index).increment
    except NotFoundError:
        file = DataFile(f"{source_folder(flow)}/{index:012d}-00000-gone.parquet", 1, 1)
        return Increment(flow, index, index, (file,))
