"""Cleans up behind a benchmark, however that ends: Ctrl-C, SIGTERM, a limit of time, SIGKILL.

A process of its own waits until the benchmark is done or gone. Then it kills what is left of the
sessions that it was told of, and removes the benchmark's folder:

    python -I clean_up.py [FOLDER] < ids of sessions, a line each; the end of the input says "now"

It has a session of its own, so that no signal for the benchmark's process group reaches it. As a
program it imports the standard library only, and so is ready at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["CleanUp", "clean_up"]

_COMMAND = (sys.executable, "-I", str(Path(__file__).resolve()))
_PAUSE_SECONDS, _PATIENCE_SECONDS = 0.05, 60.0
_STATE, _SESSION = 0, 3
"""Positions in `/proc/<pid>/stat`, behind the name of the program."""


class CleanUp:
    """Kills sessions and removes a folder once its context is left, or this process is gone.

    Args:
        folder: What is removed; `None` if it is to be kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._process = subprocess.Popen(
            [*_COMMAND, *([] if folder is None else [str(folder)])],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def add_session(self, process_id: int) -> None:
        """Let the processes of a session be killed, too; its id is that of its first process."""
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(b"%d\n" % process_id)
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.close()
        self._process.wait()


def clean_up(sessions: Iterable[int], folder: Path | None) -> None:
    """Kill what is left of sessions; then remove a folder, which they can no longer fill."""
    left, until = set(sessions), time.monotonic() + _PATIENCE_SECONDS
    while left and time.monotonic() < until:
        left = set(_killed(left))
        if left:
            time.sleep(_PAUSE_SECONDS)  # they end; one may have started another before
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _killed(sessions: set[int]) -> Iterator[int]:
    """Kill the processes of sessions; yield the session of each that had not ended."""
    for name in os.listdir("/proc"):
        with suppress(OSError):  # it has ended, or is not ours
            if name.isdigit():
                stat = Path("/proc", name, "stat").read_bytes()
                fields = stat.rpartition(b")")[2].split()
                if int(fields[_SESSION]) in sessions and fields[_STATE] != b"Z":
                    os.kill(int(name), signal.SIGKILL)
                    yield int(fields[_SESSION])


def _main(arguments: list[str]) -> None:
    sessions = [int(line) for line in sys.stdin]  # until the end: the benchmark is done, or gone
    clean_up(sessions, Path(arguments[0]) if arguments else None)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _main(sys.argv[1:])
