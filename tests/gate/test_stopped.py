"""A run of the tests can be stopped as a whole, and goes on as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate.leftovers import descendants
from tests.gate.stopped import go_on, stop_all
from tests.waiting import until

TREE = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
children = [subprocess.Popen(sleep, start_new_session=True) for _ in range(2)]
for child in children:
    child.wait()
"""


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """A process with two children, each in a session of its own."""
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        assert [root.stdout.readline() for _ in range(2)] == [b"up\n", b"up\n"]
        below = descendants(root.pid)
        yield root
        for process in (root.pid, *below):
            os.kill(process, signal.SIGKILL)


def stands(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_all_processes_stand_still_and_go_on(tree: subprocess.Popen[bytes]) -> None:
    """Those with a session of their own, too; one that a test had stopped stays so."""
    first, second = descendants(tree.pid)
    os.kill(second, signal.SIGSTOP)
    until(lambda: stands(second))
    stopped = stop_all(tree.pid)
    assert set(stopped) == {tree.pid, first}
    assert all(stands(process) for process in (tree.pid, first, second))
    go_on(stopped)
    until(lambda: not stands(tree.pid) and not stands(first))
    assert stands(second)
