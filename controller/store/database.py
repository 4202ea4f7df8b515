"""The database below the store: connections, transactions, errors, the lock file.

Guarantees, on SQLite and PostgreSQL alike:

- A transaction that writes is serial with every other one that writes to the same
  dataflow: SQLite takes its one write lock at BEGIN, PostgreSQL the dataflow's row.
- What is committed is on disk: SQLite runs with WAL and `synchronous=FULL`;
  PostgreSQL's `synchronous_commit` is left as its operator set it.
- No exception of SQLAlchemy or of a driver leaves a transaction; no message holds
  a password.

Not guaranteed: that a commit which raised did not happen. When the connection to
PostgreSQL breaks during COMMIT, nobody can know; callers repeat what is idempotent.

One process serves a SQLite database, enforced by a lock file beside it. The lock
belongs to the open file, so a killed process leaves none behind. On PostgreSQL a process
that stops in the middle of a transaction, and so holds others up, loses it after
`STUCK_SECONDS`; connections whose other end is gone are noticed in about that time. One that
takes everything and answers nothing is given up after `ANSWER_SECONDS` (`patience.py`), a wait for
another one's lock in a writing transaction after `LOCK_SECONDS`.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    insert,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, SQLAlchemyError

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.errors import AlreadyExistsError, CbpError, DiskFullError, InvariantError, OperatingError
from controller.store.errors import DatabaseInUseError, DatabaseUrlError

__all__ = ["Database", "insert_new"]

BUSY_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_SECONDS = 10
STUCK_SECONDS = 3
"""Of two transactions of a stopped process, one can wait for the other: a take-over waits twice."""
LOCK_SECONDS = 8
"""Longer than whoever stopped keeps a lock, and shorter than `ANSWER_SECONDS`, to be told why."""
ANSWER_SECONDS = 10.0
_REMOTE = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    # A machine that vanished says nothing: without these a read of its answer lasts for hours.
    "keepalives_idle": STUCK_SECONDS,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 2 * STUCK_SECONDS * 1000,
}
_SQLITE_PRAGMAS = (
    # First, so that the others wait for a process that is starting too.
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
)
_WRITES = "cbp_writes"
# Within the transaction, so that it works behind a pooler of connections too.
_GIVE_UP_WHEN_STUCK = text(
    f"SELECT set_config('idle_in_transaction_session_timeout', '{STUCK_SECONDS}s', true), "
    f"set_config('lock_timeout', '{LOCK_SECONDS}s', true)"
)


class Database:
    """Hands out transactions; safe to use from several threads.

    Args:
        url: `sqlite:///<file>` or `postgresql://...`.
        exclusive: Refuse when another process serves the same SQLite file.
        answer_seconds: How long PostgreSQL may say nothing while it is waited for.

    Attributes:
        fence: Called first in every writing transaction; may refuse it.

    Raises:
        DatabaseUrlError: The URL names no database that can be used.
        DatabaseInUseError: Another process serves this SQLite file.
    """

    def __init__(
        self,
        url: str,
        *,
        faults: Faults = NO_FAULTS,
        exclusive: bool = True,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        parsed = _parse(url)
        self.label = parsed.render_as_string(hide_password=True)
        self._fault = faults
        self.fence: Callable[[Connection], None] | None = None
        self._lock_file: int | None = None
        self._is_sqlite = parsed.get_backend_name() == "sqlite"
        if self._is_sqlite:
            with self._translated():
                self._lock_file = _prepare(Path(str(parsed.database)).absolute(), exclusive)
        self._engine = _engine(parsed, self.label, answer_seconds)
        self._reader, self._writer = self._engine, self._engine
        if self._is_sqlite:
            self._writer = self._engine.execution_options(**{_WRITES: True})
        else:
            # Said, not assumed: an operator may have set other defaults.
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
            self._writer = self._engine.execution_options(isolation_level="READ COMMITTED")
            self._single = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        # SQLite's own queue of writers polls; this one wakes the next at once.
        self._turn = threading.Lock() if self._is_sqlite else nullcontext()

    @property
    def exclusive(self) -> bool:
        """Whether no other process can serve this database."""
        return self._lock_file is not None

    def close(self) -> None:
        """Close connections and give up the lock; may be called again."""
        self._engine.dispose()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the database and writes nothing."""
        with self._translated(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, fenced: bool = True) -> Iterator[Connection]:
        """Open a transaction that is committed as a whole, or not at all on an exception.

        Failpoints: `sql_commit.before`, `sql_commit.after`.

        Args:
            fenced: Ask `fence` first; only what decides about the fence itself does not.
        """
        with self._translated(), self._turn, self._writer.begin() as connection:
            if not self._is_sqlite:
                connection.execute(_GIVE_UP_WHEN_STUCK)
            if fenced and self.fence is not None:
                self.fence(connection)
            yield connection
            self._fault("sql_commit.before")
        self._fault("sql_commit.after")

    @contextmanager
    def write_at_once(self) -> Iterator[Connection]:
        """Open what is committed with its only statement, whatever `fence` says.

        On PostgreSQL that takes two answers, of which one says that the connection works; `write`
        takes five. A wait for another one's lock ends with our patience.

        Failpoints: those of `write`.
        """
        if self._is_sqlite:
            with self.write(fenced=False) as connection:
                yield connection
            return
        self._fault("sql_commit.before")
        with self._translated(), self._single.connect() as connection:
            yield connection
        self._fault("sql_commit.after")

    @contextmanager
    def write_schema(self) -> Iterator[Connection]:
        """Like `write`, without failpoints: for migrations, before the store is open.

        They may take long, and wait for those of another process: here patience has no end.
        """
        with (
            self._translated(),
            self._turn,
            self._writer.begin() as connection,
            nullcontext() if self._is_sqlite else _without_end(connection),
        ):
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as exc:
            # A column type of ours refused a value: its error stands inside.
            if isinstance(refused := getattr(exc, "orig", None), CbpError):
                raise refused from refused.__cause__
            raise _translate(exc, self.label) from exc
        except sqlite3.Error as exc:
            raise _translate(exc, self.label) from exc
        except (OverflowError, UnicodeEncodeError) as exc:
            # SQLite's driver says so by itself; PostgreSQL's says it as a DataError.
            message = f"database {self.label} cannot hold a value: {exc}"
            raise InvariantError(message) from exc


def insert_new(
    connection: Connection, table: Table, values: dict[str, Any], *, kind: str, name: str
) -> None:
    """Insert a row of a name that must be free.

    Raises:
        AlreadyExistsError: If it is taken; names `kind` and `name`.
    """
    try:
        connection.execute(insert(table), values)
    except IntegrityError as exc:
        raise AlreadyExistsError(kind, name) from exc


def _parse(url: str) -> URL:
    """Return the URL with its driver; see `Database` for the errors."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as exc:
        # The text is not shown: what cannot be parsed may hold a password anywhere.
        raise DatabaseUrlError(url="***", why="it cannot be read") from exc
    label = parsed.render_as_string(hide_password=True)
    match parsed.get_backend_name():
        case "sqlite":
            if parsed.database in (None, "", ":memory:") or "mode" in parsed.query:
                raise DatabaseUrlError(label, "it is not kept in a file")
            return parsed.set(drivername="sqlite+pysqlite")
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise DatabaseUrlError(label, f"{other} is not supported")


def _engine(url: URL, label: str, answer_seconds: float) -> Engine:
    remote = url.get_backend_name() != "sqlite"
    arguments: dict[str, Any] = {}
    if remote:
        # What the operator's URL says wins.
        arguments = {name: value for name, value in _REMOTE.items() if name not in url.query}
    try:
        engine = create_engine(url, pool_pre_ping=remote, connect_args=arguments)
    except ModuleNotFoundError as exc:
        why = f"the driver {exc.name} is missing: pip install 'cbp[postgres]'"
        raise DatabaseUrlError(label, why) from exc
    if remote:
        _limit_patience(engine, answer_seconds)
    else:
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _limit_patience(engine: Engine, answer_seconds: float) -> None:
    # Only here: the driver is an extra.
    from controller.store.patience import PatientConnection

    def connect(_dialect: Any, _record: Any, cargs: Any, cparams: Any) -> PatientConnection:
        connection = PatientConnection.connect(*cargs, **cparams)
        connection.answer_seconds = answer_seconds
        return connection

    event.listen(engine, "do_connect", connect)


@contextmanager
def _without_end(connection: Connection) -> Iterator[None]:
    """Let a connection wait as long as an answer takes; afterwards as before."""
    driver: Any = connection.connection.driver_connection
    before, driver.answer_seconds = driver.answer_seconds, None
    try:
        yield
    finally:
        driver.answer_seconds = before


def _set_up_sqlite(dbapi_connection: Any, _record: Any) -> None:
    # The driver must not begin transactions by itself: `_begin_sqlite` does.
    dbapi_connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        dbapi_connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a writer that began by reading could not get the write lock later
    # without giving up what it read.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare(path: Path, exclusive: bool) -> int | None:
    """Make the folder and the file; returns the lock file's descriptor if one is taken."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_wal(path)
        # Last of what can fail: nobody would give the lock up.
        return _lock(path) if exclusive else None
    except OSError as exc:
        message = f"{path} cannot be opened: {exc.strerror}"
        raise OperatingError(message, path=str(path)) from exc


def _make_wal(path: Path) -> None:
    """Turn a database's journal to WAL, for good; does nothing when it is so already.

    The turn needs the whole file, and SQLite does not always wait for it. Of processes
    that start at once, one turns and the others wait for the lock on the folder.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    finally:
        os.close(folder)
    if mode != "wal":
        message = f"SQLite cannot use WAL here (it uses {mode}); choose a local file system"
        raise OperatingError(message, journal_mode=mode)


def _lock(path: Path) -> int:
    """Take the lock file of a database; returns its descriptor."""
    file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        holder = os.read(file, 20).decode(errors="replace").strip()
        os.close(file)
        raise DatabaseInUseError(str(path), holder) from exc
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _translate(exc: Exception, label: str) -> CbpError:
    """Return our error for SQLAlchemy's or the driver's; parameters are left out."""
    driver = getattr(exc, "orig", None) or exc
    cause = f"{type(driver).__name__}: {driver}"
    if (
        getattr(driver, "sqlite_errorname", "") == "SQLITE_FULL"
        or getattr(driver, "sqlstate", "") == "53100"
    ):
        return DiskFullError(label)
    if isinstance(exc, IntegrityError | DataError):
        return InvariantError(f"database {label} refused a value: {cause}", cause=cause)
    return OperatingError(f"database {label} failed: {cause}", database=label, cause=cause)
