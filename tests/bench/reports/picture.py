"""Draws the results: seconds over records of an increment, both logarithmic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.errors import BenchRefusedError
from tests.bench.measurements.result import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "figure_of", "floors_of", "lines_of", "require_matplotlib"]

_STYLES = ("-", "--", ":", "-.")


def require_matplotlib() -> None:
    """Raise BenchRefusedError if matplotlib is missing, before anything is measured."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as exc:
        raise BenchRefusedError(
            "picture", "matplotlib is not installed: pip install 'cbp[bench]'"
        ) from exc


def draw(results: Sequence[Measured], path: Path) -> None:
    """Write the picture; its format follows the file's ending."""
    figure_of(results).savefig(path, dpi=150)


def figure_of(results: Sequence[Measured]) -> Figure:
    """Return the picture: a line per candidate, form and state size, and the floor."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    lines = lines_of(results)
    names = list(dict.fromkeys(name for name, _ in lines))
    states = sorted({keys for _, keys in lines})
    for (name, keys), points in lines.items():
        axes.plot(
            [one.increment_records for one in points],
            [one.seconds_median for one in points],
            color=f"C{names.index(name) % 10}",
            linestyle=_STYLES[states.index(keys) % len(_STYLES)],
            marker="o",
            label=f"{name}, {keys:,} keys",
        )
    if floors := floors_of(results):
        axes.plot(*zip(*floors, strict=True), color="0.6", marker=".", label="floor")
    axes.set(xscale="log", yscale="log", xlabel="records of an increment", ylabel="seconds")
    axes.set_title(", ".join(dict.fromkeys(one.workload for one in results)))
    axes.grid(visible=True, which="both", alpha=0.3)
    # Beside the axes, since the many lines may lie anywhere.
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def lines_of(results: Sequence[Measured]) -> dict[tuple[str, int], list[Measured]]:
    """Return the results by the name of a line and the keys in state; pure.

    The name of a candidate includes its form if several forms were measured. The results of a
    line are ordered by the size of their increments.
    """
    forms: dict[str, set[str]] = defaultdict(set)
    for one in results:
        forms[one.candidate].add(one.form)
    lines: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    for one in sorted(results, key=lambda one: one.increment_records):
        several = len(forms[one.candidate]) > 1
        name = f"{one.candidate} ({one.form})" if several else one.candidate
        lines[name, one.state_keys].append(one)
    return dict(lines)


def floors_of(results: Sequence[Measured]) -> list[tuple[int, float]]:
    """Return one floor per increment size, by size; a floor does not depend on state; pure."""
    floors: dict[int, list[float]] = defaultdict(list)
    for one in results:
        if one.floor_seconds:
            floors[one.increment_records].append(one.floor_seconds)
    return [(records, median(seconds)) for records, seconds in sorted(floors.items())]
