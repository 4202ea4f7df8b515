"""Tokens, sessions, sign-in codes, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    time = sa.DateTime(timezone=True)
    op.create_table(
        "tokens",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("name", name, nullable=False),
        sa.Column("scope", name, nullable=False),
        sa.Column("prefix", name, nullable=False),
        sa.Column("sha256", name, nullable=False),
        sa.Column("dataflows", sa.Text),
        sa.Column("created_by", name, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("expires_at", time),
        sa.Column("last_used_at", time),
        sa.Column("revoked_at", time),
        sa.Column("rotated_at", time),
        sa.Column("old_sha256", name, nullable=False),
        sa.Column("old_until", time),
        sa.PrimaryKeyConstraint("seq", name="pk_tokens"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
    )
    op.create_index("ix_tokens_old_sha256", "tokens", ["old_sha256"])
    op.create_table(
        "sessions",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("id", name, nullable=False),
        sa.Column("sha256", name, nullable=False),
        sa.Column("token", name, nullable=False),
        sa.Column("mark", name, nullable=False),
        sa.Column("scope", name, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.Column("last_seen_at", time, nullable=False),
        sa.Column("address", name, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_sessions"),
        sa.UniqueConstraint("id", name="uq_sessions_id"),
        sa.UniqueConstraint("sha256", name="uq_sessions_sha256"),
    )
    op.create_index("ix_sessions_token", "sessions", ["token"])
    op.create_table(
        "sign_in_codes",
        sa.Column("sha256", name, nullable=False),
        sa.Column("token", name, nullable=False),
        sa.Column("mark", name, nullable=False),
        sa.Column("scope", name, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_sign_in_codes"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("at", time, nullable=False),
        sa.Column("actor", name, nullable=False),
        sa.Column("session", name, nullable=False),
        sa.Column("scope", name, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("action", name, nullable=False),
        sa.Column("outcome", name, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("error_code", name, nullable=False),
        sa.Column("dataflow", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("request", name, nullable=False),
        sa.Column("address", name, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
    for column in ("actor", "action", "dataflow", "outcome"):
        op.create_index(f"ix_audit_{column}_seq", "audit", [column, "seq"])
