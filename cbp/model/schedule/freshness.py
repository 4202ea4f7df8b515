"""Freshness: whether a dataflow's tables hold all that was delivered to it; pure.

    up_to_date    every file that arrived is taken in and applied by every stage
    catching_up   work is left, and the service does it without help
    stuck         work is left that waits for a person

Input that waits for more input by design does not count: one side of a join that reads both sides
together, an open frame, a timer (`cbp.model.schedule.left_to_do`). Files and records that a source
skips or rejects by its own rules do not count either. A file in quarantine counts until somebody
decides about it. Records that a stage has set aside count until they are given back.

Freshness is for people and scripts; no decision of the service depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cbp.errors.counts import format_count

FreshnessState = Literal["up_to_date", "catching_up", "stuck"]

_WORST_FIRST: tuple[FreshnessState, ...] = ("stuck", "catching_up", "up_to_date")


@dataclass(frozen=True, slots=True)
class Left:
    """The input that one dataflow has not applied yet.

    Attributes:
        arriving, quarantined: Map each source to its number of files that are not taken in yet, or
            that are in quarantine.
        stages: Maps each stage with work to that work, in words.
        held: Maps each stage that an operator must start to the reason.
        set_aside: Maps each stage to the number of records that it has set aside.
        troubles: Other failures that are retried, in words.
        desired: The state that an operator wants: `running`, `paused`, `draining` or `drained`.
        broken: Why it cannot be loaded or read; `""` if it can.
    """

    arriving: Mapping[str, int]
    quarantined: Mapping[str, int]
    stages: Mapping[str, str]
    held: Mapping[str, str]
    set_aside: Mapping[str, int] = field(default_factory=dict)
    troubles: Iterable[str] = ()
    desired: str = "running"
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Whether a dataflow is up to date, and the remaining work in words."""

    state: FreshnessState
    left: tuple[str, ...] = ()


def judge_freshness(left: Left) -> Freshness:
    """Return whether a dataflow is up to date, and if not, the remaining work."""
    if left.broken:
        return Freshness("stuck", (left.broken,))
    arriving = _counted(left.arriving, "file", "not taken in yet")
    undecided = _counted(left.quarantined, "file", "in quarantine")
    stages = [f"{name}: {left.held.get(name, what)}" for name, what in left.stages.items()]
    aside = _counted(left.set_aside, "record", "set aside")
    words = tuple([*left.troubles, *arriving, *undecided, *stages, *aside])
    if not words:
        return Freshness("up_to_date")
    if left.desired in ("paused", "drained") and (arriving or stages):
        return Freshness("stuck", (f"the dataflow is {left.desired}", *words))
    if left.desired == "draining" and arriving:
        why = "the dataflow is draining, so new files stay in their folders"
        return Freshness("stuck", (why, *words))
    waits = undecided or aside or left.held.keys() & left.stages.keys()
    return Freshness("stuck" if waits else "catching_up", words)


def _counted(numbers: Mapping[str, int], noun: str, what: str) -> list[str]:
    return [
        f"{name}: {format_count(number, f'{noun} is', f'{noun}s are')} {what}"
        for name, number in numbers.items()
        if number
    ]


def worst_of(states: Iterable[FreshnessState]) -> FreshnessState:
    """Return the worst of several states; `up_to_date` if there are none."""
    found = set(states)
    return next((state for state in _WORST_FIRST if state in found), "up_to_date")
