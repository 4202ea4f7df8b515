"""One worker process behind a pipe."""

from __future__ import annotations

import gc
import os

import pytest

from cbp.engine.workers.worker_process import WorkerProcess


def test_a_worker_that_cannot_be_started_leaves_no_descriptor() -> None:
    """A service that tries again for hours does not run out of them."""
    gc.disable()  # what is left to the collector stays open until it runs
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(FileNotFoundError):
                WorkerProcess(["/no/such/program"], {})
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
