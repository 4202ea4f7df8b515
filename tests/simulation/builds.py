"""Rebuilds beside in a simulation, woven as steps into a plan. `builder` says what must hold.

Steps:

    ("build",)        an operator lets all tables be built beside the present ones
    ("unbuild",)      and ends that

Everything else goes on meanwhile: files that replace others, roll-backs, versions, take-overs.
In the end, behind all checks, one more build is swapped in, and killed on the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.simulation.operations import Step
from tests.simulation.weaving import weave

__all__ = ["BUILDS", "with_builds"]

BUILDS = ("build", "unbuild")
EFFECTS = ("build_order", "build_order", "data_file", "log_entry", "clean_up")
"""What a build does: where a fault is aimed that is to strike in it."""

ROUND = (("scan",), ("tick",), ("work", 0), ("tick",))


def with_builds(
    rng: random.Random,
    steps: Sequence[Step],
    deaths: Sequence[str],
    fault: Callable[[Sequence[str]], Step],
) -> list[Step]:
    """Weave builds into a plan.

    Args:
        rng: Random numbers of this alone: the other steps stay what the seed made of them.
        steps: What happens anyway.
        deaths: Verbs of deaths.
        fault: Returns a fault that strikes at one of these effects.
    """
    parcels: list[list[Step]] = []
    for _ in range(rng.choice((1, 2, 3))):
        parcel: list[Step] = [fault(EFFECTS)] if rng.random() < 0.5 else []
        parcel.append(("build",))
        parcel += [one for one in ROUND if rng.random() < 0.4]
        if rng.random() < 0.4:
            parcel += [(rng.choice(deaths),), ("tick",)]
        if rng.random() < 0.4:
            parcel += [fault(EFFECTS)] if rng.random() < 0.4 else []
            parcel.append(("unbuild",))
        parcels.append(parcel)
    return weave(rng, steps, parcels)
