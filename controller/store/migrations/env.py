"""Alembic environment: runs migrations in the transaction of `controller.store.database.migrate`.

To write a new one: copy the newest file of `versions/`, give it the next number and
`down_revision`, and change `schema/tables.py` to match. A test compares both.
"""

from __future__ import annotations

from alembic import context

from controller.store.database.migrate import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
# No `begin_transaction`: the caller's transaction holds all steps together.
context.run_migrations()
