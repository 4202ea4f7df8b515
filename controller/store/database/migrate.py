"""Migration: brings a database to the schema of this version, or refuses it.

Guarantees: the upgrade is one transaction; if two processes start at once, one
upgrades and the other waits; a database of a newer version is left untouched.
Absent on purpose: downgrades; restore a backup instead.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Literal

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from controller.store.database.connections import Database
from controller.store.errors import DatabaseNewerError

VERSION_TABLE = "cbp_schema_version"
# The advisory lock of all upgrades; arbitrary, but the same in every version.
UPGRADE_LOCK = 0x_CB_95_70_12
# Alembic keeps its context in module globals, so one migration runs at a time.
_alembic_in_use = threading.Lock()


def migrate(database: Database) -> None:
    """Upgrade to the newest schema; does nothing if the database has it already.

    Raises `DatabaseNewerError`, `OperatingError`.
    """
    with _alembic_in_use, database.write_schema() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        if schema_of(connection, database.label) == "newest":
            return
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def schema_of(connection: Connection, label: str) -> Literal["newest", "earlier", "none"]:
    """Return which schema a database has. Raises `DatabaseNewerError`; `label` names the database.

    Changes nothing.
    """
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    known, newest = _revisions()
    heads = context.get_current_heads()
    for head in heads:
        if head not in known:
            raise DatabaseNewerError(label, head, newest or "none")
    if heads == (newest,):
        return "newest"
    return "earlier" if heads else "none"


@cache
def _revisions() -> tuple[frozenset[str], str | None]:
    """Return all revisions of this code, and the newest; cached, as reading imports each one."""
    script = ScriptDirectory.from_config(_config())
    revisions = frozenset(revision.revision for revision in script.walk_revisions())
    return revisions, script.get_current_head()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "controller.store:migrations")
    return config
