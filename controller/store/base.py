"""The metadata store: everything the service knows besides the tables, on SQLite or PostgreSQL.

The store is an index over the intention logs and the source logs, which are stored beside the
tables and are the truth. Every method is one transaction: if it returns, all of it has happened; if
it raises, nothing has happened. Methods can be called from several threads. Times are aware and in
UTC; ids are opaque text.

Writing methods lock the dataflow first (`hold`): writers of one dataflow are serial. Writers of
different dataflows do not wait for each other on PostgreSQL; SQLite has only one writer.

    with closing(open_store("sqlite:///cbp.db")) as store:
        store.register(record, {"count": {"urls": "pages"}})

Absent on purpose: decisions. Callers decide what to run, to retry or to pause.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from sqlalchemy import select

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.errors import OperatingError
from controller.store.database.connections import Database
from controller.store.database.damage import copy_database, read_only, sqlite_path
from controller.store.database.migrate import migrate, schema_of
from controller.store.methods.arrivals import Arrivals
from controller.store.methods.credentials import AuditLog, Credentials
from controller.store.methods.events import Events
from controller.store.methods.forgetting import Forgetting
from controller.store.methods.frames import Frames
from controller.store.methods.gauges import Gauges
from controller.store.methods.leases import Leases
from controller.store.methods.positions import Positions
from controller.store.methods.registrations import Registrations, Versions
from controller.store.methods.runs import Runs
from controller.store.methods.sinks import Sinks
from controller.store.methods.verifications import Verifications
from controller.store.records import (
    PAUSED_BY_HAND,
    ClaimRecord,
    ClaimStatus,
    DataflowDesired,
    DataflowRecord,
    Desired,
    Event,
    EventCursor,
    EventKind,
    EventRecord,
    GaugeRows,
    IncrementRecord,
    Judged,
    Page,
    QueueGauge,
    RunRecord,
    StageGauge,
    StageRecord,
    Uploaded,
    VerificationRecord,
)
from controller.store.schema.tables import metadata

__all__ = [
    "PAUSED_BY_HAND",
    "ClaimRecord",
    "ClaimStatus",
    "DataflowDesired",
    "DataflowRecord",
    "Desired",
    "Event",
    "EventCursor",
    "EventKind",
    "EventRecord",
    "GaugeRows",
    "IncrementRecord",
    "Judged",
    "Page",
    "QueueGauge",
    "RunRecord",
    "StageGauge",
    "StageRecord",
    "Store",
    "Uploaded",
    "VerificationRecord",
    "open_beside",
    "open_scratch",
    "open_store",
    "open_unchanged",
]


def open_store(url: str, *, faults: Faults = NO_FAULTS, exclusive: bool = True) -> Store:
    """Open the store, after bringing its database to the schema of this version.

    Args:
        url: `sqlite:///<file>` (created if missing) or `postgresql://<user>@<host>/<name>`.
        faults: Called with `sql_commit.before` and `sql_commit.after` in every writing method.
        exclusive: Refuse a SQLite file that is already open in exclusive mode, here or in
            another process; no effect on PostgreSQL.

    Raises `DatabaseUrlError`, `DatabaseInUseError`, `DatabaseNewerError`, `OperatingError`.
    """
    database = Database(url, faults=faults, exclusive=exclusive)
    try:
        migrate(database)
        store = Store(database)
        if not store.shared:
            store.end_time_left()
    except BaseException:
        database.close()
        raise
    return store


def open_scratch(url: str) -> Store:
    """Open an empty temporary SQLite store, which needs no migration from earlier versions.

    The file of the URL is created. Raises `OperatingError`.
    """
    database = Database(url)
    try:
        with database.write_schema() as connection:
            metadata.create_all(connection)
    except BaseException:
        database.close()
        raise
    return Store(database)


def open_beside(url: str) -> Store:
    """Open the store beside the process that serves it and has upgraded it.

    Raises `DatabaseUrlError`, `OperatingError`.
    """
    return Store(Database(url, exclusive=False))


def open_unchanged(url: str, scratch: Path) -> Store:
    """Open the store for reading; its database is neither made nor upgraded.

    An earlier release may still serve the database. One of SQLite is then copied to the folder
    `scratch`, and the copy is upgraded. A missing database is read as an empty one.

    Raises `DatabaseUrlError`, `DatabaseDamagedError`, `DatabaseNewerError`; and `OperatingError`,
    also if PostgreSQL has the schema of an earlier release.
    """
    if (path := sqlite_path(url)) is None:
        return _unchanged_remote(url, scratch)
    copy = scratch / "copy.db"
    if path.exists():
        with read_only(path) as connection:
            schema = schema_of(connection, str(path))
        if schema == "newest":
            return open_beside(url)
        copy_database(path, copy)
    return open_store(f"sqlite:///{copy}", exclusive=False)


def _unchanged_remote(url: str, scratch: Path) -> Store:
    database = Database(url)
    try:
        with database.read() as connection:
            schema = schema_of(connection, database.label)
        if schema == "newest":
            return Store(database)
        if schema == "earlier":
            message = (
                f"database {database.label} has the schema of an earlier release, which reading it "
                "would upgrade; start the service, which upgrades it and recovers"
            )
            raise OperatingError(message, database=database.label)
    except BaseException:
        database.close()
        raise
    database.close()
    return open_scratch(f"sqlite:///{scratch / 'empty.db'}")


class Store(
    Registrations,
    Arrivals,
    Runs,
    Positions,
    Frames,
    Leases,
    Versions,
    Forgetting,
    Credentials,
    AuditLog,
    Events,
    Gauges,
    Sinks,
    Verifications,
):
    """See the module header; made by `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database, self._known, self._records = database, {}, {}

    def close(self) -> None:
        """Release connections."""
        self._database.close()

    def stamp(self) -> Hashable | None:
        """Return a stamp of this moment; an unchanged stamp means an unchanged store.

        `None` if the database has no stamps (PostgreSQL), so that changes are unknown.
        """
        return self._database.kept.stamp()

    def ping(self) -> None:
        """Raise `OperatingError` if the store cannot be used."""
        with self._database.read() as connection:
            connection.execute(select(1))
