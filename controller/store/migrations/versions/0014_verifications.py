"""Results of verifications; an index of the files in quarantine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "verifications",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("id", name, nullable=False),
        sa.Column("dataflow", name, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_verifications"),
        sa.UniqueConstraint("id", name="uq_verifications_id"),
        sa.ForeignKeyConstraint(
            ["dataflow"], ["dataflows.name"], name="fk_verifications_dataflows"
        ),
    )
    op.create_index("ix_verifications_dataflow_seq", "verifications", ["dataflow", "seq"])
    quarantined = sa.text("status = 'quarantined'")
    op.create_index(
        "ix_claims_quarantined",
        "claims",
        ["dataflow", "source"],
        sqlite_where=quarantined,
        postgresql_where=quarantined,
    )
