"""The benchmark: every candidate runs one workload, on the same increments, in one call.

`python -m tests.bench` calls it (`__main__.py`). `run_bench` measures; `run_service_bench` measures
a service from the rename of a file to its result over REST; `service_soak` runs a whole service.
"""

from tests.bench.end_to_end.options import SERVICE, ServiceBenchOptions
from tests.bench.errors import BenchDisagreesError, BenchFailedError, BenchRefusedError
from tests.bench.options import BenchOptions, peers_by_default, sizes_by_default
from tests.bench.reports.markdown import markdown, placed
from tests.bench.reports.picture import require_matplotlib
from tests.bench.run import run_bench, run_service_bench
from tests.bench.soak.service_soak import (
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
