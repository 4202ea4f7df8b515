"""Stages: count the epochs in a row that read nothing from outside their cycle."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("stages", sa.Column("turns", sa.BigInteger, nullable=False, server_default="0"))
