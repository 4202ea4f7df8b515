"""The benchmark: one workload, every candidate, the same increments, in one run.

`run_bench` measures; `cbp bench` calls it.
"""

from controller.bench.errors import BenchDisagreesError, BenchRefusedError
from controller.bench.options import BenchOptions, peers_by_default, sizes_by_default
from controller.bench.run import run_bench

__all__ = [
    "BenchDisagreesError",
    "BenchOptions",
    "BenchRefusedError",
    "peers_by_default",
    "run_bench",
    "sizes_by_default",
]
