"""Finds out whether a SQLite database is damaged, puts a damaged one aside; reads and copies one.

The database is a cache of what the folders of the tables say, so a damaged one is never repaired:
it is renamed, with its write-ahead log, and a new one is filled (`cbp recover --rebuild`). The
renamed files stay, for people who want to read the lists of runs and claims in them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from cbp.errors import OperatingError
from controller.store.database.connections import (
    files_of,
    parse_url,
    require_files,
    translate,
)
from controller.store.database.single_process import lock_file
from controller.store.errors import DatabaseDamagedError
from controller.store.schema.tables import dataflows

_NAMES = str(select(dataflows.c.name))
_TRIES = 1000
_HEADER = b"SQLite format 3\0"


def sqlite_path(url: str) -> Path | None:
    """Return the path of a SQLite database; `None` if the URL names a database of another kind.

    Raises `DatabaseUrlError`.
    """
    parsed = parse_url(url)
    return Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None


def damage_of(path: Path) -> str:
    """Return the damage of a SQLite database, by reading all of it.

    `""` if it is undamaged or absent. Also `""` if it cannot be read now, because it is locked
    or the disk fails; opening it raises that error. Changes nothing in it, but SQLite may leave
    its files `-shm` and `-wal`. A value that changed to another valid value is not noticed.
    """
    try:
        require_files(path, str(path))
        if not os.path.exists(path):
            return ""
        # `mode=ro` with a URI: a check must not create a database.
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except DatabaseDamagedError as error:
        return str(error.details["why"])
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and _has_header(path):
            return ""  # locked, or the disk fails: opening it raises that
        return str(error)
    return "" if verdict == "ok" else str(verdict)


def _has_header(path: Path) -> bool:
    """Return whether a file begins as a SQLite database; `True` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return True


def known_dataflows(path: Path) -> frozenset[str]:
    """Return the names of the dataflows in a SQLite database; empty if it cannot be read."""
    if not os.path.isfile(path):
        return frozenset()
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return frozenset(name for (name,) in connection.execute(_NAMES))
    except sqlite3.DatabaseError:
        return frozenset()


@contextmanager
def read_only(path: Path) -> Iterator[Connection]:
    """Open a SQLite database, which may be in use, for reading.

    Raises `DatabaseDamagedError`, `OperatingError`.
    """
    require_files(path, str(path))
    connect = partial(sqlite3.connect, f"{path.as_uri()}?mode=ro", uri=True)
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise translate(error, str(path)) from error


def copy_database(path: Path, target: Path) -> None:
    """Copy a SQLite database, which may be in use.

    Raises `DatabaseDamagedError`, `OperatingError`.
    """
    try:
        require_files(path, str(path))
        with (
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
    except sqlite3.Error as error:
        is_full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
        raise translate(error, str(target if is_full else path)) from error


def put_damaged_aside(url: str) -> tuple[Path, str] | None:
    """Rename a damaged database of SQLite; return its new path, and the damage.

    Returns `None` if it is undamaged, absent, or not of SQLite.
    Raises `DatabaseInUseError`, `OperatingError`.
    """
    path = sqlite_path(url)
    if path is None or not (why := damage_of(path)):
        return None
    try:
        lock = lock_file(path)
        try:
            aside = _free_name(path)
            # The database itself is renamed last: if this is interrupted, it is found damaged
            # again.
            for one, target in reversed(list(zip(files_of(path), files_of(aside), strict=True))):
                with suppress(FileNotFoundError):
                    one.rename(target)
        finally:
            os.close(lock)
    except OSError as error:
        message = f"{path} is damaged ({why}) and cannot be moved aside: {error.strerror or error}"
        raise OperatingError(message, path=str(path)) from error
    return aside, why


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in range(1, _TRIES))
    return next(name for name in names if not any(os.path.lexists(one) for one in files_of(name)))
