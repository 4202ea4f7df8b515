"""The benchmark: every candidate runs one workload, on the same increments, in one call.

`run_bench` measures; `cbp bench` calls it. `run_service_bench` measures a service from the rename
of a file to its result over REST; `cbp bench service` calls it. `service_soak` runs a
whole service; `cbp soak` does.
"""

from controller.bench.end_to_end.options import SERVICE, ServiceBenchOptions
from controller.bench.errors import BenchDisagreesError, BenchFailedError, BenchRefusedError
from controller.bench.options import BenchOptions, peers_by_default, sizes_by_default
from controller.bench.reports.markdown import markdown, placed
from controller.bench.reports.picture import require_matplotlib
from controller.bench.run import run_bench, run_service_bench
from controller.bench.soak.service_soak import (
    FIGURES,
    draw_service_soak,
    grown,
    left_behind,
    service_soak,
)

__all__ = [
    "FIGURES",
    "SERVICE",
    "BenchDisagreesError",
    "BenchFailedError",
    "BenchOptions",
    "BenchRefusedError",
    "ServiceBenchOptions",
    "draw_service_soak",
    "grown",
    "left_behind",
    "markdown",
    "peers_by_default",
    "placed",
    "require_matplotlib",
    "run_bench",
    "run_service_bench",
    "service_soak",
    "sizes_by_default",
]
