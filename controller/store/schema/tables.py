"""The tables of the metadata store and their column types, for SQLite and PostgreSQL.

    dataflows --< stages --< wiring --< queue >-- increments >-- dataflows
                     '----< runs                  claims >------'
                                           punctuations >------'
                                          verifications >------'
                                                  sinks >------'
    leases                                        (one row: which instance leads)
    events                                        (what changed, in the order of the commits)
    tokens, sessions, sign_in_codes, audit        (see `controller.store.access`)

`queue` holds the connectors: one row per increment that waits at an input. Its foreign keys
prevent two mistakes: removing an increment that is in use, and queueing at an input that is not
wired.

Guarantees: values come back as they went in, on both databases. Therefore names are compared byte
by byte (no locale), times are UTC, and JSON is stored as our own text: PostgreSQL's JSON types
refuse NUL and lone surrogates, which occur in file names and in messages of authors' code. The
migrations create the deployed schema; a test compares it with this module
(tests/conformance/test_migrations.py).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

from cbp.errors import InvariantError


class JsonText(TypeDecorator[Any]):
    """Any JSON value as ASCII text; keeps the order of keys; `None` is SQL NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Write a value; raises `InvariantError` if JSON cannot hold it."""
        if value is None:
            return None
        try:
            return json.dumps(value, separators=(",", ":"))
        except (TypeError, ValueError) as exc:
            message = f"the store cannot save a value that is not JSON: {exc}"
            raise InvariantError(message) from exc

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Read the output of `process_bind_param`."""
        return None if value is None else json.loads(value)


class UtcTime(TypeDecorator[datetime]):
    """An instant to the microsecond; goes in aware, comes out aware and in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Write an instant; raises `InvariantError` if it has no time zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            message = f"the store cannot save a time without a zone: {value.isoformat()}"
            raise InvariantError(message)
        utc = value.astimezone(UTC)
        # SQLite stores text without a zone; PostgreSQL stores an instant.
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Read an instant."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Name = String().with_variant(String(collation="C"), "postgresql")
"""Names and ids: compared and sorted byte by byte."""

Serial = BigInteger().with_variant(Integer, "sqlite")
"""Insertion order; SQLite numbers only columns of type INTEGER."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _all(kind: Any, *names: str, nullable: bool = False, **more: Any) -> list[Column[Any]]:
    """Return columns of one type."""
    return [Column(name, kind, nullable=nullable, **more) for name in names]


dataflows = Table(
    "dataflows",
    metadata,
    Column("name", Name, primary_key=True),
    Column("version", Integer, nullable=False),
    *_all(JsonText, "document", "folder"),
    Column("desired", Name, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    # Number of the next punctuation.
    Column("punctuations", BigInteger, nullable=False, server_default="0"),
    Column("generation", BigInteger, nullable=False, server_default="0"),
    # A new number after each transaction that changed anything of the dataflow.
    Column("revision", BigInteger, nullable=False, server_default="0"),
)

stages = Table(
    "stages",
    metadata,
    *_all(Name, "dataflow", "stage", primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("waiting_since", UtcTime, nullable=False),
    Column("memo", JsonText),
    Column("failures", Integer, nullable=False),
    Column("retry_at", UtcTime),
    Column("paused_because", JsonText, nullable=False),
    # The error that paused it: `{"error_code", "message", "details"}`.
    Column("error", JsonText),
    Column("turns", BigInteger, nullable=False, server_default="0"),
    Column("priority", Name, nullable=False, server_default="normal"),
    # A time before which no timer of the stage is due, in milliseconds since 1970.
    Column("due_ms", BigInteger),
    ForeignKeyConstraint(["dataflow"], ["dataflows.name"]),
)

wiring = Table(
    "wiring",
    metadata,
    *_all(Name, "dataflow", "stage", "input", primary_key=True),
    Column("flow", Name, nullable=False),
    # Inputs keep the order in which they were registered.
    Column("position", Integer, nullable=False),
    # For a framed input: see `controller.store.methods.frames`.
    Column("framing", JsonText),
    ForeignKeyConstraint(["dataflow", "stage"], ["stages.dataflow", "stages.stage"]),
    Index(None, "dataflow", "flow"),
)

increments = Table(
    "increments",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    *_all(Name, "dataflow", "flow"),
    Column("idx", BigInteger, nullable=False),
    *_all(JsonText, "framing_key", "files"),
    # For messages with addresses a list; for records that are gone {"gone": [...]}; else null.
    Column("bindings", JsonText),
    Column("created_at", UtcTime, nullable=False),
    Column("origin", JsonText, nullable=False),
    ForeignKeyConstraint(["dataflow"], ["dataflows.name"]),
    UniqueConstraint("dataflow", "flow", "idx"),
    Index(None, "dataflow", "seq"),
    Index(None, "dataflow", "flow", "seq"),
)

queue = Table(
    "queue",
    metadata,
    *_all(Name, "dataflow", "stage", "input", primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("flow", Name, nullable=False),
    Column("idx", BigInteger, nullable=False),
    Column("read_mark", Integer, nullable=False),
    ForeignKeyConstraint(
        ["dataflow", "stage", "input"], ["wiring.dataflow", "wiring.stage", "wiring.input"]
    ),
    ForeignKeyConstraint(
        ["dataflow", "flow", "idx"], ["increments.dataflow", "increments.flow", "increments.idx"]
    ),
    UniqueConstraint("dataflow", "stage", "input", "idx"),
    Index(None, "dataflow", "flow", "idx"),
)

punctuations = Table(
    "punctuations",
    metadata,
    Column("dataflow", Name, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("flow", Name, nullable=False),
    Column("at", BigInteger, nullable=False),
    *_all(Name, "reason", "key"),
    Column("closed_ms", BigInteger, nullable=False),
    Column("input", Name, nullable=False),
    ForeignKeyConstraint(["dataflow"], ["dataflows.name"]),
    UniqueConstraint("dataflow", "key"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Name, primary_key=True),
    *_all(Name, "dataflow", "stage"),
    Column("epoch", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("status", Name, nullable=False),
    *_all(JsonText, "read", "remove"),
    Column("started_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("figures", JsonText, nullable=False),
    Column("error", JsonText),
    ForeignKeyConstraint(["dataflow", "stage"], ["stages.dataflow", "stages.stage"]),
    Index(None, "status", "id"),
    Index(None, "dataflow", "stage", "id"),
    Index(None, "dataflow", "id"),
)

claims = Table(
    "claims",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    *_all(Name, "id", "dataflow", "source"),
    Column("sequence", BigInteger, nullable=False),
    Column("path", JsonText, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("status", Name, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("sha256", Name, nullable=False),
    Column("idx", BigInteger),
    Column("reason", JsonText),
    # The Idempotency-Key of an upload.
    Column("request_key", Name),
    # The earlier file with this content, or this name.
    Column("same_as", JsonText),
    ForeignKeyConstraint(["dataflow"], ["dataflows.name"]),
    UniqueConstraint("id"),
    Index(None, "dataflow", "source", "sequence"),
    # A file is identified by name and content: many files may have the same content.
    Index(None, "dataflow", "source", "sha256", "path"),
    Index(None, "dataflow", "source", "path"),
    Index(None, "dataflow", "source", "request_key"),
    Index(None, "dataflow", "source", "idx"),
    Index(None, "dataflow", "seq"),
    # Contains only files in quarantine, so counting them takes time in proportion to their number.
    Index(
        "ix_claims_quarantined",
        "dataflow",
        "source",
        sqlite_where=text("status = 'quarantined'"),
        postgresql_where=text("status = 'quarantined'"),
    ),
)

verifications = Table(
    "verifications",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    *_all(Name, "id", "dataflow"),
    Column("result", JsonText, nullable=False),
    ForeignKeyConstraint(["dataflow"], ["dataflows.name"]),
    UniqueConstraint("id"),
    Index(None, "dataflow", "seq"),
)

# How far each sink is; the notes in the dataflows' folders are the truth.
sinks = Table(
    "sinks",
    metadata,
    *_all(Name, "dataflow", "sink", primary_key=True),
    # Identifies the target: with another identity it is another sink.
    *_all(Name, "identity", "flow"),
    *_all(BigInteger, "generation", "next"),
    Column("desired", Name, nullable=False),
    # What an operator chose to do with undone increments; "" if nothing was chosen.
    Column("choice", Name, nullable=False),
    # The figures and the last error, as JSON values.
    Column("standing", JsonText, nullable=False),
    ForeignKeyConstraint(["dataflow"], ["dataflows.name"]),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Name, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Name, nullable=False),
    Column("address", JsonText, nullable=False),
    # By the database's clock; compared with no other clock.
    Column("expires_ms", BigInteger, nullable=False),
    # Makes the epoch part of a key: see `controller.store.methods.leases`.
    UniqueConstraint("name", "epoch"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    *_all(Name, "name", "scope", "prefix", "sha256"),
    Column("dataflows", JsonText),
    Column("created_by", Name, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    *_all(UtcTime, "expires_at", "last_used_at", "revoked_at", "rotated_at", nullable=True),
    Column("old_sha256", Name, nullable=False),
    Column("old_until", UtcTime),
    UniqueConstraint("name"),
    UniqueConstraint("sha256"),
    Index(None, "old_sha256"),
)

# No foreign keys to `tokens`: the token file has no row there.
sessions = Table(
    "sessions",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    *_all(Name, "id", "sha256", "token", "mark", "scope"),
    *_all(UtcTime, "created_at", "expires_at", "last_seen_at"),
    Column("address", Name, nullable=False),
    # A browser's description of itself may have any characters.
    Column("agent", JsonText, nullable=False),
    UniqueConstraint("id"),
    UniqueConstraint("sha256"),
    Index(None, "token"),
)

sign_in_codes = Table(
    "sign_in_codes",
    metadata,
    Column("sha256", Name, primary_key=True),
    *_all(Name, "token", "mark", "scope"),
    Column("expires_at", UtcTime, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    *_all(Name, "actor", "session", "scope"),
    Column("user", JsonText, nullable=False),
    *_all(Name, "action", "outcome"),
    Column("status", Integer, nullable=False),
    Column("error_code", Name, nullable=False),
    # Parts of a request's path, which may have any characters.
    *_all(JsonText, "dataflow", "target", "reason"),
    *_all(Name, "request", "address"),
    Column("count", BigInteger, nullable=False),
    *(Index(None, name, "seq") for name in ("actor", "action", "dataflow", "outcome")),
)

# No foreign keys: an event outlives its dataflow.
events = Table(
    "events",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    *_all(Name, "kind", "dataflow", "stage", "flow", "subject"),
    Column("count", Integer, nullable=False),
)
