"""How much of a long list of cases the default run plays; the rest are soaks.

`bash deploy/test.sh -m "soak or not soak"` plays all of them, and `CBP_EXAMPLES=4` four times the
number of examples that a property names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

FACTOR = float(os.environ.get("CBP_EXAMPLES", "0.6"))


def examples(number: int) -> int:
    """Return how many examples of a property are tried."""
    return max(1, round(number * FACTOR))


def sampled(cases: Iterable[Any], *, every: int, first: int = 0) -> list[Any]:
    """Return the cases as parameters; only each `every`-th is part of the default run.

    Write `@pytest.mark.part(every=...)` instead: it counts the cases of all decorators.

    Args:
        cases: Parameters of a test; tuples are parameters of several names.
        every: 2 plays every second one.
        first: Number of the first one that is played.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if number % every == first else [pytest.mark.soak],
        )
        for number, case in enumerate(cases)
    ]


def keep_a_part(items: Sequence[pytest.Item]) -> None:
    """Make soaks of the cases that the marker `part(every, first=0)` of their test leaves out.

    They are counted as pytest lists them: of several decorators the uppermost changes fastest.
    """
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("part")
        if mark is None or item.get_closest_marker("soak") is not None:
            continue
        test = item.nodeid.partition("[")[0]
        if seen[test] % mark.kwargs["every"] != mark.kwargs.get("first", 0):
            item.add_marker(pytest.mark.soak)
        seen[test] += 1
