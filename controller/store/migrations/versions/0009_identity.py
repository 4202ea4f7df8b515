"""Claims: identify files by name and content, or by the Idempotency-Key of their upload."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.add_column("claims", sa.Column("request_key", name))
    op.add_column("claims", sa.Column("same_as", sa.Text))
    op.drop_index("ix_claims_dataflow_source_sha256", "claims")
    for column in ("request_key", "idx"):
        columns = ["dataflow", "source", column]
        op.create_index(f"ix_claims_{'_'.join(columns)}", "claims", columns)
    columns = ["dataflow", "source", "sha256", "path"]
    op.create_index(f"ix_claims_{'_'.join(columns)}", "claims", columns)
