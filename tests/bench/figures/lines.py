"""Results as values, as JSON, and as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from tests.bench.figures.contest import Samples
from tests.bench.measurements.result import machine, versions

__all__ = ["Line", "document", "line_of", "markdown"]

_COLUMNS = ("figure", "candidate", "seconds", "CPU s", "memory", "ratio", "goal", "date")


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate of one figure.

    Attributes:
        seconds, cpu_seconds: Medians of the rounds; `cpu_seconds` is `None` where unknown.
        least, most: Of the seconds.
        peak_bytes: Greatest memory, mapped files included; `None` where unknown.
        cold_seconds: The first round of all, which is not among the others if there is a warm-up.
        ratio: What the goal is about, in the words of `of`; from the medians of the seconds.
        cpu_ratio: The same from the processor's seconds, which other work disturbs less.
        goal: The goal of the ratio; "" without one.
    """

    figure: str
    candidate: str
    seconds: float
    least: float
    most: float
    rounds: int
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    cold_seconds: float | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None
    of: str = ""
    goal: str = ""


def line_of(
    figure: str,
    candidate: str,
    samples: Samples,
    *,
    to: Samples | None = None,
    of: str = "",
    goal: str = "",
) -> Line:
    """Return the line of an entrant's samples, with the ratio to those of another one."""
    return Line(
        figure,
        candidate,
        samples.seconds,
        *samples.span,
        len(samples.all),
        samples.cpu_seconds,
        samples.peak_bytes,
        samples.cold,
        None if to is None else samples.seconds / to.seconds,
        None if to is None or not to.cpu_seconds else samples.cpu_seconds / to.cpu_seconds,
        of,
        goal,
    )


def document(lines: Sequence[Line], *, minutes: float, complete: bool) -> dict[str, Any]:
    """Return the JSON document.

    Args:
        minutes: What the whole call took so far.
        complete: Whether all figures were measured.
    """
    return {
        "machine": machine(),
        "versions": versions(),
        "figures": [asdict(line) for line in lines],
        "minutes": minutes,
        "complete": complete,
    }


def markdown(lines: Iterable[Line], *, day: date) -> str:
    """Return the lines as a table; the figure is named once.

    Args:
        day: When they were measured.
    """
    rows = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    named = ""
    for line in lines:
        seconds = f"{_number(line.seconds)} ({_number(line.least)} to {_number(line.most)})"
        memory = f"{line.peak_bytes / 1e6:,.0f} MB" if line.peak_bytes else "-"
        ratio = "" if line.ratio is None else f"{line.ratio:.3g} {line.of}"
        ratio += "" if line.cpu_ratio is None else f" (CPU {line.cpu_ratio:.3g})"
        cpu = _number(line.cpu_seconds)
        figure = line.figure if line.figure != named else ""
        cells = [figure, line.candidate, seconds, cpu, memory, ratio, line.goal, str(day)]
        rows.append(_row(cells))
        named = line.figure
    return "\n".join(rows) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
