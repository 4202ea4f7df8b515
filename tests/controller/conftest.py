"""Worlds for tests that step the loop; logs go nowhere: a test asserts on what happened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import new_postgres_database, silent
from tests.controller.world import Deferred, World

__all__ = ["new_postgres_database", "silent"]


@pytest.fixture(autouse=True)
def _silent_again(silent: Callable[[], None]) -> None:
    """A test before this one may have set up the service's logs."""
    silent()


@pytest.fixture(scope="module")
def without_syncs() -> Iterator[None]:
    """Leave out the syncs: a crash inside a process loses nothing that was written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give a controller whose runs end within the tick that starts them."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def deferred(tmp_path: Path) -> Iterator[World]:
    """Give a controller whose runs end when the test says so."""
    made = World(tmp_path, executor=Deferred())
    yield made
    made.close()
