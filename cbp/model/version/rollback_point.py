"""Roll-back points: the states of the past to which a dataflow can be rolled back. Pure.

An operator names a roll-back point in one of four ways:

    1234                      right after the first 1,234 runs of all stages (a position's number);
                              0 is the moment before anything arrived
    count:57                  right after epoch 57 of the stage `count`
    2026-11-21T10:00+00:00    as of that time; in UTC if it has no zone
    urls/3, count.totals/57   right before increment 3 of the source `urls` came, or before
                              increment 57 of `count.totals` was made: a *replay* begins with it

All names of one moment mean the same point: the time of a position is that of its last run. A time
between two runs means the position of the first run, at which the input that had arrived by that
time waits.

A roll-back point is a consistent cut. Records are put one after the other within a dataflow, and
their times rise. So every time is a consistent cut over all stages: the run that read an increment
has a later time than the run that wrote it.

`controller.loop.recovery.past_position` reconstructs the position at a roll-back point, and
`controller.loop.recovery.rollback` takes the dataflow there. REST and the CLI call the points after
single runs *moments*.

Invariant: a roll-back point contains every record on which a record in it depends
(tests/cbp/model/version/test_rollback_point.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cbp.errors import DefinitionError, Mistake
from cbp.model.instants import zoned

TimeOf = Callable[[str, int], int]
"""Maps a stage and an epoch to the time of the record, in milliseconds."""

_STAGE_EPOCH = re.compile(r"([a-z][a-z0-9_]*)[:@]([0-9]{1,18})\Z")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_INCREMENT = re.compile(r"([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?)/([0-9]{1,18})\Z")


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """The name of a roll-back point, as an operator gives it, in one of four forms.

    Attributes:
        number: Number of a position.
        stage, epoch: A stage, and its last epoch that is kept.
        at_ms: A time in milliseconds since 1970.
        flow, index: The increment that comes right after the point.
    """

    number: int | None = None
    stage: str = ""
    epoch: int = -1
    at_ms: int | None = None
    flow: str = ""
    index: int = -1


@dataclass(frozen=True, slots=True)
class RollbackPoint:
    """A roll-back point: a consistent cut over all stages.

    Attributes:
        epochs: Maps each stage to its next epoch at the point.
        at_ms: The time of its last run (0: none), or the named time; later input is after it.
    """

    epochs: Mapping[str, int]
    at_ms: int

    @property
    def number(self) -> int:
        """Number of runs, over all stages, that stay."""
        return sum(self.epochs.values())


@dataclass(frozen=True, slots=True)
class PointAfterRun:
    """The point right after a run was recorded; `""` and -1: before the first run."""

    stage: str
    epoch: int
    point: RollbackPoint


def parse_point(text: str) -> NamedPoint:
    """Parse the name of a roll-back point; `rollback_target_invalid` if it has no valid form."""
    if _NUMBER.match(text):
        return NamedPoint(number=int(text))
    if match := _STAGE_EPOCH.match(text):
        return NamedPoint(stage=match[1], epoch=int(match[2]))
    if match := _INCREMENT.match(text):
        return NamedPoint(flow=match[1], index=int(match[2]))
    try:
        at = zoned(datetime.fromisoformat(text if "-" in text[1:] else ""))
    except ValueError as error:
        message = (
            f"{text!r} is not a roll-back point: use a position (1234), a stage and its last epoch "
            "to keep (count:57), a time (2026-11-21T10:00+00:00), or the increment to apply next "
            "(urls/3)"
        )
        raise _invalid(message) from error
    return NamedPoint(at_ms=int(at.timestamp() * 1000))


def find_point(
    named: NamedPoint, spans: Mapping[str, range], time_of: TimeOf
) -> RollbackPoint | None:
    """Return the point with a name; `None` if it is before the oldest kept record.

    Args:
        named: The name of the point, which is not an increment; its stage, if any, is in `spans`.
        spans: Maps each stage to the epochs whose records still exist, up to the newest.
        time_of: Returns the time of a record in `spans`; it rises with the epoch.

    Raises:
        DefinitionError: With code `rollback_target_invalid`: the point is after the newest
            record, or between two records of one millisecond, which are undone together.
    """
    newest = max((time_of(s, span[-1]) for s, span in spans.items() if span), default=0)
    if named.stage:
        stage, epoch, span = named.stage, named.epoch, spans[named.stage]
        if epoch >= span.stop:
            asked, last = f"{stage}:{epoch}", f"{stage}:{span.stop - 1}"
            raise _ahead(asked, last)
        return _point_at(spans, time_of, time_of(stage, epoch)) if epoch in span else None
    if named.number is None:
        return _point_at(spans, time_of, named.at_ms or 0)
    total = sum(span.stop for span in spans.values())
    if named.number > total:
        raise _ahead(str(named.number), str(total))

    def number(at_ms: int) -> int:
        return sum(_stop(span, stage, time_of, at_ms) for stage, span in spans.items())

    # The earliest time with that number of runs, so input that arrived after the last of them is
    # excluded.
    at_ms = bisect_left(range(newest + 1), named.number, key=number)
    before = number(at_ms - 1)
    point = _point_at(spans, time_of, at_ms)
    if point is not None and before < named.number < point.number:
        message = (
            f"there is no roll-back point at position {named.number}, since runs that were "
            f"recorded in the same millisecond are undone together; use {before} or {point.number}"
        )
        raise _invalid(message)
    return point if point is not None and point.number == named.number else None


def newest_points(spans: Mapping[str, range], time_of: TimeOf) -> Iterator[PointAfterRun]:
    """Yield the roll-back points after single runs, newest first; see `find_point`."""
    stops = {stage: span.stop for stage, span in spans.items()}
    while True:
        if any(0 < span.start == stops[stage] for stage, span in spans.items() if span):
            return  # the time of the previous record is no longer known
        last = {stage: stop - 1 for stage, stop in stops.items() if stop - 1 in spans[stage]}
        if not last:
            if not any(stops.values()):
                yield PointAfterRun("", -1, RollbackPoint(stops, 0))
            return
        times = {name: time_of(name, epoch) for name, epoch in last.items()}
        stage = max(times, key=lambda name: times[name])
        yield PointAfterRun(stage, last[stage], RollbackPoint(dict(stops), times[stage]))
        for name, at_ms in times.items():
            stops[name] -= at_ms == times[stage]  # runs of one moment are undone together


def _point_at(spans: Mapping[str, range], time_of: TimeOf, at_ms: int) -> RollbackPoint | None:
    epochs = {stage: _stop(span, stage, time_of, at_ms) for stage, span in spans.items()}
    if any(span.start and epochs[s] == span.start for s, span in spans.items() if span):
        return None  # the time of the previous record is no longer known
    return RollbackPoint(epochs, at_ms)


def _stop(span: range, stage: str, time_of: TimeOf, at_ms: int) -> int:
    return span.start + bisect_right(span, at_ms, key=lambda epoch: time_of(stage, epoch))


def _ahead(named: str, newest: str) -> DefinitionError:
    return _invalid(f"{named} is in the future; the newest roll-back point is {newest}")


def _invalid(message: str) -> DefinitionError:
    return DefinitionError(Mistake("rollback_target_invalid", "to", message))
