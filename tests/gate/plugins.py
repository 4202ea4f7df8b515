"""Registers the gate's plugins: where tests are handed out, and where they are run.

A conftest.py that imports `pytest_configure` from here has them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gate.leftovers import Leftovers
from tests.gate.outcomes import FILE, Recorder
from tests.gate.service_logs import ServiceLogs

__all__ = ["pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Record what becomes of tests, if the gate asks for it; find what files leave behind.

    Reports of failures get the ends of the logs of services.
    """
    # Taken away, so that a pytest that a test starts does not write over the same file.
    path, runs = os.environ.pop(FILE, None), hasattr(config, "workerinput")
    shared = bool(getattr(config.option, "numprocesses", None))
    if path and not runs:
        config.pluginmanager.register(Recorder(Path(path), grouped=shared), "cbp-outcomes")
    if runs or not shared:
        config.add_cleanup(_own_temporary_folder())
        config.pluginmanager.register(Leftovers(), "cbp-leftovers")
        config.pluginmanager.register(ServiceLogs(), "cbp-service-logs")


def _own_temporary_folder() -> Callable[[], None]:
    """Give a test process its own, so that a file left behind has one who left it.

    Returns:
        A function that removes the folder and gives the former one back.
    """
    former = os.environ.get("TMPDIR")
    folder = tempfile.mkdtemp(prefix="cbp-")
    Path(folder).chmod(0o711)  # PostgreSQL, which does not run as root, has its data in it
    os.environ["TMPDIR"] = tempfile.tempdir = folder

    def end() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        tempfile.tempdir = None
        if former is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = former

    return end
