"""The benchmark: one workload, every candidate, the same increments, in one run.

`run_bench` measures; `cbp bench` calls it. `service_soak` runs a whole service; `cbp soak` does.
"""

from controller.bench.errors import BenchDisagreesError, BenchRefusedError
from controller.bench.options import BenchOptions, peers_by_default, sizes_by_default
from controller.bench.picture import require_matplotlib
from controller.bench.run import run_bench
from controller.bench.service_soak import (
    FIGURES,
    draw_service_soak,
    grown,
    left_behind,
    service_soak,
)

__all__ = [
    "FIGURES",
    "BenchDisagreesError",
    "BenchOptions",
    "BenchRefusedError",
    "draw_service_soak",
    "grown",
    "left_behind",
    "peers_by_default",
    "require_matplotlib",
    "run_bench",
    "service_soak",
    "sizes_by_default",
]
