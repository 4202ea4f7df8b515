"""Priorities that an operator sets in a simulation, woven as steps into a plan.

Steps: ("priority", stage, priority). `prioritizer` says what must have become of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from cbp.model.schedule.priority import PRIORITIES
from tests.simulation.operations import Step

__all__ = ["EFFECTS", "with_priorities"]

EFFECTS = ("priority", "priority", "sql_commit")
"""What a change of a priority does: where a fault is aimed that is to strike in it."""


def with_priorities(
    rng: random.Random,
    stages: Sequence[str],
    steps: Sequence[Step],
    fault: Callable[[Sequence[str]], Step],
) -> list[Step]:
    """Weave changes of priorities into a plan.

    Args:
        rng: Random numbers of this alone: the other steps stay what the seed made of them.
        stages: Those of the first version, and one that is never there.
        steps: What happens anyway.
        fault: Returns a fault that strikes at one of these effects.
    """
    places = {rng.randrange(len(steps) + 1) for _ in range(rng.choice((1, 2, 4)))}
    made: list[Step] = []
    for number in range(len(steps) + 1):
        if number in places:
            if rng.random() < 0.5:
                made.append(fault(EFFECTS))
            made.append(("priority", rng.choice([*stages, "nobody"]), rng.choice(PRIORITIES)))
        made += steps[number : number + 1]
    return made
