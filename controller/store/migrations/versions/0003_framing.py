"""Framed inputs: store the state of their framing, and their frames."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("wiring", sa.Column("framing", sa.Text))
