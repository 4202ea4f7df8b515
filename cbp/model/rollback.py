"""Where a roll-back goes: what an operator names, and the cut that it means. Pure.

    1234                      behind the first 1,234 runs of all stages (a position's number)
    count:57                  behind epoch 57 of the stage `count`
    2026-11-21T10:00+00:00    as of that time

Records are put one after the other within a dataflow and their times rise, so every time is
a consistent cut over all stages: whoever read an increment has a later time than its writer.

Invariant: a cut holds every record that some record of it depends on
(tests/cbp/model/test_rollback.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cbp.errors import DefinitionError, Mistake

__all__ = ["Cut", "Goal", "find_cut", "parse_goal"]

TimeOf = Callable[[str, int], int]
"""Stage and epoch to the time of the record, in milliseconds."""

_STAGE_EPOCH = re.compile(r"([a-z][a-z0-9_]*)[:@]([0-9]{1,18})\Z")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")


@dataclass(frozen=True, slots=True)
class Goal:
    """What an operator named; one of the three is given.

    Attributes:
        number: Of a position.
        stage, epoch: The last epoch that stays of this stage.
        at_ms: A time in milliseconds since 1970.
    """

    number: int | None = None
    stage: str = ""
    epoch: int = -1
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A consistent cut.

    Attributes:
        epochs: Stage to its next epoch there.
        at_ms: A time at which the dataflow stood there; that which was named, if one was.
    """

    epochs: Mapping[str, int]
    at_ms: int

    @property
    def number(self) -> int:
        """Runs of all stages that stay."""
        return sum(self.epochs.values())


def parse_goal(text: str) -> Goal:
    """Read what an operator named; see the header.

    Raises:
        DefinitionError: Rule `rollback_target_invalid`.
    """
    if _NUMBER.match(text):
        return Goal(number=int(text))
    if match := _STAGE_EPOCH.match(text):
        return Goal(stage=match[1], epoch=int(match[2]))
    try:
        at = datetime.fromisoformat(text if "-" in text[1:] else "")
    except ValueError as error:
        message = (
            f"{text!r} names no point: use the number of a position (1234), the last epoch of a "
            "stage (count:57), or a time (2026-11-21T10:00+00:00)"
        )
        raise DefinitionError(Mistake("rollback_target_invalid", "to", message)) from error
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return Goal(at_ms=int(at.timestamp() * 1000))


def find_cut(goal: Goal, spans: Mapping[str, range], time_of: TimeOf) -> Cut | None:
    """Return the cut that a goal means; `None` if it lies before what is still recorded.

    Args:
        goal: What was named; its stage, if any, is in `spans`.
        spans: Stage to the epochs whose records are there, up to the newest.
        time_of: Of a record in `spans`; rises with the epoch.

    Raises:
        DefinitionError: Rule `rollback_target_invalid`: it lies behind the newest record.
    """
    newest = max((time_of(s, span[-1]) for s, span in spans.items() if span), default=0)
    if goal.stage:
        span = spans[goal.stage]
        if goal.epoch >= span.stop:
            named, last = f"{goal.stage}:{goal.epoch}", f"{goal.stage}:{span.stop - 1}"
            raise _ahead(named, last)
        return _cut(spans, time_of, time_of(goal.stage, goal.epoch)) if goal.epoch in span else None
    if goal.number is None:
        return _cut(spans, time_of, goal.at_ms or 0)
    total = sum(span.stop for span in spans.values())
    if goal.number > total:
        raise _ahead(str(goal.number), str(total))
    oldest = min((time_of(s, span[0]) for s, span in spans.items() if span), default=0)

    def number(at_ms: int) -> int:
        return sum(_stop(span, stage, time_of, at_ms) for stage, span in spans.items())

    at_ms = bisect_right(range(oldest - 1, newest + 1), goal.number, key=number) + oldest - 2
    found = _cut(spans, time_of, at_ms)
    return found if found is not None and found.number == goal.number else None


def _cut(spans: Mapping[str, range], time_of: TimeOf, at_ms: int) -> Cut | None:
    epochs = {stage: _stop(span, stage, time_of, at_ms) for stage, span in spans.items()}
    if any(span.start and epochs[s] == span.start for s, span in spans.items() if span):
        return None  # whether the record before was later is no longer known
    return Cut(epochs, at_ms)


def _stop(span: range, stage: str, time_of: TimeOf, at_ms: int) -> int:
    return span.start + bisect_right(span, at_ms, key=lambda epoch: time_of(stage, epoch))


def _ahead(named: str, newest: str) -> DefinitionError:
    message = f"{named} lies ahead; the newest is {newest}"
    return DefinitionError(Mistake("rollback_target_invalid", "to", message))
