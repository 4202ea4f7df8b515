"""What earlier versions left behind opens, recovers and goes on: `tests/fixtures/earlier`.

Each was killed with an accepted file that not every stage had read, and another one that
was not accepted yet; the store is SQLite, PostgreSQL, or lost.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.app import Service
from controller.settings import load_settings
from tests.conformance.earlier_folders import moved, unpack
from tests.conformance.postgres import postgres_program
from tests.fixtures.earlier.write import HERE, NAME
from tests.system.workload import check_tables, pages
from tests.waiting import looks

WAIT_SECONDS = 120.0


def kept(database: str) -> list[str]:
    """Return all archives, the newest first: the default run plays it and a tenth of the others."""
    return sorted((path.name for path in HERE.glob(f"*-{database}.tar.xz")), reverse=True)


def test_every_schema_is_kept() -> None:
    """A migration without a store that it was written for is not tested."""
    versions = HERE.parents[2] / "controller" / "store" / "migrations" / "versions"
    schemas = sorted((path.name[:4] for path in versions.glob("[0-9]*.py")), reverse=True)
    for database in ("sqlite", "postgresql"):
        assert [name[:4] for name in kept(database)] == schemas


@pytest.mark.part(every=10)
@pytest.mark.parametrize("name", kept("sqlite"))
def test_a_service_on_sqlite_goes_on(tmp_path: Path, name: str) -> None:
    """Migrated, recovered, and the tables are those of an unbroken run."""
    unpack(tmp_path, name)
    url = f"sqlite:///{tmp_path}/cbp.db"
    moved(url, tmp_path)
    goes_on(tmp_path, url)


@pytest.mark.part(every=10)
@pytest.mark.parametrize("name", kept("sqlite"))
def test_a_lost_store_is_rebuilt_from_earlier_logs(tmp_path: Path, name: str) -> None:
    """Descriptions, records and entries of every version are understood."""
    unpack(tmp_path, name)
    for path in tmp_path.glob("cbp.db*"):
        path.unlink()
    goes_on(tmp_path, f"sqlite:///{tmp_path}/cbp.db", rebuilt=True)


@pytest.mark.part(every=10)
@pytest.mark.service
@pytest.mark.parametrize("name", kept("postgresql"))
def test_a_service_on_postgresql_goes_on(
    tmp_path: Path, name: str, new_postgres_database: Callable[[], str]
) -> None:
    """The same from the dump of a database."""
    unpack(tmp_path, name)
    url = new_postgres_database()
    command = [
        postgres_program("psql"),
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        f"--file={tmp_path}/store.sql",
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    moved(url, tmp_path)
    goes_on(tmp_path, url)


def goes_on(root: Path, url: str, *, rebuilt: bool = False) -> None:
    """Start a service on what was unpacked; let it work off what is there, and one more file."""
    given = sorted((root / "given").iterdir())
    with service_on(root, url) as service:
        if rebuilt:
            assert service.controller.rebuild() == [NAME]
            service.controller.recover()
        incoming = service.settings.drop_root / NAME / "pages" / "incoming"
        one_more = root / "one-more.jsonl"
        rows = pages(random.Random(1), len(given))
        one_more.write_text("".join(json.dumps(row) + "\n" for row in rows))
        shutil.copy(one_more, incoming)
        dropped = [json.loads(line) for file in (*given, one_more) for line in file.open()]
        for _ in looks(lambda: service.controller.waiting(NAME), pause_seconds=0):
            if all(s.epoch > len(given) for s in service.store.stages(NAME)):
                break
            service.scan()
            service.controller.tick()
            service.parts.in_flight.wait(timeout=WAIT_SECONDS)
        record = service.store.dataflow(NAME)
        check_tables(service.controller.dataflow(NAME), record.folder, dropped)


@contextmanager
def service_on(root: Path, url: str) -> Iterator[Service]:
    """Give a service that leads; its threads do not run, and it starts no processes."""
    settings = load_settings(
        root=root,
        database_url=url,
        engine="local",
        settle_seconds=0,
        reader_processes=False,
        worker_processes=False,
    )
    service = Service(settings)
    try:
        service.lead()
        yield service
    finally:
        service.stop()
