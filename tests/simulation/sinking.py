"""Sinks of a simulation, woven as steps into a plan.

Steps: ("sink", choice). All sinks make a pass; one that a roll-back stopped gets the operator's
choice, unless that is `""`. `sinker` says what must have become of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.simulation.operations import Step

__all__ = ["URL", "sinkable", "with_sinks"]

EFFECTS = {"parquet": "sink_file", "delta": "sink_table", "webhook": "sink_request"}
"""What a target does: where a fault is aimed that is to strike in a pass."""

URL = "http://receiver.test/told"
PASSED = ("work", "within", "back", "lose")
PASS_SHARE = 0.4
FAULT_SHARE = 0.7


def sinkable(steps: Sequence[Step]) -> bool:
    """Return whether the check knows what sinks of a plan hold: it knows one version only."""
    return all(step[0] != "change" for step in steps)


def with_sinks(
    rng: random.Random,
    document: Mapping[str, Any],
    steps: Sequence[Step],
    power: bool,
    fault: Callable[[Sequence[str]], Step],
) -> tuple[dict[str, Any], list[Step]]:
    """Return a document with sinks, and a plan in which they make passes.

    Args:
        rng: Random numbers of this alone: the other steps stay what the seed made of them.
        document: The dataflow.
        steps: What happens anyway.
        power: Whether the machine loses its power. Then there is no Delta table, since delta-rs
            does not sync (`controller/sinks/README.md`).
        fault: Returns a fault that strikes at one of these effects.
    """
    kinds = ["parquet", "webhook"] if power else ["parquet", "delta", "webhook"]
    sinks: dict[str, Any] = {}
    for kind in rng.sample(kinds, rng.choice((1, 2))):
        flow = f"{rng.choice(list(document['stages']))}.o"
        place = {"url": URL} if kind == "webhook" else {"path": kind}
        sinks[f"to_{kind}"] = {"to": kind, "flow": flow, **place}
    effects = [*(EFFECTS[sink["to"]] for sink in sinks.values() for _ in range(2)), "sink_note"]
    made: list[Step] = []
    for step in steps:
        if step[0] == "back":
            made.append(("sink", ""))  # what is not published is not undone
        made.append(step)
        if step[0] in PASSED and rng.random() < PASS_SHARE:
            if rng.random() < FAULT_SHARE:
                made.append(fault(effects))
            made.append(("sink", rng.choice(("", "rewrite"))))
    return {**document, "sinks": sinks}, made
