"""The benchmark: every candidate runs one workload, on the same increments, in one call.

`run_bench` measures; `cbp bench` calls it. `service_soak` runs a whole service; `cbp soak` does.
"""

from controller.bench.errors import BenchDisagreesError, BenchFailedError, BenchRefusedError
from controller.bench.options import BenchOptions, peers_by_default, sizes_by_default
from controller.bench.reports.markdown import markdown, placed
from controller.bench.reports.picture import require_matplotlib
from controller.bench.run import run_bench
from controller.bench.soak.service_soak import (
    FIGURES,
    draw_service_soak,
    grown,
    left_behind,
    service_soak,
)

__all__ = [
    "FIGURES",
    "BenchDisagreesError",
    "BenchFailedError",
    "BenchOptions",
    "BenchRefusedError",
    "draw_service_soak",
    "grown",
    "left_behind",
    "markdown",
    "peers_by_default",
    "placed",
    "require_matplotlib",
    "run_bench",
    "service_soak",
    "sizes_by_default",
]
