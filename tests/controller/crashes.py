"""A workload that crashes at a named point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import NotFoundError
from tests.controller.world import DIAMOND, World
from tests.planned_faults import Crash, PlannedFaults

CRASHES = 10


ARRIVALS = [("a", ("x", 1)), ("b", ("x", 2)), ("a", ("y", 3)), ("b", ("y", 4)), ("a", ("x", 5))]


def steps(world: World, document: dict[str, Any]) -> list[Callable[[], object]]:
    """Return a script whose every step may be repeated after a crash."""

    def register() -> None:
        try:
            world.store.dataflow("diamond")
        except NotFoundError:
            world.controller.register(document)

    def arrive(number: int) -> Callable[[], None]:
        source, record = ARRIVALS[number]
        index = sum(s == source for s, _ in ARRIVALS[:number])

        def step() -> None:
            if world.store.next_index("diamond", source) <= index:
                world.arrive("diamond", source, record)

        return step

    made: list[Callable[[], object]] = [register]
    for number in range(len(ARRIVALS)):
        made += [arrive(number), world.ticks]
    return made


def play(world: World, *faults: PlannedFaults, document: dict[str, Any] = DIAMOND) -> int:
    """Play the script; each of `faults` holds until it has struck. Return the crashes."""
    crashes, left = 0, list(faults)
    world.faults.to = left.pop(0) if left else NO_FAULTS
    for step in steps(world, document):
        recover = False
        while True:
            try:
                if recover:
                    world.controller.recover()
                step()
                break
            except Crash:
                crashes += 1
                recover = True
                world.faults.to = left.pop(0) if left else NO_FAULTS
                world.restart()
    world.faults.to = NO_FAULTS
    return crashes


def rows(*pairs: tuple[str, int]) -> list[str]:
    return sorted(repr({"word": word, "n": n}) for word, n in pairs)
