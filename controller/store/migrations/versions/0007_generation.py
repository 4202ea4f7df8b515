"""Dataflows: store the generation of their epochs, which a roll-back advances."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column(
        "dataflows", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0")
    )
