"""The catalog: code of plain files that is not that of a version, until the right one is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import CodeDriftedError
from cbp.model.author.source_modules import load_sources
from cbp.model.version.version_change import Choice
from tests.authored import write
from tests.controller.world import SCHEMA, Inline, World

TEXT = """
from cbp import Input, Translate, View


class {class_}(Translate):
    items = Input("word STRING, n BIGINT", route_by="word")
    sums = View("word STRING, n BIGINT", key="word")

    def translate(self, key, group, out):
        n = sum(row.n for row in group.sums)
        out.sums(key.word, n + sum({factor} * row.n for row in group.items))
"""
STAGES = {
    name: {"translator": class_, "inputs": {"items": "a"}, "fuse": False}
    for name, class_ in (("first", "FirstFiled"), ("second", "SecondFiled"))
}
DOCUMENT: dict[str, Any] = {"name": "d", "sources": {"a": {"schema": SCHEMA}}, "stages": STAGES}


def save(folder: Path, **factors: int) -> None:
    """Save the files of these translators; each multiplies by its factor."""
    texts = {
        f"filed_{name}.py": TEXT.format(class_=f"{name.title()}Filed", factor=factor)
        for name, factor in factors.items()
    }
    write(folder, texts)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A service that has registered two stages, of a file each, and applied an increment."""
    folder = tmp_path / "flows"
    folder.mkdir()
    save(folder, first=1, second=1)
    made = World(tmp_path, engine=LocalEngine, verifier=Inline())
    made.translator_files = [folder]
    made.restart()
    made.controller.register(DOCUMENT)
    made.arrive("d", "a", ("x", 1))
    made.ticks()
    yield made
    made.close()
    load_sources(str(folder), lambda _: None, [])


def sums(world: World, *stages: str, of: str = "d") -> list[int]:
    look_up = world.controller.reading.look_up
    found = [look_up(of, name, "sums", {"word": "x"}) for name in stages]
    return [rows[0]["n"] for rows in found]


def restart(world: World) -> None:
    world.restart()
    world.controller.recover()


def test_what_stopped_goes_on_once_its_file_is_as_it_was(world: World, tmp_path: Path) -> None:
    """Without a restart and a registration; another stage's file is not taken with it."""
    save(tmp_path / "flows", first=10)
    restart(world)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    assert sums(world, "first", "second") == [1, 2]
    save(tmp_path / "flows", second=10)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    assert sums(world, "first", "second") == [1, 3]
    save(tmp_path / "flows", first=1, second=1)
    world.ticks()
    assert sums(world, "first", "second") == [3, 3]


def test_a_broken_file_stops_nothing_that_ran_without_it(world: World, tmp_path: Path) -> None:
    """While one stage has drifted, files are looked at; one that cannot be loaded is left."""
    save(tmp_path / "flows", first=10)
    restart(world)
    write(tmp_path / "flows", {"filed_second.py": "def broken(:\n"})
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    write(tmp_path / "flows", {"filed_second.py": "from cbp import Input\n"})
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    assert sums(world, "first", "second") == [1, 3]
    save(tmp_path / "flows", first=1, second=1)
    world.ticks()
    assert sums(world, "first", "second") == [3, 3]


def test_an_instance_takes_over_the_code_that_another_one_registered(
    world: World, tmp_path: Path
) -> None:
    """It had loaded the files before, and reads and runs the new version without a restart."""
    other = world.parts
    other.catalog.require_same(world.store.dataflow("d"))
    restart(world)
    save(tmp_path / "flows", first=10)
    world.controller.change(DOCUMENT, choice=Choice(keep=frozenset({"first"})))
    record = world.store.dataflow("d")
    assert record.version == 2
    other.catalog.require_same(record)
    save(tmp_path / "flows", first=100)
    other.catalog.require_same(record)
    restart(world)
    with pytest.raises(CodeDriftedError):
        world.parts.catalog.require_same(record)


def test_the_other_dataflows_of_a_changed_file_are_named(world: World, tmp_path: Path) -> None:
    """They run the old code: it is the one that they were registered with."""
    world.controller.register({**DOCUMENT, "name": "e"})
    world.ticks()
    assert not world.controller.with_older_code("d")
    save(tmp_path / "flows", first=10)
    world.controller.change(DOCUMENT, choice=Choice(keep=frozenset({"first"})))
    assert world.controller.with_older_code("d") == ("e",)
    assert not world.controller.with_older_code("e")
    for name in ("d", "e"):
        world.arrive(name, "a", ("x", 1))
    world.ticks()
    assert sums(world, "first", "second") == [11, 2]
    assert sums(world, "first", "second", of="e") == [1, 1]


def test_a_rebuild_of_the_present_version_takes_its_own_code(world: World, tmp_path: Path) -> None:
    """Not what is on disk by then; if it is gone, the rebuild is refused."""
    save(tmp_path / "flows", first=10)
    jobs = world.controller.rebuild_jobs
    job = jobs.show("d", jobs.start_present("d").id)
    assert {(one.added, one.gone, one.changed) for one in job.tables} == {(0, 0, 0)}
    jobs.cancel("d", job.id)
    restart(world)
    with pytest.raises(CodeDriftedError):
        world.controller.rebuild_jobs.start_present("d")
