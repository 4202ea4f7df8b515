"""Left to do: whether a dataflow does anything more before something new arrives. Pure.

A stage has work left if it runs, can run, or has increments to frame. A stage that waits for other
input, for the rest of a frame or for another phase has no work left, since nothing happens there
without new input. The same holds for a stage that waits for a timer, which may be due in a month.
If a stage is stopped, or its Runnable fails, its unfinished work still counts.

Invariant: with nothing left, and without arrivals, closes, changes or due timers, no tick starts
anything (tests/cbp/model/schedule/test_left_to_do.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cbp.errors import CbpError
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.position import Position, StagePosition
from cbp.model.schedule.runnable_call import call_runnable
from cbp.model.schedule.waiting import Wait

_NOTHING_LEFT = ("input", "frame", "timer")


def left_to_do(
    rules: Mapping[str, RunnableSpec],
    position: Position,
    running: Collection[str],
    waits: Mapping[str, Wait] | None = None,
) -> dict[str, str]:
    """Return the stages that still have work, and their remaining work in words.

    Args:
        rules: Maps each leading stage to its Runnable.
        waits: The last decisions, used instead of calls of an author's function, which can take
            any time.
    """
    left = {name: _under_way((waits or {}).get(name)) for name in running}
    for name, stage in position.stages.items():
        if any(one.arrived or one.closes for one in stage.connectors.values()):
            left.setdefault(name, "frames new increments")
        elif name not in left and (what := _asked(name, rules[name], stage, waits)):
            left[name] = what
    return left


def _under_way(wait: Wait | None) -> str:
    if wait is None or wait.kind != "running":
        return "runs"
    # The start time lets a reader judge whether the run hangs.
    return f"{wait.words}, started at {wait.since:%Y-%m-%d %H:%M:%S} UTC"


def _asked(
    name: str, rule: RunnableSpec, stage: StagePosition, waits: Mapping[str, Wait] | None
) -> str:
    if rule.by_author and waits is not None:
        wait = waits.get(name)
        if wait is not None:
            return "" if wait.kind in _NOTHING_LEFT else wait.words
        return "can run" if any(one.unread for one in stage.connectors.values()) else ""
    try:
        return "can run" if call_runnable(name, rule, stage.connectors, stage.memo).runnable else ""
    except CbpError as error:
        return error.message
