"""Punctuations: what closed the open frames of a flow, and their count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

name = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column(
        "dataflows", sa.Column("punctuations", sa.BigInteger, nullable=False, server_default="0")
    )
    op.create_table(
        "punctuations",
        sa.Column("dataflow", name, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("flow", name, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("reason", name, nullable=False),
        sa.Column("key", name, nullable=False),
        sa.Column("closed_ms", sa.BigInteger, nullable=False),
        sa.Column("input", name, nullable=False),
        sa.PrimaryKeyConstraint("dataflow", "number", name="pk_punctuations"),
        sa.ForeignKeyConstraint(["dataflow"], ["dataflows.name"], name="fk_punctuations_dataflows"),
        sa.UniqueConstraint("dataflow", "key", name="uq_punctuations_dataflow_key"),
    )
