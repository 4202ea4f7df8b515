"""Roll-back: parse the point to return to, and find the consistent cut at that point. Pure.

    1234                      after the first 1,234 runs of all stages (a position's number)
    count:57                  after epoch 57 of the stage `count`
    2026-11-21T10:00+00:00    as of that time; the zone is required

Records are put one after the other within a dataflow, and their times rise. So every time is a
consistent cut over all stages: the run that read an increment has a later time than the run that
wrote it.

Invariant: a cut contains every record on which a record in it depends
(tests/cbp/model/version/test_rollback_goal.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cbp.errors import DefinitionError, Mistake

__all__ = ["Cut", "Goal", "Moment", "TimeOf", "find_cut", "newest_moments", "parse_goal"]

TimeOf = Callable[[str, int], int]
"""Maps a stage and an epoch to the time of the record, in milliseconds."""

_STAGE_EPOCH = re.compile(r"([a-z][a-z0-9_]*)[:@]([0-9]{1,18})\Z")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")


@dataclass(frozen=True, slots=True)
class Goal:
    """The point that an operator named: a number, a stage with an epoch, or a time.

    Attributes:
        number: Number of a position.
        stage, epoch: The last epoch of this stage that stays.
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
        epochs: Maps each stage to its next epoch at the cut.
        at_ms: A time at which the dataflow was at the cut; the named time, if a time was named.
    """

    epochs: Mapping[str, int]
    at_ms: int

    @property
    def number(self) -> int:
        """Number of runs of all stages that stay."""
        return sum(self.epochs.values())


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment right after a run was recorded, to which a roll-back can return.

    Attributes:
        stage, epoch: The run; `""` and -1 for the moment before the first run.
        cut: The dataflow at that moment.
    """

    stage: str
    epoch: int
    cut: Cut


def parse_goal(text: str) -> Goal:
    """Parse the point that an operator named; see the module header.

    Raises:
        DefinitionError: With code `rollback_target_invalid`.
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
    if at.tzinfo is None:
        message = f"{text!r} has no time zone; write {text}Z for UTC, or an offset such as +01:00"
        raise DefinitionError(Mistake("rollback_target_invalid", "to", message))
    return Goal(at_ms=int(at.timestamp() * 1000))


def find_cut(goal: Goal, spans: Mapping[str, range], time_of: TimeOf) -> Cut | None:
    """Return the cut at a goal; `None` if the goal is before the oldest kept record.

    Args:
        goal: The named point; its stage, if any, is in `spans`.
        spans: Maps each stage to the epochs whose records still exist, up to the newest.
        time_of: Returns the time of a record in `spans`; it rises with the epoch.

    Raises:
        DefinitionError: With code `rollback_target_invalid`: the goal is after the newest
            record, or is a number between those before and after records of one millisecond.
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
    cut = _cut(spans, time_of, at_ms)
    if cut is not None and cut.number < goal.number:
        raise _within(goal.number, cut.number, number(at_ms + 1))
    return cut if cut is not None and cut.number == goal.number else None


def newest_moments(spans: Mapping[str, range], time_of: TimeOf) -> Iterator[Moment]:
    """Yield the moments to which a roll-back can return, newest first.

    Args:
        spans: As in `find_cut`.
        time_of: As in `find_cut`; called for one record at a time.
    """
    stops = {stage: span.stop for stage, span in spans.items()}
    while True:
        if any(0 < span.start == stops[stage] for stage, span in spans.items() if span):
            return  # the time of the previous record is no longer known
        last = {stage: stop - 1 for stage, stop in stops.items() if stop - 1 in spans[stage]}
        if not last:
            if not any(stops.values()):
                yield Moment("", -1, Cut(stops, 0))
            return
        times = {name: time_of(name, epoch) for name, epoch in last.items()}
        stage = max(times, key=lambda name: times[name])
        yield Moment(stage, last[stage], Cut(dict(stops), times[stage]))
        for name, at_ms in times.items():
            stops[name] -= at_ms == times[stage]  # one moment: they are undone together


def _cut(spans: Mapping[str, range], time_of: TimeOf, at_ms: int) -> Cut | None:
    epochs = {stage: _stop(span, stage, time_of, at_ms) for stage, span in spans.items()}
    if any(span.start and epochs[s] == span.start for s, span in spans.items() if span):
        return None  # whether the previous record was later is no longer known
    return Cut(epochs, at_ms)


def _stop(span: range, stage: str, time_of: TimeOf, at_ms: int) -> int:
    return span.start + bisect_right(span, at_ms, key=lambda epoch: time_of(stage, epoch))


def _within(named: int, before: int, after: int) -> DefinitionError:
    message = (
        f"no moment has position {named}: runs that were recorded in the same millisecond are "
        f"undone together; use {before} or {after}"
    )
    return DefinitionError(Mistake("rollback_target_invalid", "to", message))


def _ahead(named: str, newest: str) -> DefinitionError:
    message = f"{named} lies ahead; the newest is {newest}"
    return DefinitionError(Mistake("rollback_target_invalid", "to", message))
