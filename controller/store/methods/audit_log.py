"""Store methods for the audit log: append, list, forget the oldest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, select
from sqlalchemy import delete as delete_from

from controller.store.access import AuditFilter, AuditRecord
from controller.store.database.connections import Database
from controller.store.methods.listing_pages import page
from controller.store.records import Page
from controller.store.schema.tables import audit

__all__ = ["AuditLog"]

ROWS_MAX = 2_000
"""Rows that one transaction removes at most, so that writers wait only some milliseconds."""


class AuditLog:
    """Methods of `Store`."""

    _database: Database

    def add_audit(self, entries: Sequence[AuditRecord]) -> None:
        """Append entries (>= 1), in order."""
        with self._database.write(fenced=False) as connection:
            connection.execute(insert(audit), [_row(entry) for entry in entries])

    def audit(
        self, chosen: AuditFilter, *, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditRecord]:
        """List entries, newest first."""
        query = select(audit)
        if chosen.since is not None:
            query = query.where(audit.c.at >= chosen.since)
        if chosen.until is not None:
            query = query.where(audit.c.at < chosen.until)
        for name in ("actor", "action", "dataflow", "outcome"):
            if (value := getattr(chosen, name)) is not None:
                query = query.where(audit.c[name] == value)
        with self._database.read_once() as connection:
            return page(connection, query, key=audit.c.seq, cursor=cursor, limit=limit, build=_of)

    def forget_audit(self, before: datetime, *, rows_max: int) -> int:
        """Remove the oldest entries, at most some thousand; return how many.

        Args:
            before: Entries before this time go.
            rows_max: Only so many of the others stay, the newest.
        """
        oldest = select(audit.c.seq, audit.c.at).order_by(audit.c.seq).limit(ROWS_MAX)
        with self._database.write(fenced=False) as connection:
            newest = connection.execute(select(func.max(audit.c.seq))).scalar() or 0
            seen = connection.execute(oldest).all()
            gone = [row.seq for row in seen if row.at < before or row.seq <= newest - rows_max]
            if gone:
                connection.execute(delete_from(audit).where(audit.c.seq.in_(gone)))
            return len(gone)


def _row(entry: AuditRecord) -> dict[str, Any]:
    values = asdict(entry)
    del values["number"]
    return {**values, "target": dict(entry.target)}


def _of(row: Row[Any]) -> AuditRecord:
    values = dict(row._mapping)
    return AuditRecord(number=values.pop("seq"), **values)
