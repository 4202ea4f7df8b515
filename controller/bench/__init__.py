"""The benchmark: one workload, every candidate, the same increments, in one run.

`run_bench` measures; `cbp bench` calls it.
"""

from controller.bench.errors import BenchDisagreesError, BenchRefusedError
from controller.bench.options import BenchOptions
from controller.bench.run import run_bench

__all__ = ["BenchDisagreesError", "BenchOptions", "BenchRefusedError", "run_bench"]
