"""Bring a database to the schema of this version, or refuse it.

Guarantees: the upgrade is one transaction; of two processes that start at once one
upgrades and the other waits; a database of a newer version is left untouched.
Absent on purpose: downgrades. A backup is the way back.
"""

from __future__ import annotations

import threading

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from controller.store.database import Database
from controller.store.errors import DatabaseNewerError

__all__ = ["UPGRADE_LOCK", "VERSION_TABLE", "migrate"]

VERSION_TABLE = "cbp_schema_version"
# Arbitrary, but the same in every version: the advisory lock of all upgrades.
UPGRADE_LOCK = 0x_CB_95_70_12
# Alembic keeps what it is working on in module globals.
_alembic_in_use = threading.Lock()


def migrate(database: Database) -> None:
    """Upgrade to the newest schema; does nothing when it is there already.

    Raises:
        DatabaseNewerError: A newer version of the service wrote the database.
        OperatingError: The database cannot be used.
    """
    config = Config()
    config.set_main_option("script_location", "controller.store:migrations")
    with _alembic_in_use, database.write_schema() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        _refuse_newer(connection, ScriptDirectory.from_config(config), database.label)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _refuse_newer(connection: Connection, script: ScriptDirectory, label: str) -> None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    known = {revision.revision for revision in script.walk_revisions()}
    for found in context.get_current_heads():
        if found not in known:
            raise DatabaseNewerError(label, found, script.get_current_head() or "none")
