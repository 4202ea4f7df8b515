"""Measures how long a file takes from its rename into `incoming` until its result can be read.

    rename -> claim made -> increment made -> run started -> run finishes -> recorded -> answer
        claimed       read          decided           run        published    readable

A run finishes once its job is done: then it puts its record, publishes and commits.

The moments between are those that the service reports over REST. They are taken from the same
clock of the machine, and read after the answer, so that asking for them delays nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.bench.end_to_end.figures import PARTS, Delay
from tests.bench.end_to_end.measured_service import MeasuredService

__all__ = ["measure_delays", "split_delay"]

_IDLE_SECONDS = 0.25
"""Pause between two files, so that the service is idle when the next one comes."""


def measure_delays(
    service: MeasuredService,
    *,
    files: int,
    lines: int,
    warmup: int,
    step: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> list[Delay]:
    """Rename files in, one after the other, into an idle service; return a delay for each.

    Args:
        service: The service.
        files: How many are measured.
        lines: Lines of each.
        warmup: How many come before the measured ones.
        step: Called with the name of each step.
        pause: Sleeps for some seconds.
    """
    delays = []
    for number in range(warmup + files):
        step(f"file {number + 1} of {warmup + files}")
        delay = _delay_of_one(service, lines)
        if number >= warmup:
            delays.append(delay)
        pause(_IDLE_SECONDS)
    return delays


def _delay_of_one(service: MeasuredService, lines: int) -> Delay:
    path = service.write_file(lines)
    renamed = time.time()
    service.rename_in(path)
    service.wait_until_readable()
    readable = time.time()
    claim = service.claim_of(path)
    increment, run = service.increment(claim["index"]), service.run_of(claim["index"])
    told = (claim["created_at"], increment["created_at"], run["started_at"], run["finished_at"])
    *before, started, recorded = [datetime.fromisoformat(one).timestamp() for one in told]
    ends = [one["begin_seconds"] for one in run["phases"] if one["name"] == "finish"]
    finishes = started + ends[-1] if ends else recorded
    moments = (renamed, *before, started, finishes, recorded, readable)
    return split_delay(moments, run["phases"])


def split_delay(moments: Sequence[float], phases: Sequence[Mapping[str, Any]]) -> Delay:
    """Return a delay from the seven moments that bound its parts, in seconds.

    A result can be read before its run is recorded as ended, since the record follows the
    publication: then the end of the run counts as the moment of the answer, and no part is
    negative. The parts always add up to the whole.
    """
    begin, end = moments[0], moments[-1]
    bounded: list[float] = [begin]
    for moment in moments[1:-1]:
        bounded.append(min(max(moment, bounded[-1]), end))
    spans = [after - before for before, after in pairwise([*bounded, end])]
    taken: dict[str, float] = {}
    for phase in phases:
        if phase["end_seconds"] is not None:
            seconds = phase["end_seconds"] - phase["begin_seconds"]
            taken[phase["name"]] = taken.get(phase["name"], 0.0) + seconds
    return Delay(end - begin, dict(zip(PARTS, spans, strict=True)), taken)
