"""Migration: brings a database to the schema of this version, or refuses it.

Guarantees: the upgrade is one transaction; if two processes start at once, one
upgrades and the other waits; a database of a newer version is left untouched.
Absent on purpose: downgrades; restore a backup instead.
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
# The advisory lock of all upgrades; arbitrary, but the same in every version.
UPGRADE_LOCK = 0x_CB_95_70_12
# Alembic keeps its context in module globals.
_alembic_in_use = threading.Lock()


def migrate(database: Database) -> None:
    """Upgrade to the newest schema; does nothing if the database has it already.

    Raises:
        DatabaseNewerError: If a newer version of the service wrote the database.
        OperatingError: If the database cannot be used.
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
    for head in context.get_current_heads():
        if head not in known:
            raise DatabaseNewerError(label, head, script.get_current_head() or "none")
