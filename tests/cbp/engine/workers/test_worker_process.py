"""One worker process behind a pipe."""

from __future__ import annotations

import errno
import gc
import os

import pytest

from cbp.engine.workers import worker_process
from cbp.engine.workers.worker_process import WorkerProcess


def too_many() -> None:
    """Fail like a process that can open no more files."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("step", ["files", "program"])
def test_a_worker_that_cannot_be_started_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A service that tries again for hours does not run out of them."""
    if step == "files":
        monkeypatch.setattr(worker_process, "StackFile", too_many)
    gc.disable()  # what is left to the collector stays open until it runs
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(OSError, match="program" if step == "program" else "open files"):
                WorkerProcess(["/no/such/program"], {})
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
