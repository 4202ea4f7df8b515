"""Records that are set aside in a plan: stages whose code fails, gets mended, and gets them back.

Steps, each with the number of the request, as in `operations`:

    ("mend_code", number, stage)                  a new version whose code fails no more; it is kept
    ("give", number, stage)                  give back what the stage has set aside
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cbp.model.version.version_change import Choice
from tests.simulation.operations import Step

__all__ = ["ASIDES", "mended", "with_asides"]

ASIDES: dict[str, tuple[str, ...]] = {
    "mend_code": ("description", "log_entry", "sql_commit"),
    "give": ("given_back", "set_aside", "intention", "log_entry", "sql_commit"),
}
"""Verb to the effects that it has: where a fault is aimed that is to strike in it."""

FRAIL = {
    "total": "brittle",
    "twice": "brittle",
    "note": "brittle",
    "fickle": "brittle",
    "frames": "cracked",
}
"""Translator to the one that fails in its place."""
MENDED = {"brittle": "total", "cracked": "chipped"}
"""Translator that fails to the one with its tables that does not; both frame alike."""
FIRST_NUMBER = 1_000
"""Requests of other operations have lower numbers."""


def with_asides(
    rng: random.Random,
    document: Mapping[str, Any],
    steps: Sequence[Step],
    fault: Callable[[Sequence[str]], Step],
) -> tuple[dict[str, Any], list[Step]]:
    """Let a stage fail on some records, which it sets aside, and give them back in between.

    Args:
        rng: The seed's random numbers.
        document: The dataflow.
        steps: What happens anyway.
        fault: Returns a fault that strikes at one of these effects.
    """
    changed = copy.deepcopy(dict(document))
    able = [name for name, one in changed["stages"].items() if one["translator"] in FRAIL]
    if not able:
        return changed, list(steps)
    name = rng.choice(able)
    frail = FRAIL[changed["stages"][name]["translator"]]
    changed["stages"][name] |= {"translator": frail, "on_error": "set_aside"}
    made: list[Step] = []
    for number, step in enumerate(steps, FIRST_NUMBER):
        if step[0] in ("work", "within") and rng.random() < 0.15:
            made.append(fault(("set_aside", "job", "intention")))
        made.append(step)
        if rng.random() >= min(0.5, 5 / len(steps)):
            continue
        for verb in rng.choice((("give",), ("mend_code", "give"))):
            if rng.random() < 0.4:
                made.append(fault(ASIDES[verb]))
            made.append((verb, number, name))
    if rng.random() < 0.7:  # what came last is given back too, while faults still strike
        number = FIRST_NUMBER + len(steps)
        made += [("mend_code", number, name), ("tick",), ("work", 0), ("give", number, name)]
    return changed, made


def mended(document: Mapping[str, Any], stage: str) -> tuple[dict[str, Any], Choice] | None:
    """Return the version in which a stage fails no more; `None` if it does not fail now."""
    changed = copy.deepcopy(dict(document))
    there = changed["stages"].get(stage)
    if there is None or there["translator"] not in MENDED:
        return None
    there["translator"] = MENDED[there["translator"]]
    return changed, Choice(keep=frozenset([stage]))
