"""Stages: store the coded error that paused them, not only its message."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("stages", sa.Column("error", sa.Text))
