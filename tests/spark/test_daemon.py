"""Spark's Python daemon with the engine imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORK = """
from cbp.engine.spark.daemon import ended_quietly

def work(error):
    raise error

ended_quietly(work)({error})
"""


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [("BrokenPipeError()", 0, ""), ("ValueError('cause')", 1, "ValueError: cause")],
)
def test_a_worker_that_spark_has_ended_tells_no_error(error: str, code: int, told: str) -> None:
    """Operators do not read a traceback a minute after every run; other errors are told."""
    command = [sys.executable, "-c", WORK.format(error=error)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code
    assert done.stderr.strip().endswith(told)
    assert bool(done.stderr) == bool(told)
