"""Increments of messages name the files that tell whom their addresses reach."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("increments", sa.Column("bindings", sa.Text))
