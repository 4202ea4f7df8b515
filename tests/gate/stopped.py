"""Stops a run of tests at random instants: `python -m tests.gate.stopped [ARGUMENTS OF PYTEST]`.

All of its processes get SIGSTOP, also those with a session of their own, and SIGCONT after some
seconds, as on a machine that was suspended or has no processor to spare. The run must be green:
what fails then depends on how long something takes. Without arguments it is the default run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.gate.leftovers import descendants

__all__ = ["go_on", "stop_all"]

STOPS = int(os.environ.get("CBP_STOPS", "10"))
SECONDS = 3.0
APART_SECONDS = (5.0, 25.0)
"""Between two stops, at random."""


def stop_all(root: int) -> list[int]:
    """Stop a process and all that descend from it; return those that were running before.

    What starts while the others are being stopped is found by another look.
    """
    stopped: dict[int, None] = {}
    while new := [one for one in (root, *descendants(root)) if not _stands_still(one)]:
        for process in new:
            if _sent(process, signal.SIGSTOP):
                stopped[process] = None
    return list(stopped)


def go_on(processes: Iterable[int]) -> None:
    """Let stopped processes go on, children first: none finds its parent alone awake."""
    for process in reversed(list(processes)):
        _sent(process, signal.SIGCONT)


def _sent(process: int, which: signal.Signals) -> bool:
    try:
        os.kill(process, which)
    except ProcessLookupError:
        return False
    return True


def _stands_still(process: int) -> bool:
    """Tell whether a process is stopped, has ended, or is on its way to either."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "TtZX"


def main(arguments: Sequence[str]) -> int:
    """Play the tests with stops; return 0 if they are green."""
    command = [sys.executable, "-m", *(("pytest", *arguments) if arguments else ("tests.gate",))]
    dice = random.Random(os.environ.get("CBP_STOPS_SEED", "0"))
    stops = 0
    with subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2]) as run:
        while stops < STOPS:
            try:
                run.wait(dice.uniform(*APART_SECONDS))
                break
            except subprocess.TimeoutExpired:
                stopped = stop_all(run.pid)
                time.sleep(SECONDS)
                go_on(stopped)
                stops += 1
        code = run.wait()
    print(f"stopped: {stops} times for {SECONDS:.0f} s; {'green' if code == 0 else 'red'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
