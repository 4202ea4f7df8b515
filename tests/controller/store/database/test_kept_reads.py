"""Values that were read stay until somebody commits, in any process, and not longer."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.store.database.connections import KeptReads

_WRITE_TWO = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("UPDATE t SET n = 2")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a database with a table of one number."""
    made = tmp_path / "a b?.db"
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (n)")
        connection.execute("INSERT INTO t VALUES (0)")
    return made


@pytest.fixture
def kept(path: Path) -> Iterator[KeptReads]:
    """Give what is kept of it."""
    with closing(KeptReads(path)) as made:
        yield made


def number(path: Path) -> int:
    """Read the number."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT n FROM t").fetchone()[0])


def write(path: Path, value: int) -> None:
    """Commit another number."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE t SET n = ?", (value,))


def test_a_value_is_read_once_until_somebody_commits(path: Path, kept: KeptReads) -> None:
    """In this process, or in another one; a read changes nothing, nor does a roll-back."""
    reads: list[int] = []

    def read() -> int:
        reads.append(number(path))
        return reads[-1]

    assert [kept.get("n", read) for _ in range(3)] == [0, 0, 0]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE t SET n = 9")
        connection.execute("ROLLBACK")
    assert kept.get("n", read) == 0
    assert len(reads) == 1
    write(path, 1)
    assert [kept.get("n", read) for _ in range(3)] == [1, 1, 1]
    subprocess.run([sys.executable, "-c", _WRITE_TWO, str(path)], check=True)
    assert [kept.get("n", read), kept.get("n", read)] == [2, 2]
    assert reads == [0, 1, 2]


def test_what_is_committed_during_a_read_is_seen_by_the_next(path: Path, kept: KeptReads) -> None:
    """The value may be from before or after it, so it is not kept."""

    def read_late() -> int:
        value = number(path)
        write(path, value + 1)
        return value

    assert kept.get("n", read_late) == 0
    assert kept.get("n", lambda: number(path)) == 1


def test_an_error_is_not_kept(path: Path, kept: KeptReads) -> None:
    """The next one reads again."""
    with pytest.raises(ZeroDivisionError):
        kept.get("n", lambda: 1 // 0)
    assert kept.get("n", lambda: number(path)) == 0


def test_nothing_is_kept_without_a_stamp(path: Path, tmp_path: Path) -> None:
    """With another kind of database, with a file that is gone or is none, and after the end."""
    nowhere = KeptReads(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database, but long enough to look like one" * 100)
    closed = KeptReads(path)
    assert closed.stamp() is not None
    closed.close()
    for one in (KeptReads(None), nowhere, KeptReads(tmp_path / "text.db"), closed):
        assert one.stamp() is None
        assert [one.get("n", lambda: number(path)), one.get("n", lambda: 7)] == [0, 7]
    assert not (tmp_path / "none.db").exists(), "a look makes no database"


def test_no_reader_sees_less_than_was_committed_before_it_asked(
    path: Path, kept: KeptReads
) -> None:
    """Four threads read while one commits: no value is older than the last commit."""
    committed, wrong, ended = [0], list[tuple[int, int]](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            least = committed[0]
            if (value := kept.get("n", lambda: number(path))) < least:
                wrong.append((least, value))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for value in range(1, 60):
        write(path, value)
        committed[0] = value
    ended.set()
    for thread in threads:
        thread.join()
    assert not wrong
