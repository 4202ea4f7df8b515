"""Leases: one row that says which instance leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

name = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    leases = op.create_table(
        "leases",
        sa.Column("name", name, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", name, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
        sa.UniqueConstraint("name", "epoch", name="uq_leases_name_epoch"),
    )
    nobody = {"name": "leader", "epoch": 0, "holder": "", "address": '""', "expires_ms": 0}
    op.bulk_insert(leases, [nobody])
