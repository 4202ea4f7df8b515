"""A test's work in a process of its own: for another Spark master, or to measure its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["REPOSITORY", "of_tests", "run_bounded", "run_fresh"]

REPOSITORY = Path(__file__).resolve().parents[1]


def of_tests(**more: str) -> dict[str, str]:
    """Return the environment of a process that imports the tests from any folder.

    The current folder does not do: `deploy/test.sh` takes it off Python's path (`PYTHONSAFEPATH`).
    """
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


def run_fresh(module: str, *arguments: object) -> None:
    """Run a module's main part in a fresh process; it must end by printing `equal`."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=REPOSITORY,
        env=of_tests(SPARK_LOCAL_IP="127.0.0.1"),
        capture_output=True,
        text=True,
        check=False,
    )
    # What Spark writes when it is stopped comes after it.
    assert done.returncode == 0, done.stderr[done.stderr.rfind("Traceback") :][:4000]
    assert done.stdout.strip().endswith("equal")


def run_bounded(script: str, *arguments: object) -> list[str]:
    """Run a script that bounds its own address space; return the words that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        # The default pool reserves address space ahead, which hides the limit.
        env=of_tests(ARROW_DEFAULT_MEMORY_POOL="system"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()
