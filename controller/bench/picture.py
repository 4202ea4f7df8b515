"""The results as a picture: seconds over records of an increment, both logarithmic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from controller.bench.errors import BenchRefusedError
from controller.bench.options import OURS
from controller.bench.result import Measured

__all__ = ["draw", "require_matplotlib"]

_STYLES = ("-", "--", ":", "-.")


def require_matplotlib() -> None:
    """Raise BenchRefusedError when no picture could be drawn in the end."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as exc:
        raise BenchRefusedError(
            "picture", "matplotlib is not installed: pip install 'cbp[bench]'"
        ) from exc


def draw(results: Sequence[Measured], path: Path) -> None:
    """Write the picture; its format follows the file's ending."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    forms = {one.form for one in results if one.candidate == OURS}
    lines: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    for one in results:
        several = one.candidate == OURS and len(forms) > 1
        name = f"{OURS} ({one.form})" if several else one.candidate
        lines[name, one.state_keys].append(one)
    names = list(dict.fromkeys(candidate for candidate, _ in lines))
    states = sorted({keys for _, keys in lines})
    for (candidate, keys), found in lines.items():
        points = sorted(found, key=lambda one: one.increment_records)
        axes.plot(
            [one.increment_records for one in points],
            [one.seconds_median for one in points],
            color=f"C{names.index(candidate) % 10}",
            linestyle=_STYLES[states.index(keys) % len(_STYLES)],
            marker="o",
            label=f"{candidate}, {keys:,} keys",
        )
    floors = sorted({(o.increment_records, o.floor_seconds) for o in results if o.floor_seconds})
    if floors:
        axes.plot(*zip(*floors, strict=True), color="0.6", marker=".", label="floor")
    axes.set(xscale="log", yscale="log", xlabel="records of an increment", ylabel="seconds")
    axes.set_title(", ".join(dict.fromkeys(one.workload for one in results)))
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
