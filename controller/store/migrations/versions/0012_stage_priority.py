"""Stages: the priority that an operator gives them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    column = sa.Column("priority", name, nullable=False, server_default="normal")
    op.add_column("stages", column)
