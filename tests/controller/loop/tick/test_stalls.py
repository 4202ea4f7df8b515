"""What takes long at one dataflow keeps no other from starting.

The thread that ticks never waits for what works on one dataflow: files read, a change, a purge of a
large folder, at a take-over too.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from controller.loop.operations import versions
from controller.loop.runs.threads import Threads
from tests.controller.retained import TINY
from tests.controller.world import ONE, World, only_stage, until

WAIT_SECONDS = 60


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two dataflows that are collected after every epoch."""
    removers = Threads("remove")
    made = World(tmp_path, engine=LocalEngine, retention=TINY, collect_every=1, removers=removers)
    for name in ("a", "b"):
        made.controller.register({**ONE, "name": name})
    yield made
    removers.shutdown()
    made.close()


def beside(work: Callable[[], Any]) -> threading.Thread:
    """Do something in another thread, which may hang."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ticked(world: World, most: int = 3) -> None:
    """Tick in another thread; fails when a tick blocks."""
    thread = beside(lambda: [world.controller.tick() for _ in range(most)])
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "a tick waits for what another dataflow does"


@contextmanager
def read_files(world: World, name: str) -> Iterator[None]:
    """Hold a dataflow as ingestion does while it reads a file."""
    begun, ended = threading.Event(), threading.Event()

    def read() -> None:
        with world.controller.exclusive(name, "has its files read"):
            begun.set()
            ended.wait(6 * WAIT_SECONDS)

    thread = beside(read)
    assert begun.wait(WAIT_SECONDS)
    try:
        yield
    finally:
        ended.set()
        thread.join(WAIT_SECONDS)


class Hanging:
    """In place of `shutil.rmtree`: waits until it is let go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self._remove = shutil.rmtree
        patch.setattr(shutil, "rmtree", self)

    def __call__(self, path: str, **more: Any) -> None:
        self.begun.set()
        self.ended.wait(6 * WAIT_SECONDS)
        self._remove(path, **more)


def test_a_file_that_is_read_for_long_stalls_no_other_dataflow(world: World) -> None:
    """A dataflow that is due for collection while its files are read waits for a later tick."""
    world.arrive("a", "a", ("x", 1))
    world.controller.tick()
    collected: list[str] = []
    keep = world.controller.housekeeping._keep

    def tell(name: str) -> None:
        collected.append(name)
        keep(name)

    world.controller.housekeeping._keep = tell  # type: ignore[method-assign]
    world.arrive("b", "a", ("x", 1))
    with read_files(world, "a"):
        ticked(world)
        assert only_stage(world, "b").epoch == 1
        assert collected == ["b"]
    ticked(world)
    assert collected == ["b", "a"], "due still, and done as soon as it is free"


def test_a_change_that_is_to_be_finished_waits_for_files_alone(world: World) -> None:
    """While it cannot be finished, other dataflows go on; then the next tick finishes it."""
    world.parts.holds.held["a"] = versions.UNFINISHED
    world.arrive("b", "a", ("x", 1))
    with read_files(world, "a"):
        ticked(world)
        assert only_stage(world, "b").epoch == 1
        assert list(world.controller.held) == ["a"]
    ticked(world)
    assert not world.controller.held


def test_a_large_folder_that_is_purged_stalls_no_other_dataflow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is free at once, and others run while its files are removed; then it is gone."""
    hanging = Hanging(monkeypatch)
    thread = beside(lambda: world.controller.delete("a", purge=True))
    assert hanging.begun.wait(WAIT_SECONDS)
    world.arrive("b", "a", ("x", 1))
    ticked(world)
    assert only_stage(world, "b").epoch == 1
    world.controller.register({**ONE, "name": "a"})
    assert len(list(Path(world.tables).iterdir())) == 3, "its files are there still"
    hanging.ended.set()
    thread.join(WAIT_SECONDS)
    assert sorted(path.name for path in Path(world.tables).iterdir()) == ["a", "b"]


def test_publishing_what_is_deleted_stalls_no_other_dataflow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published before a dataflow is forgotten keeps no tick from coming."""
    begun, ended = threading.Event(), threading.Event()
    publish = world.parts.run_commit.publish

    def hang(record: Any, **more: Any) -> None:
        if record.name == "a":
            begun.set()
            ended.wait(6 * WAIT_SECONDS)
        publish(record, **more)

    monkeypatch.setattr(world.parts.run_commit, "publish", hang)
    thread = beside(lambda: world.controller.delete("a"))
    assert begun.wait(WAIT_SECONDS)
    world.arrive("b", "a", ("x", 1))
    ticked(world)
    assert only_stage(world, "b").epoch == 1
    ended.set()
    thread.join(WAIT_SECONDS)
    assert [record.name for record in world.store.dataflows()] == ["b"]


def test_a_take_over_does_not_wait_for_a_purge_that_a_crash_cut_short(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery ends, and runs start, while what lost its name is removed beside them."""
    left = Path(world.tables) / ".purged-old-1"
    (left / "state").mkdir(parents=True)
    world.arrive("b", "a", ("x", 1))
    hanging = Hanging(monkeypatch)
    thread = beside(world.controller.recover)
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert hanging.begun.wait(WAIT_SECONDS)
    ticked(world)
    assert only_stage(world, "b").epoch == 1
    assert left.exists()
    hanging.ended.set()
    until(lambda: not left.exists())
