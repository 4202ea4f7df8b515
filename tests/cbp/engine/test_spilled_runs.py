"""Runs that hold more than their memory: the same results, in a bounded anonymous memory.

Their publication, which a service does beside its workers, is not counted; it is printed. Nor is
memory that an allocator keeps after it was freed: here each returns it at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import REPOSITORY

pytestmark = pytest.mark.soak

ROOM_MB = 8
RETURNED = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""Variables by which freed memory goes back to the system."""


def run(what: str, megabytes: int, folder: Path) -> dict[str, Any]:
    """Return what a process of its own prints; its temporary files are below the folder."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    own = {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)}
    environment = {**os.environ, **RETURNED, **own}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spilled_runs", what, str(megabytes), str(folder)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(temporary.iterdir()), "no file has a name"
    step: dict[str, Any] = json.loads(done.stdout)
    assert step["records"] == step["expected"]
    return step


@pytest.mark.parametrize(("what", "rooms"), [("loop", 1), ("whole", 1), ("tasks", 2)])
def test_anonymous_memory_stays_bounded(what: str, rooms: int, tmp_path: Path) -> None:
    """Messages, state and changes of a view of a loop, or reads and puts of a whole run."""
    small = run(what, ROOM_MB, tmp_path)
    print(what, small)
    assert small["anonymous_bytes"] < 16 * rooms * ROOM_MB << 20


@pytest.mark.parametrize("what", ["loop", "whole"])
def test_a_run_with_room_for_all_takes_more(what: str, tmp_path: Path) -> None:
    """So the bound of the test above is not met because the run is small."""
    large = run(what, 2_048, tmp_path)
    print(what, large)
    assert large["anonymous_bytes"] > 24 * ROOM_MB << 20
