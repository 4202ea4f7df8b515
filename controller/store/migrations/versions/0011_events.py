"""Events: rows that tell clients what changed."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    events = op.create_table(
        "events",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        *(
            sa.Column(column, name, nullable=False)
            for column in ("kind", "dataflow", "stage", "flow", "subject")
        ),
        sa.Column("count", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    texts = dict.fromkeys(("dataflow", "stage", "flow", "subject"), "")
    began = {"at_ms": time.time_ns() // 1_000_000, "kind": "stream.began", **texts, "count": 1}
    op.bulk_insert(events, [began])
