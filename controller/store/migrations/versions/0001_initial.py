"""Dataflows, stages, wiring, increments, queue, runs and claims."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
time = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "dataflows",
        sa.Column("name", name, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("desired", name, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_dataflows"),
    )
    op.create_table(
        "stages",
        sa.Column("dataflow", name, nullable=False),
        sa.Column("stage", name, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("waiting_since", time, nullable=False),
        sa.Column("memo", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("retry_at", time),
        sa.Column("paused_because", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("dataflow", "stage", name="pk_stages"),
        sa.ForeignKeyConstraint(["dataflow"], ["dataflows.name"], name="fk_stages_dataflows"),
    )
    op.create_table(
        "wiring",
        sa.Column("dataflow", name, nullable=False),
        sa.Column("stage", name, nullable=False),
        sa.Column("input", name, nullable=False),
        sa.Column("flow", name, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("dataflow", "stage", "input", name="pk_wiring"),
        sa.ForeignKeyConstraint(
            ["dataflow", "stage"], ["stages.dataflow", "stages.stage"], name="fk_wiring_stages"
        ),
    )
    op.create_index("ix_wiring_dataflow_flow", "wiring", ["dataflow", "flow"])
    op.create_table(
        "increments",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("dataflow", name, nullable=False),
        sa.Column("flow", name, nullable=False),
        sa.Column("idx", sa.BigInteger, nullable=False),
        sa.Column("framing_key", sa.Text, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_increments"),
        sa.ForeignKeyConstraint(["dataflow"], ["dataflows.name"], name="fk_increments_dataflows"),
        sa.UniqueConstraint("dataflow", "flow", "idx", name="uq_increments_dataflow_flow_idx"),
    )
    op.create_index("ix_increments_dataflow_seq", "increments", ["dataflow", "seq"])
    op.create_index("ix_increments_dataflow_flow_seq", "increments", ["dataflow", "flow", "seq"])
    op.create_table(
        "queue",
        sa.Column("dataflow", name, nullable=False),
        sa.Column("stage", name, nullable=False),
        sa.Column("input", name, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("flow", name, nullable=False),
        sa.Column("idx", sa.BigInteger, nullable=False),
        sa.Column("read_mark", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("dataflow", "stage", "input", "position", name="pk_queue"),
        sa.ForeignKeyConstraint(
            ["dataflow", "stage", "input"],
            ["wiring.dataflow", "wiring.stage", "wiring.input"],
            name="fk_queue_wiring",
        ),
        sa.ForeignKeyConstraint(
            ["dataflow", "flow", "idx"],
            ["increments.dataflow", "increments.flow", "increments.idx"],
            name="fk_queue_increments",
        ),
        sa.UniqueConstraint(
            "dataflow", "stage", "input", "idx", name="uq_queue_dataflow_stage_input_idx"
        ),
    )
    op.create_index("ix_queue_dataflow_flow_idx", "queue", ["dataflow", "flow", "idx"])
    op.create_table(
        "runs",
        sa.Column("id", name, nullable=False),
        sa.Column("dataflow", name, nullable=False),
        sa.Column("stage", name, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("status", name, nullable=False),
        sa.Column("read", sa.Text, nullable=False),
        sa.Column("remove", sa.Text, nullable=False),
        sa.Column("started_at", time, nullable=False),
        sa.Column("finished_at", time),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.ForeignKeyConstraint(
            ["dataflow", "stage"], ["stages.dataflow", "stages.stage"], name="fk_runs_stages"
        ),
    )
    op.create_index("ix_runs_status_id", "runs", ["status", "id"])
    op.create_index("ix_runs_dataflow_stage_id", "runs", ["dataflow", "stage", "id"])
    op.create_index("ix_runs_dataflow_id", "runs", ["dataflow", "id"])
    op.create_table(
        "claims",
        sa.Column("seq", serial, autoincrement=True, nullable=False),
        sa.Column("id", name, nullable=False),
        sa.Column("dataflow", name, nullable=False),
        sa.Column("source", name, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("status", name, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("sha256", name, nullable=False),
        sa.Column("idx", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("seq", name="pk_claims"),
        sa.ForeignKeyConstraint(["dataflow"], ["dataflows.name"], name="fk_claims_dataflows"),
        sa.UniqueConstraint("id", name="uq_claims_id"),
    )
    op.create_index(
        "ix_claims_dataflow_source_sequence", "claims", ["dataflow", "source", "sequence"]
    )
    op.create_index("ix_claims_dataflow_source_sha256", "claims", ["dataflow", "source", "sha256"])
    op.create_index("ix_claims_dataflow_seq", "claims", ["dataflow", "seq"])
