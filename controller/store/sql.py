"""The metadata store in SQL: `open_store` gives it, on SQLite or PostgreSQL.

Guarantees are those of `controller.store.base`; each method is one transaction.
Methods that write take the dataflow first (`holds`), so that those of one
dataflow are serial and those of different ones do not wait for each other where
the database can do that (PostgreSQL; SQLite has one writer).

    with closing(open_store("sqlite:///cbp.db")) as store:
        store.register(record, {"count": {"urls": "pages"}})

Not here: decisions. What to run, to retry or to pause is decided by the callers.
"""

from __future__ import annotations

from sqlalchemy import select

from cbp.engine.faults import NO_FAULTS, Faults
from controller.store.arrivals import Arrivals
from controller.store.base import Store
from controller.store.database import Database
from controller.store.forgetting import Forgetting
from controller.store.leases import Leases
from controller.store.migrate import migrate
from controller.store.positions import Positions
from controller.store.punctuations import Punctuations
from controller.store.registrations import Registrations
from controller.store.runs import Runs
from controller.store.versions import Versions

__all__ = ["SqlStore", "open_store"]


def open_store(url: str, *, faults: Faults = NO_FAULTS, exclusive: bool = True) -> SqlStore:
    """Open the store, after bringing its database to the schema of this version.

    Args:
        url: `sqlite:///<file>` (made when missing) or `postgresql://<user>@<host>/<name>`.
        faults: Told `sql_commit.before` and `sql_commit.after` at every writing method.
        exclusive: Refuse a SQLite file that is open in exclusive mode already, here or
            in another process; of no effect on PostgreSQL.

    Raises:
        DatabaseUrlError: The URL names no database that can be used.
        DatabaseInUseError: See `exclusive`.
        DatabaseNewerError: A newer version of the service wrote the database.
        OperatingError: The database does not answer, or the disk fails.
    """
    database = Database(url, faults=faults, exclusive=exclusive)
    try:
        migrate(database)
        store = SqlStore(database)
        if not store.shared:
            store.end_time_left()
    except BaseException:
        database.close()
        raise
    return store


class SqlStore(
    Registrations,
    Arrivals,
    Runs,
    Positions,
    Punctuations,
    Leases,
    Versions,
    Forgetting,
    Store,
):
    """See the module header; made by `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """See `Store.close`; may be called again."""
        self._database.close()

    def ping(self) -> None:
        """See `Store.ping`."""
        with self._database.read() as connection:
            connection.execute(select(1))
