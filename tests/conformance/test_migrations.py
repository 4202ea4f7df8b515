"""What every database must hold when the store brings it to its schema."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, inspect, text

from cbp.errors import OperatingError
from controller.store.base import open_store, open_unchanged
from controller.store.database.migrate import UPGRADE_LOCK, VERSION_TABLE, _config
from controller.store.errors import DatabaseNewerError
from controller.store.schema.tables import metadata
from tests.conformance.records import a_dataflow


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a database of its own; a SQLite file is not made yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a folder/cbp%20.db"
    made: str = request.getfixturevalue("new_postgres_database")()
    return made


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Connect past the store, as a foreign program does."""
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(exist_ok=True)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def test_the_migrations_make_the_tables_of_the_code(url: str) -> None:
    """What is deployed and what the statements are built from are the same schema."""
    open_store(url).close()
    options = {"compare_type": True, "version_table": VERSION_TABLE}
    with connected(url) as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_opening_again_keeps_everything(url: str) -> None:
    """A start of the service changes nothing in a database of its own version."""
    with closing(open_store(url)) as store:
        store.register(a_dataflow(), {"s": {"i": "a"}})
    with closing(open_store(url)) as store:
        assert store.dataflow("d") == a_dataflow()
        assert list(store.connectors("d")["s"]) == ["i"]


def test_a_newer_database_is_refused_and_left_alone(url: str) -> None:
    """Code never guesses at a schema that it does not know."""
    with closing(open_store(url)) as store:
        store.register(a_dataflow(), {})
    with connected(url) as connection:
        newest = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one()
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(DatabaseNewerError) as refused:
        open_store(url)
    assert refused.value.details["found"] == "9999"
    with connected(url) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{newest}'"))
    with closing(open_store(url)) as store:
        assert [record.name for record in store.dataflows()] == ["d"]


def test_reading_neither_makes_nor_upgrades_a_database(url: str, tmp_path: Path) -> None:
    """An earlier release may still serve it: SQLite is copied, PostgreSQL refused."""
    (tmp_path / "scratch").mkdir()
    with closing(open_unchanged(url, tmp_path / "scratch")) as store:
        assert store.dataflows() == []
    if url.startswith("sqlite"):
        assert not Path(url.removeprefix("sqlite:///")).parent.exists()
    with connected(url) as connection:
        assert inspect(connection).get_table_names() == []
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0010")
        before = inspect(connection).get_table_names()
    if url.startswith("sqlite"):
        with closing(open_unchanged(url, tmp_path / "scratch")) as store:
            assert store.dataflows() == []
    else:
        with pytest.raises(OperatingError, match="schema of an earlier release"):
            open_unchanged(url, tmp_path / "scratch")
    with connected(url) as connection:
        assert inspect(connection).get_table_names() == before
    with closing(open_store(url)) as store:
        store.register(a_dataflow(), {})
        with closing(open_unchanged(url, tmp_path / "scratch")) as other:
            assert [record.name for record in other.dataflows()] == ["d"]


def test_an_upgrade_that_fails_leaves_nothing(url: str) -> None:
    """All steps of an upgrade are one transaction, over a foreign table of a wanted name too."""
    with connected(url) as connection:
        connection.execute(text("CREATE TABLE claims (mine INTEGER)"))
    with pytest.raises(OperatingError):
        open_store(url)
    with connected(url) as connection:
        assert inspect(connection).get_table_names() == ["claims"]


@pytest.mark.service
def test_an_upgrade_waits_for_the_one_under_way(
    new_postgres_database: Callable[[], str],
) -> None:
    """A second process asks for the lock of all upgrades before it looks at the schema.

    test    BEGIN, takes the lock, sees the store wait for it, COMMIT
    store         asks for the lock ...........................      upgrades
    """
    url = new_postgres_database()
    waiters = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with ThreadPoolExecutor(1) as pool:
        with connected(url) as connection:
            take = text("SELECT pg_advisory_xact_lock(:key)")
            connection.execute(take, {"key": UPGRADE_LOCK})
            opening = pool.submit(open_store, url)
            while not connection.execute(waiters).scalar_one():
                assert not opening.done(), "it did not wait"
            assert inspect(connection).get_table_names() == []
        opening.result(60).close()


def test_processes_that_start_at_once_upgrade_once(url: str) -> None:
    """One of them makes the tables, the others wait for it; all can go on."""
    program = (
        "import sys; from controller.store.base import open_store; print('ready', flush=True);"
        "sys.stdin.readline(); s = open_store(sys.argv[1], exclusive=False);"
        "print(len(s.dataflows())); s.close()"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", program, url]
    root = Path(__file__).parents[2]
    processes = [subprocess.Popen(command, cwd=root, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in processes] == ["0\n"] * 2
