"""The database of the store: connections, transactions, errors.

Guarantees, on SQLite and PostgreSQL alike:

- A writing transaction is serial with every other one that writes to the same
  dataflow: SQLite takes its one write lock at BEGIN, PostgreSQL locks the dataflow's row.
- What is committed is on disk: SQLite runs with WAL and `synchronous=FULL`;
  PostgreSQL's `synchronous_commit` is left as its operator set it.
- No exception of SQLAlchemy or of a driver leaves a transaction; no message holds
  a password.

Not guaranteed: that a commit which raised did not happen. If the connection to
PostgreSQL breaks during COMMIT, the outcome is unknown; callers repeat idempotent work.

One process serves a SQLite database (`single_process.py`). PostgreSQL's limits of time are in
README.md.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Executable,
    Row,
    Table,
    create_engine,
    event,
    insert,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, SQLAlchemyError

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.errors import (
    AlreadyExistsError,
    CbpError,
    DiskFullError,
    InvariantError,
    NotFoundError,
    OperatingError,
)
from controller.store.database.single_process import lock_file
from controller.store.errors import DatabaseDamagedError, DatabaseSilentError, DatabaseUrlError

Stamp = tuple[int, int]
"""Two equal stamps of a database mean that nothing was committed in between."""

KEPT_MAX = 10_000


class KeptReads:
    """Caches values read from a SQLite database until any process commits to it; thread-safe.

    For each connection, SQLite counts the commits of all others, including those of other
    processes (`PRAGMA data_version`). Reading the count takes 5 us; the cheapest query takes thirty
    times as long. PostgreSQL has no count that costs less than a query, so nothing is cached there.

    Invariant: the value that `get` returns is at least as new as the result of a query that begins
    when `get` is called (tests/controller/store/database/test_kept_reads.py).

    Args:
        path: The database, which exists; `None` caches nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self._seen: Stamp | None = None
        self._values: dict[Hashable, Any] = {}

    def stamp(self) -> Stamp | None:
        """Return a stamp of this moment; `None` if there is none, so that nothing can be kept."""
        with self._lock:
            return self._stamp()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached value of a key if nothing was committed since; otherwise read it.

        Every call with a key passes an equal `read`, and no caller modifies the value.
        """
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen or len(self._values) > KEPT_MAX:
                self._seen, self._values = stamp, {}
            values = self._values
            if key in values:
                value: T = values[key]
                return value
        value = read()
        if stamp is not None:
            # Stored under the stamp from before the read: if that has changed, no caller sees it.
            values[key] = value
        return value

    def close(self) -> None:
        """Stop caching."""
        with self._lock:
            self._path, self._seen, self._values = None, None, {}
            self._disconnect()

    def _stamp(self) -> Stamp | None:
        if self._path is None:
            return None
        try:
            if self._connection is None:
                # A separate connection, which never commits: its own commits would not count.
                self._connection = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=rw",
                    uri=True,
                    timeout=0,
                    isolation_level=None,
                    check_same_thread=False,
                )
                self._opened += 1
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:  # the read that follows reports it
            self._disconnect()
            return None
        return self._opened, version

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_SECONDS = 10
STUCK_SECONDS = 3
"""A stalled process may have two transactions that wait for each other: a take-over waits twice."""
LOCK_SECONDS = 8
"""Longer than a stalled process keeps a lock; shorter than `ANSWER_SECONDS`, to get its error."""
ANSWER_SECONDS = 10.0
_REMOTE = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    # A machine that vanished sends nothing: without the keep-alives a read would wait for hours.
    "keepalives_idle": STUCK_SECONDS,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 2 * STUCK_SECONDS * 1000,
}
_SECRET = re.compile(r"(?i)pass|secret|token|key")
_SQLITE_PRAGMAS = (
    # First, so that the other pragmas wait for another process that is starting.
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_WRITES, _ONCE = "cbp_writes", "cbp_once"
# Inside the transaction, so that it also works behind a connection pooler.
_GIVE_UP_WHEN_STUCK = text(
    f"SELECT set_config('idle_in_transaction_session_timeout', '{STUCK_SECONDS}s', true), "
    f"set_config('lock_timeout', '{LOCK_SECONDS}s', true)"
)


class Database:
    """Provides transactions; safe to use from several threads.

    Args:
        exclusive: Refuse if another process serves the same SQLite file.
        answer_seconds: How long to wait for PostgreSQL while it sends nothing.

    Attributes:
        fence: Called first in every writing transaction; may refuse it.

    Raises `DatabaseUrlError`, `DatabaseDamagedError`, `DatabaseInUseError`.
    """

    def __init__(
        self,
        url: str,
        *,
        faults: Faults = NO_FAULTS,
        exclusive: bool = True,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        parsed = parse_url(url)
        self.label = _masked(parsed)
        self._fault = faults
        self.fence: Callable[[Connection], None] | None = None
        self._lock_file: int | None = None
        self._is_sqlite = parsed.get_backend_name() == "sqlite"
        self.kept = KeptReads(None)
        if self._is_sqlite:
            path = Path(str(parsed.database)).absolute()
            require_files(path, self.label)
            with self._translated():
                self._lock_file = _prepare(path, exclusive)
            self.kept = KeptReads(path)
        self._engine = _engine(parsed, self.label, answer_seconds)
        self._reader, self._writer = self._engine, self._engine
        if self._is_sqlite:
            self._writer = self._engine.execution_options(**{_WRITES: True})
            self._single = self._engine.execution_options(**{_ONCE: True})
        else:
            # Set explicitly: an operator may have set other defaults.
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
            self._writer = self._engine.execution_options(isolation_level="READ COMMITTED")
            self._single = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        # SQLite's own writers poll for the lock; this lock wakes the next writer at once.
        self._turn = threading.Lock() if self._is_sqlite else nullcontext()

    @property
    def exclusive(self) -> bool:
        """Whether no other process can serve this database."""
        return self._lock_file is not None

    def close(self) -> None:
        """Close connections and release the lock; may be called again."""
        self.kept.close()
        self._engine.dispose()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one snapshot of the database and writes nothing."""
        with self._translated(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def read_once(self) -> Iterator[Connection]:
        """Open a connection for a single statement, which sees one snapshot of the database.

        It takes half the time of `read`, since it begins no transaction.
        """
        with self._translated(), self._single.connect() as connection:
            yield connection

    def rows(self, query: Executable, build: Callable[[Row[Any]], T], **values: Any) -> list[T]:
        """Return the rows of a statement's result; `values` are its parameters."""
        with self.read_once() as connection:
            return [build(row) for row in connection.execute(query, values or None)]

    def row(self, query: Executable, build: Callable[[Row[Any]], T], **values: Any) -> T | None:
        """Return the first row of a statement's result; `None` if there is none."""
        with self.read_once() as connection:
            row = connection.execute(query, values or None).first()
        return None if row is None else build(row)

    def one(
        self, query: Executable, build: Callable[[Row[Any]], T], kind: str, id_: str, **values: Any
    ) -> T:
        """Like `row`; raises `NotFoundError`, with a description of the row, if there is none."""
        if (found := self.row(query, build, **values)) is None:
            raise NotFoundError(kind=kind, name=id_)
        return found

    @contextmanager
    def write(self, *, fenced: bool = True) -> Iterator[Connection]:
        """Open a transaction, which is rolled back on an exception.

        Failpoints: `sql_commit.before`, `sql_commit.after`.

        Args:
            fenced: Call `fence` first; `False` only for rows that every instance writes: the
                lease, and credentials (`controller.store.access`).
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
        """Open a connection for a single statement, which is committed at once, without the fence.

        On PostgreSQL this takes two round trips, one of them to check the connection; `write`
        takes five. A wait for another transaction's lock ends after `ANSWER_SECONDS`.

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
        """Like `write`, without failpoints and time limits: for migrations.

        Migrations may take long, or wait for the migrations of another process.
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
            # A column type of ours refused a value: its error is the cause.
            if isinstance(refused := getattr(exc, "orig", None), CbpError):
                raise refused from refused.__cause__
            raise translate(exc, self.label) from exc
        except sqlite3.Error as exc:
            raise translate(exc, self.label) from exc
        except (OverflowError, UnicodeEncodeError) as exc:
            # SQLite's driver raises these itself; PostgreSQL's raises a DataError.
            message = f"database {self.label} cannot store a value: {exc}"
            raise InvariantError(message) from exc


def insert_new(
    connection: Connection, table: Table, values: dict[str, Any], *, kind: str, name: str
) -> None:
    """Insert a row whose name must be free. Raises `AlreadyExistsError`."""
    try:
        connection.execute(insert(table), values)
    except IntegrityError as exc:
        raise AlreadyExistsError(kind, name) from exc


def parse_url(url: str) -> URL:
    """Return a database URL with its driver. Raises `DatabaseUrlError`."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Show no part of it: an unparsable URL can contain a password anywhere.
        raise DatabaseUrlError(url="***", why="it is not a valid database URL") from None
    if "@" in (parsed.host or ""):  # the end of a password
        why = "its password contains '@'; write that as %40"
        raise DatabaseUrlError(url="***", why=why)
    label = _masked(parsed)
    match parsed.get_backend_name():
        case "sqlite":
            if parsed.database in (None, "", ":memory:") or "mode" in parsed.query:
                raise DatabaseUrlError(label, "a SQLite database must be a plain file")
            return parsed.set(drivername="sqlite+pysqlite")
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise DatabaseUrlError(label, f"{other} is not supported")


def _masked(url: URL) -> str:
    """Return a URL for messages: without a password, even if a parameter holds one."""
    secret = {name: "***" for name in url.query if _SECRET.search(name)}
    return url.update_query_dict(secret).render_as_string(hide_password=True)


def _engine(url: URL, label: str, answer_seconds: float) -> Engine:
    remote = url.get_backend_name() != "sqlite"
    arguments: dict[str, Any] = {}
    if remote:
        # Parameters in the operator's URL take precedence.
        arguments = {name: value for name, value in _REMOTE.items() if name not in url.query}
    try:
        engine = create_engine(url, pool_pre_ping=remote, connect_args=arguments)
    except ModuleNotFoundError as exc:
        why = f"the driver {exc.name} is not installed (pip install 'cbp[postgres]')"
        raise DatabaseUrlError(label, why) from exc
    if remote:
        _limit_patience(engine, answer_seconds)
    else:
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _limit_patience(engine: Engine, answer_seconds: float) -> None:
    # Imported here: the driver is an optional extra.
    from controller.store.database.postgres_timeouts import TimedConnection

    def connect(_dialect: Any, _record: Any, cargs: Any, cparams: Any) -> TimedConnection:
        connection = TimedConnection.connect(*cargs, **cparams)
        connection.answer_seconds = answer_seconds
        return connection

    event.listen(engine, "do_connect", connect)


@contextmanager
def _without_end(connection: Connection) -> Iterator[None]:
    """Lift a connection's time limit for answers; restore it afterwards."""
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
    # IMMEDIATE: a writer that began by reading could only get the write lock later by
    # discarding what it read.
    options = connection.get_execution_options()
    if not options.get(_ONCE, False):
        writes = options.get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare(path: Path, exclusive: bool) -> int | None:
    """Make the folder and the file; return the lock file's descriptor if it is taken."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_wal(path)
        # Last of the steps that can fail: otherwise the lock would never be released.
        return lock_file(path) if exclusive else None
    except OSError as exc:
        message = f"{path} cannot be opened: {exc.strerror}; `cbp doctor` says what to do"
        raise OperatingError(message, path=str(path)) from exc


def files_of(path: Path) -> list[Path]:
    """Return the paths of a SQLite database: its file, its write-ahead log, the log's index."""
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]


def require_files(path: Path, label: str) -> None:
    """Refuse a path that is not a file, before SQLite opens it, since a FIFO would block.

    Raises `DatabaseDamagedError`.
    """
    for one in files_of(path):
        if os.path.lexists(one) and not one.is_file():
            why = f"{one} is not a file but a folder, a FIFO, or a dangling link"
            raise DatabaseDamagedError(label, why)


def _make_wal(path: Path) -> None:
    """Switch a database to WAL permanently; does nothing if it is already switched.

    The switch needs exclusive access to the file, and SQLite does not always wait for that.
    If several processes start at once, one switches, and the others wait for the folder's lock.
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
        message = (
            f"SQLite cannot use a write-ahead log for {path} (journal mode {mode}); put the "
            "database on a local file system"
        )
        raise OperatingError(message, journal_mode=mode)


def translate(exc: Exception, label: str) -> CbpError:
    """Convert an error of SQLAlchemy or the driver to one of ours, without parameter values."""
    driver = getattr(exc, "orig", None) or exc
    cause = f"{type(driver).__name__}: {driver}"
    if (
        getattr(driver, "sqlite_errorname", "") == "SQLITE_FULL"
        or getattr(driver, "sqlstate", "") == "53100"
    ):
        return DiskFullError(label.partition(":///")[2] or label)  # SQLite's file
    if getattr(driver, "is_silence", False):
        return DatabaseSilentError(label, str(driver))
    if getattr(driver, "sqlite_errorname", "").startswith(_DAMAGED):
        return DatabaseDamagedError(label, str(driver))
    if isinstance(exc, IntegrityError | DataError):
        return InvariantError(f"database {label} refused a value: {cause}", cause=cause)
    return OperatingError(f"database {label} failed: {cause}", database=label, cause=cause)
