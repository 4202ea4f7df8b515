"""Look-ups in a plan: stages that look up what others keep, and runs beside which that changes.

What a run looks up is chosen when it begins, and read while other runs publish newer epochs of the
table and the collection removes what nobody needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.operations import Step

__all__ = ["with_lookups", "with_runs_within"]

TABLES = {"total": "sums", "twice": "sums", "listed": "top", "stocked": "top"}
"""Translator to its table; all have the same columns."""

VIEWS = ("listed", "stocked")
_ABLE = ("note", "total", "fickle", "ages", "mail", "frames")

JOINS_SHARE = 0.5
BOTH_SHARE = 0.25
WITHIN_SHARE = 0.5


def with_lookups(
    rng: random.Random, document: dict[str, Any], stage: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Return a dataflow in which a stage or two look up a table of another one.

    Args:
        rng: The seed's random numbers.
        document: The dataflow; if no stage of it has a view, one that is able gets one.
        stage: Returns a stage, from its translator and its inputs.
    """
    stages = {name: dict(one) for name, one in document["stages"].items()}
    kinds = [one["translator"] for one in stages.values()]
    able = [name for name, one in stages.items() if one["translator"] in _ABLE]
    if able and not {*VIEWS}.intersection(kinds) and rng.random() < 0.7:
        stages[rng.choice(able)]["translator"] = rng.choice(VIEWS)
    tables = [name for name, one in stages.items() if one["translator"] in TABLES]
    if not tables:
        stages["t0"] = stage("listed", items=rng.choice(list(document["sources"])))
        tables = ["t0"]
    for number in range(2 if rng.random() < BOTH_SHARE else 1):
        writer = rng.choice(tables)
        kind = stages[writer]["translator"]
        table = f"{writer}.{TABLES[kind]}"
        items = rng.choice([*document["sources"], *document["sources"], f"{writer}.o"])
        if kind in VIEWS and rng.random() < JOINS_SHARE:
            stages[f"l{number}"] = stage("joins", items=items, table=table)
        else:
            stages[f"l{number}"] = stage("looks", items=items, table=table, every=table)
    return {**document, "stages": stages}


def with_runs_within(rng: random.Random, steps: Sequence[Step]) -> list[Step]:
    """Let other runs start and end in the middle of some runs."""
    return [
        ("within", *step[1:]) if step[0] == "work" and rng.random() < WITHIN_SHARE else step
        for step in steps
    ]
