"""Increments of messages: name the files that resolve the messages' addresses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("increments", sa.Column("bindings", sa.Text))
