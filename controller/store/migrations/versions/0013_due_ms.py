"""Stages: a time before which no timer of theirs is due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("stages", sa.Column("due_ms", sa.BigInteger))
