"""One group of twenty million records, state or input, in a worker of a gigabyte; `-m soak -s`.

What counts is anonymous memory (`RssAnon`): pages of mapped files are the system's to drop.
It is sampled twenty times a second in the process itself. `CBP_HUGE_ROWS` sets the size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

REPOSITORY = Path(__file__).resolve().parents[3]
ROWS = int(os.environ.get("CBP_HUGE_ROWS", "20000000"))
BYTES_MAX = 1 << 30


def require_bounded(module: str, grouping: str, folder: Path, *where: str) -> None:
    """Run a module's epochs in a process of their own, and judge each of them."""
    command = [sys.executable, "-m", module, grouping, str(ROWS), str(folder), *where]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line in done.stdout.splitlines():
        print(line)
        step = json.loads(line)
        assert step["anonymous_bytes_peak"] < BYTES_MAX, step
        assert step["records"] == step["expected"], step
        assert step.get("checksum") == step.get("checksum_expected"), step


@pytest.mark.parametrize("grouping", ["inner", "outer"])
def test_a_group_larger_than_memory_is_read_and_written_again(
    grouping: str, tmp_path: Path
) -> None:
    """Grown from nothing, echoed with some changes, then thinned out: always below a gigabyte.

    Each time the state holds exactly the records that it should.
    """
    require_bounded("tests.huge", grouping, tmp_path)


@pytest.mark.spark
def test_a_worker_of_spark_needs_no_more(tmp_path: Path) -> None:
    """The same in a Python worker of Spark, which is refused what goes beyond a gigabyte."""
    require_bounded("tests.huge", "inner", tmp_path, "spark")


@pytest.mark.parametrize("grouping", ["inner", "outer"])
def test_an_input_of_a_group_larger_than_memory_is_read(grouping: str, tmp_path: Path) -> None:
    """All records of an increment for one key, without its state and with it: below a gigabyte."""
    require_bounded("tests.huge_input", grouping, tmp_path)
