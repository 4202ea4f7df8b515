"""Who sets priorities in a simulation, and what must have become of them.

What was asked for may have happened, what was answered must have. After a recovery the store says
what the file beside the tables says.
"""

from __future__ import annotations

from cbp.engine.storage.files import LocalFiles
from cbp.errors import NotFoundError
from cbp.model.schedule.priority import NORMAL, Priority
from controller.loop.operations.priorities import read_priorities
from tests.simulation.history import require
from tests.simulation.world import NAME, World

__all__ = ["Prioritizer"]


class Prioritizer:
    """The operator who sets priorities in one world.

    Attributes:
        possible: Stage to the priorities that it may have; one entry: what was answered last.
        answered: How many requests were answered.
    """

    def __init__(self, world: World) -> None:
        self.world, self.answered = world, 0
        self.possible: dict[str, set[str]] = {}

    def do(self, stage: str, priority: Priority) -> None:
        """Ask for a priority."""
        members = self.world.controller.members(NAME).values()
        names = next((names for names in members if stage in names), ())
        for name in names:
            self.possible.setdefault(name, {NORMAL}).add(priority)
        try:
            self.world.controller.set_priority(NAME, stage, priority)
        except NotFoundError:
            if names:
                raise
            return
        require(bool(names), f"P5: {stage} has a priority, and is no stage")
        self.possible |= {name: {priority} for name in names}
        self.answered += 1

    def check(self, *, recovered: bool) -> None:
        """Check the store against what was asked for, and after a recovery against the file."""
        file = read_priorities(LocalFiles(), self.world.folder)
        for stage in self.world.store.stages(NAME):
            possible = self.possible.get(stage.stage, {NORMAL})
            what = f"P5: {stage.stage} is {stage.priority}, and may be {sorted(possible)}"
            require(stage.priority in possible, what)
            if recovered and file is not None and NAME not in self.world.controller.held:
                says = file.get(stage.stage, NORMAL)
                what = f"P6: {stage.stage} is {stage.priority} in the store, {says} in its file"
                require(stage.priority == says, what)
