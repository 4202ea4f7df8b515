"""Puts steps between those of a plan."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.simulation.operations import Step

__all__ = ["weave"]


def weave(
    rng: random.Random, steps: Sequence[Step], parcels: Sequence[Sequence[Step]]
) -> list[Step]:
    """Return the steps with parcels of others between them, both in order."""
    made: list[Step] = []
    places = sorted(rng.randrange(len(steps) + 1) for _ in parcels)
    for number in range(len(steps) + 1):
        for place, parcel in zip(places, parcels, strict=True):
            if place == number:
                made += parcel
        made += steps[number : number + 1]
    return made
