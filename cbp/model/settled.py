"""Whether a dataflow has anything left to do, until something arrives. Pure.

A stage has something left if it runs, may run, or has something to frame. What waits for
other input, for the rest of a frame or for another phase has nothing left: nothing happens
there by itself. A stage that is stopped keeps what it has left, and so does one whose
Runnable fails.

Invariant: nothing left, and no arrivals, closes or changes, then every tick starts nothing
(tests/cbp/model/test_settled.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cbp.errors import CbpError
from cbp.model.consult import consult
from cbp.model.position import Position, StagePosition
from cbp.model.stage import RunnableSpec

__all__ = ["left_to_do"]


def left_to_do(
    rules: Mapping[str, RunnableSpec], position: Position, running: Collection[str]
) -> dict[str, str]:
    """Return the stages that have something left to do, and what, in words.

    Args:
        rules: Stage that leads to its Runnable.
        position: Where the dataflow stands.
        running: Stages with a run under way.
    """
    found = dict.fromkeys(running, "runs")
    for name, stage in position.stages.items():
        if any(one.arrived or one.closes for one in stage.connectors.values()):
            found.setdefault(name, "frames what arrived")
        elif name not in found and (what := _asked(name, rules[name], stage)):
            found[name] = what
    return found


def _asked(name: str, rule: RunnableSpec, stage: StagePosition) -> str:
    try:
        return "may run" if consult(name, rule, stage.connectors, stage.memo).runnable else ""
    except CbpError as error:
        return error.message
