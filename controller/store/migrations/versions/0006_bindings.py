"""Increments of messages name the files that tell whom their addresses reach."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("increments", sa.Column("bindings", sa.Text))
