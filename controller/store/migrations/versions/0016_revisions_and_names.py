"""Dataflows: a number that each change makes another one. Claims: the file of a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    # Readers keep what they read while the number stays.
    op.add_column(
        "dataflows", sa.Column("revision", sa.BigInteger, nullable=False, server_default="0")
    )
    columns = ["dataflow", "source", "path"]
    op.create_index(f"ix_claims_{'_'.join(columns)}", "claims", columns)
