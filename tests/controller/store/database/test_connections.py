"""SQLite's settings, URLs that are refused, errors that are translated."""

from __future__ import annotations

import sqlite3
import sys
import traceback
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from cbp.errors import CbpError, DiskFullError, InvariantError, OperatingError
from controller.settings import Settings
from controller.store.base import open_store
from controller.store.database.connections import Database
from controller.store.errors import DatabaseUrlError
from tests.conformance.records import CHAIN, a_dataflow
from tests.machine import needs_postgres_driver


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Give the URL of a SQLite file that does not exist yet, nor does its folder."""
    return f"sqlite:///{tmp_path}/new folder/cbp.db"


@pytest.mark.parametrize(
    ("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)]
)
def test_every_connection_is_durable_and_checked(url: str, pragma: str, value: Any) -> None:
    """What is committed is on disk, and references are enforced, on every connection."""
    with closing(Database(url)) as database, database.read() as one, database.read() as two:
        for connection in (one, two):
            assert connection.execute(text(f"PRAGMA {pragma}")).scalar_one() == value


def test_a_writer_has_the_lock_from_its_beginning(url: str) -> None:
    """No other process can write between what a method reads and what it writes."""
    path = url.removeprefix("sqlite:///")
    with (
        closing(Database(url)) as database,
        database.write(),
        closing(sqlite3.connect(path, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")


def test_one_statement_needs_no_transaction(url: str) -> None:
    """Most reads are one statement, which is a snapshot by itself; others begin one first."""
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    with closing(open_store(url)) as store:
        store.register(a_dataflow("d"), CHAIN)
        event.listen(store._database._engine, "before_cursor_execute", hear)
        assert store.dataflow("d").name == "d"
        assert [one.stage for one in store.stages("d")] == sorted(CHAIN)
        assert [statement.split()[0] for statement in heard] == ["SELECT", "SELECT"]
        heard.clear()
        store.connectors("d")
        assert heard[0] == "BEGIN"


def test_a_single_statement_leaves_no_snapshot_behind(url: str) -> None:
    """The next statement on the same connection sees what was committed meanwhile."""
    with closing(open_store(url)) as store:
        store.register(a_dataflow("d"), CHAIN)
        assert store.dataflow("d").desired == "running"
        with closing(open_store(url, exclusive=False)) as other:
            other.set_desired("d", "paused")
        assert store.dataflow("d").desired == "paused"


def test_an_exception_takes_back_what_was_written(url: str) -> None:
    """A transaction that did not end well leaves nothing."""
    with closing(Database(url)) as database:
        with suppress(KeyError), database.write() as connection:
            connection.execute(text("CREATE TABLE t (x INTEGER)"))
            raise KeyError
        with database.read() as connection:
            assert connection.execute(text("SELECT name FROM sqlite_master")).all() == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "mysql://u:geheim@h/x",
        "postgresql://u:geheim@h:port/x",
        "geheim",
        "",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    """Nothing but a file or a server keeps what is acknowledged; no password is shown."""
    with pytest.raises(DatabaseUrlError) as refused:
        open_store(url)
    assert "geheim" not in repr(refused.value.as_dict())


def test_a_server_that_does_not_answer_is_worth_another_try() -> None:
    """A lost server is an operating failure: retryable, and silent about the password."""
    needs_postgres_driver()
    with pytest.raises(OperatingError) as failed:
        open_store("postgresql://cbp:geheim@127.0.0.1:1/cbp")
    assert failed.value.retryable
    assert "geheim" not in repr(failed.value.as_dict())


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver of PostgreSQL the message says what to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseUrlError, match=r"cbp\[postgres\]"):
        open_store("postgresql://cbp@127.0.0.1:1/cbp")


def test_a_full_disk_is_said_as_such(url: str) -> None:
    """No space left: nothing is stored, the error is the one for a full disk."""
    with closing(open_store(url)) as store:
        engine = store._database._engine
        engine.dispose()
        event.listen(
            engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count = 1"), named=False
        )
        with pytest.raises(DiskFullError):
            store.register(a_dataflow(document={"text": "x" * 1_000_000}), {})
        assert store.dataflows() == []


def test_a_value_that_no_column_holds_is_our_bug(url: str) -> None:
    """What the driver refuses by an exception of its own is translated too."""
    with closing(open_store(url)) as store:
        with pytest.raises(InvariantError):
            store.increment("d", "a", 2**70)
        with pytest.raises(InvariantError):
            store.dataflow("\ud800")


def test_a_folder_that_cannot_be_made_is_said_as_such(tmp_path: Path) -> None:
    """A file in the way of the folder is an operating failure that names the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatingError) as failed:
        open_store(f"sqlite:///{tmp_path}/file/cbp.db")
    assert failed.value.details["path"] == f"{tmp_path}/file/cbp.db"


def test_a_closed_store_can_be_closed_again(url: str) -> None:
    """Closing twice is no error."""
    store = open_store(url)
    store.close()
    store.close()


def test_ping_says_when_the_store_cannot_be_used(url: str) -> None:
    """A database that was damaged while open shows as an error of this library."""
    with closing(open_store(url)) as store:
        store.ping()
        store._database._engine.dispose()
        Path(url.removeprefix("sqlite:///")).write_bytes(b"damaged" * 1000)
        with pytest.raises(CbpError):
            store.ping()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://bob:s3cret@nowhere.invalid/x",
        "postgresql+psycopg://nowhere.invalid/x?user=bob&password=s3cret",
        "postgresql+psycopg://nowhere.invalid/x?sslpassword=s3cret",
        "postgresql+psycopg://bob:s3/s3cret@nowhere.invalid/x",
        "postgresql+psycopg://bob:s3#s3cret@nowhere.invalid/x",
        "postgresql+psycopg://bob:s3 s3cret@nowhere.invalid/x",
        "postgresql+psycopg://bob:s3@s3cret@nowhere.invalid/x",
        "postgresql+psycopg://bob@nowhere.invalid:s3cret/x",
        "mysql://bob:s3cret@nowhere.invalid/x",
        "host=nowhere.invalid password=s3cret",
    ],
)
def test_a_password_shows_nowhere(url: str) -> None:
    """Wherever it is in a URL: not in the error, nor in its causes, nor in the settings."""
    with pytest.raises(CbpError) as caught:
        open_store(url)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.as_dict())
    assert "s3cret" not in told
    assert "s3cret" not in str(Settings(database_url=url).effective())
