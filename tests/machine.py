"""What a test needs of the machine it runs on, and what happens where that is missing.

A test that needs a PostgreSQL server or a small disk is left out where there is none: skipped with
the reason. `CBP_REQUIRE=postgres,tmpfs,manuals` names what must be there: then the test fails
instead, so that a run cannot be green because it tested less (`.ci/run` sets it).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["leave_out", "needs", "needs_postgres_driver", "small_disk"]

NEEDS = ("postgres", "tmpfs", "manuals")
"""What `CBP_REQUIRE` may name."""


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
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Give a file system of its own, which only root may mount.

    Args:
        folder: Where it lies; is made.
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
