"""Plants a fault in the product, and searches for a seed that finds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.bench import Bench
from tests.simulation.run import simulate

__all__ = ["SEEDS_MAX", "Plant", "finding_seed"]

Plant = Callable[[pytest.MonkeyPatch], None]

SEEDS_MAX = 150

MISTAKES = (TypeError, AttributeError, NameError)
"""A fault that is found by one of these is planted wrong: the code has changed below it."""


def finding_seed(
    bench: Bench, plant: Plant, *, first: int = 0, power: bool = False, seeds: int = SEEDS_MAX
) -> int | None:
    """Return a seed that finds a planted fault; `None` if none of so many does.

    Args:
        bench: The bench of this process.
        plant: Plants it.
        first: The seed that is played first.
        power: Whether machines lose their power.
        seeds: How many are played.
    """
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        in_order: dict[int, None] = dict.fromkeys((first, *range(seeds)))
        for seed in in_order:
            outcome = simulate(bench, seed, power=power)
            if outcome.failure:
                assert f"--from {seed} " in outcome.report()
                how = outcome.failure.splitlines()[-1]
                assert not any(f"{kind.__name__}: " in how for kind in MISTAKES), how
                print(f"{plant.__name__}: seed {seed}:", how)
                return seed
    return None
