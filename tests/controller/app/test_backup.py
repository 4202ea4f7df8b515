"""A back-up and its way back, as `deploy/README.md` describes them; index copies are left alone.

A whole service in this process is stopped, its folder is copied, and it goes on before it is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controller.app import Service
from controller.settings import Settings, load_settings
from tests.controller.small_app import DOCUMENT, TOKEN, count, drop

WAIT_SECONDS = 120


def settings_of(root: Path) -> Settings:
    return load_settings(
        root=root,
        cache=root.parent / "cache",
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token=TOKEN,
        settle_seconds=0,
    )


@contextmanager
def served(root: Path) -> Iterator[Service]:
    """Run a service that leads, stepped by hand; it has recovered when this yields."""
    service = Service(settings_of(root))
    try:
        service.lead()
        yield service
    finally:
        service.stop()


def apply(service: Service, name: str, *urls: str) -> None:
    """Drop a file, and run what may run."""
    drop(service, *urls, name=name)
    for _ in range(2):  # a file is taken once two listings saw it alike
        service.scan()
    service.controller.tick()
    service.parts.in_flight.wait(timeout=WAIT_SECONDS)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A service's folder, with two files applied, and its back-up, with the first one."""
    root, backup = tmp_path / "root", tmp_path / "backup"
    with served(root) as service:
        service.controller.register(DOCUMENT)
        apply(service, "1.jsonl", "a")
        assert count(service, "a") == 1
    shutil.copytree(root, backup)
    with served(root) as service:
        apply(service, "2.jsonl", "a", "a")
        assert count(service, "a") == 3
    return root, backup


def database(folder: Path) -> Path:
    """The database's file; a service that was stopped leaves no journal beside it."""
    files = [path.name for path in folder.glob("cbp.db*")]
    assert sorted(files) == ["cbp.db", "cbp.db.lock"]
    return folder / "cbp.db"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_back_up_is_the_moment_at_which_it_was_made(folders: tuple[Path, Path]) -> None:
    """In the same place everything is as it was; what came later is dropped again, and applied."""
    root, backup = folders
    shutil.rmtree(root)
    shutil.copytree(backup, root)
    with served(root) as service:
        assert count(service, "a") == 1
        apply(service, "2.jsonl", "a", "a")
        assert count(service, "a") == 3
        apply(service, "1.jsonl", "a")  # the back-up has it: a retry
        assert count(service, "a") == 3


def test_an_older_database_catches_up_with_its_tables(folders: tuple[Path, Path]) -> None:
    """What is in the folders after it is indexed again when the service starts."""
    root, backup = folders
    shutil.copy2(database(backup), database(root))
    with served(root) as service:
        assert count(service, "a") == 3
        apply(service, "3.jsonl", "a")
        assert count(service, "a") == 4


def test_in_another_place_a_back_up_needs_a_new_database(folders: tuple[Path, Path]) -> None:
    """Rebuilt from its own folders it goes on there, and leaves the first place alone."""
    root, backup = folders
    other = root.with_name("other")
    shutil.copytree(backup, other)
    database(other).unlink()
    before = contents(root)
    with served(other) as service:
        assert service.controller.rebuild(()) == ["urls"]
        assert count(service, "a") == 1
        apply(service, "2.jsonl", "a", "b")
        assert (count(service, "a"), count(service, "b")) == (2, 1)
    assert contents(root) == before


def test_a_copy_that_would_work_in_the_first_place_says_so(folders: tuple[Path, Path]) -> None:
    """With the copied database it warns at the start; in the first place nothing does."""
    root, backup = folders
    other = root.with_name("other")
    shutil.copytree(backup, other)
    warned = {}
    for place in (root, other):
        service = Service(settings_of(place))
        with capture_logs() as logs:
            service.start()
            service.stop()
        warned[place] = [
            (one["dataflow"], one["folder"])
            for one in logs
            if one["event"] == "dataflow.tables_elsewhere"
        ]
    assert warned == {root: [], other: [("urls", f"{root}/tables/urls")]}
