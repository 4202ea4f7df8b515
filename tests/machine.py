"""What a test needs of the machine it runs on, and what happens where that is missing.

A test that needs a PostgreSQL server or a small disk is left out where there is none: skipped with
the reason. `CBP_REQUIRE=postgres,tmpfs,manuals` names what must be there: then the test fails
instead, so that a run cannot be green because it tested less (`.ci/run` sets it).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = [
    "fill_disk",
    "folder_in_memory",
    "leave_out",
    "needs",
    "needs_postgres_driver",
    "small_disk",
]

NEEDS = ("postgres", "tmpfs", "manuals", "packages", "chromium", "promtool")
"""What `CBP_REQUIRE` may name."""
MEMORY_BYTES_MIN = 2**30


def leave_out(need: str, why: str) -> NoReturn:
    """Skip the test that asks, or fail it where the machine was said to have what it needs.

    Args:
        need: One of `NEEDS`.
        why: What is missing, and how a person gets it.
    """
    required = os.environ.get("CBP_REQUIRE", "").split(",")
    if unknown := {name for name in required if name} - set(NEEDS):
        pytest.fail(f"CBP_REQUIRE names {sorted(unknown)}; expected {NEEDS}", pytrace=False)
    if need in required:
        pytest.fail(f"CBP_REQUIRE names {need}, and it is missing: {why}", pytrace=False)
    pytest.skip(why)


@contextmanager
def needs(need: str, missing: type[Exception]) -> Iterator[None]:
    """Leave the test out when this is raised inside."""
    try:
        yield
    except missing as error:
        leave_out(need, str(error))


def needs_postgres_driver() -> None:
    """Leave the test out where Python cannot speak to PostgreSQL."""
    if importlib.util.find_spec("psycopg") is None:
        leave_out("postgres", "no driver; pip install 'cbp[postgres]'")


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Give a folder that is removed at the end; in memory, where the machine has room there.

    For a service whose tests do not ask what outlives a loss of power: it waits for no disk.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN
    with tempfile.TemporaryDirectory(
        prefix="cbp-", dir=memory if roomy else None, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Give a file system of its own, which only root may mount.

    Args:
        folder: Its path; is made.
        size: As `mount` takes it: `64k`, `48m`.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    with needs("tmpfs", OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        leave_out("tmpfs", f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_disk(disk: Path, *, left_bytes: int = 0) -> Path:
    """Fill a disk but for so many bytes; return the file that does."""
    ballast = disk / "ballast"
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(file, b"\0" * 4096):
            pass
    os.close(file)
    with suppress(OSError):
        os.truncate(ballast, max(0, ballast.stat().st_size - left_bytes))
    return ballast
