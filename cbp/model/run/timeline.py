"""Timeline of one run: its phases, and how many seconds after its start each began; pure.

    start     waits for a thread
    plan      decides about tasks: which buckets, which files
    job       the tasks work; here the author's code runs
    assemble  puts together what the tasks report
    tidy      compacts output tables and drops old records, every few epochs
    finish    waits for its turn, puts the record, commits; publishes if a publication is due

A phase ends where the next one begins, and the last one with the run. So only the beginnings are
recorded: as figures `begin_<number>_<phase>`, in seconds since the run began. A run of fused stages
can go through plan, job and assemble twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_PREFIX = "begin_"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run, in seconds since the run began; `end` is `None` while it lasts."""

    name: str
    begin: float
    end: float | None


def begin_figures(begins: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return figures with the starts of phases, in seconds; a continued phase is recorded once."""
    phases: list[tuple[str, float]] = []
    for name, seconds in begins:
        if not phases or phases[-1][0] != name:
            phases.append((name, seconds))
    return {f"{_PREFIX}{n:02d}_{name}": seconds for n, (name, seconds) in enumerate(phases)}


def is_begin(figure: str) -> bool:
    """Return whether a figure records when a phase began."""
    return figure.startswith(_PREFIX)


def timeline(figures: Mapping[str, float], seconds: float | None) -> tuple[Phase, ...]:
    """Return the phases of a run, in order, given how long it took (`None`: it is under way)."""
    names = sorted(name for name in figures if is_begin(name))
    begins = [figures[name] for name in names]
    ends = [*begins, seconds][1:]
    return tuple(
        Phase(name.removeprefix(_PREFIX).partition("_")[2], begin, end)
        for name, begin, end in zip(names, begins, ends, strict=True)
    )
