"""How far sinks are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "sinks",
        sa.Column("dataflow", name, nullable=False),
        sa.Column("sink", name, nullable=False),
        sa.Column("identity", name, nullable=False),
        sa.Column("flow", name, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("next", sa.BigInteger, nullable=False),
        sa.Column("desired", name, nullable=False),
        sa.Column("choice", name, nullable=False),
        sa.Column("standing", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("dataflow", "sink", name="pk_sinks"),
        sa.ForeignKeyConstraint(["dataflow"], ["dataflows.name"], name="fk_sinks_dataflows"),
    )
