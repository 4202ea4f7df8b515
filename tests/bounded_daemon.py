"""The product's Python daemon, whose workers may have a gigabyte of memory of their own.

`RLIMIT_DATA` counts what a process has for itself, touched or not: more is refused, as a
container's limit would refuse it. Mapped files are the system's to drop, and count there as
here only if the manager says so; `spark.executor.pyspark.memory` would count them as well.

Started by Spark as `python -m tests.bounded_daemon` (`spark.python.daemon.module`).
"""

from __future__ import annotations

import resource
import runpy

__all__ = ["DATA_BYTES_MAX"]

DATA_BYTES_MAX = 1 << 30

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    runpy.run_module("cbp.engine.spark.daemon", run_name="__main__")
