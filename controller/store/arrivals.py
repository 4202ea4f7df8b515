"""The part of the store that knows claims of files, and increments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select
from sqlalchemy import update as update_table

from cbp.errors import NotFoundError
from controller.store import queues, rows
from controller.store.base import ClaimRecord, ClaimStatus, IncrementRecord, Page
from controller.store.database import Database, insert_new
from controller.store.holds import hold
from controller.store.listing import page
from controller.store.tables import claims, increments

__all__ = ["Arrivals"]


class Arrivals:
    """Methods of `SqlStore`; see `controller.store.base` for what they guarantee."""

    _database: Database

    def add_claim(self, claim: ClaimRecord) -> ClaimRecord:
        """See `Store.add_claim`; raises `AlreadyExistsError` when its id is taken."""
        highest = select(func.max(claims.c.sequence)).where(
            claims.c.dataflow == claim.dataflow, claims.c.source == claim.source
        )
        with self._database.write() as connection:
            hold(connection, claim.dataflow)
            last = connection.execute(highest).scalar_one()
            numbered = replace(claim, sequence=0 if last is None else last + 1)
            insert_new(connection, claims, rows.claim_row(numbered), kind="claim", name=claim.id)
        return numbered

    def update_claim(self, claim: ClaimRecord) -> None:
        """See `Store.update_claim`; raises `NotFoundError`."""
        with self._database.write() as connection:
            hold(connection, claim.dataflow)
            if not _update_claim(connection, claim):
                raise NotFoundError(kind="claim", name=claim.id)

    def known_claims(self, ids: Sequence[str]) -> set[str]:
        """See `Store.known_claims`."""
        query = select(claims.c.id).where(claims.c.id.in_(ids))
        with self._database.read() as connection:
            return set(connection.execute(query).scalars())

    def open_claims(self, dataflow: str, source: str) -> list[ClaimRecord]:
        """See `Store.open_claims`."""
        query = (
            _claims(dataflow, source)
            .where(claims.c.status.in_(("claiming", "claimed")))
            .order_by(claims.c.sequence, claims.c.seq)
        )
        with self._database.read() as connection:
            return [rows.claim_of(row) for row in connection.execute(query)]

    def claims(
        self,
        dataflow: str,
        source: str | None = None,
        *,
        status: ClaimStatus | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ClaimRecord]:
        """See `Store.claims`; raises `CursorInvalidError`."""
        query = _claims(dataflow, source)
        if status is not None:
            query = query.where(claims.c.status == status)
        with self._database.read() as connection:
            return page(
                connection,
                query,
                key=claims.c.seq,
                cursor=cursor,
                limit=limit,
                build=rows.claim_of,
            )

    def accepted_claim(self, dataflow: str, source: str, sha256: str) -> ClaimRecord | None:
        """See `Store.accepted_claim`; the oldest when there are several."""
        query = (
            _claims(dataflow, source)
            .where(claims.c.sha256 == sha256, claims.c.status == "accepted")
            .order_by(claims.c.seq)
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else rows.claim_of(row)

    def accept(self, claim: ClaimRecord, record: IncrementRecord) -> None:
        """See `Store.accept`; also inserts the claim when the store lost it.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If another increment of this name is stored, or one before it is not.
        """
        settled = replace(claim, status="accepted", index=record.increment.index)
        with self._database.write() as connection:
            hold(connection, record.dataflow)
            if queues.store_increment(connection, record) and not _update_claim(
                connection, settled
            ):
                connection.execute(insert(claims), rows.claim_row(settled))

    def next_index(self, dataflow: str, flow: str) -> int:
        """See `Store.next_index`; 0 for a flow that nobody knows."""
        with self._database.read() as connection:
            return queues.next_index(connection, dataflow, flow)

    def increments(
        self,
        dataflow: str,
        flow: str | None = None,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[IncrementRecord]:
        """See `Store.increments`; raises `CursorInvalidError`."""
        query = select(increments).where(increments.c.dataflow == dataflow)
        if flow is not None:
            query = query.where(increments.c.flow == flow)
        with self._database.read() as connection:
            return page(
                connection,
                query,
                key=increments.c.seq,
                cursor=cursor,
                limit=limit,
                build=rows.increment_record_of,
            )

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        """See `Store.increment`."""
        query = select(increments).where(
            increments.c.dataflow == dataflow,
            increments.c.flow == flow,
            increments.c.idx == index,
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NotFoundError(kind="increment", name=f"{flow}/{index}")
        return rows.increment_record_of(row)


def _claims(dataflow: str, source: str | None) -> Select[Any]:
    query = select(claims).where(claims.c.dataflow == dataflow)
    return query if source is None else query.where(claims.c.source == source)


def _update_claim(connection: Connection, claim: ClaimRecord) -> bool:
    """Replace what may change of a claim; `False` when it is not stored."""
    values = rows.claim_row(claim)
    for fixed in ("id", "dataflow", "source", "sequence", "created_at"):
        del values[fixed]
    changed = connection.execute(
        update_table(claims)
        .where(claims.c.id == claim.id, claims.c.dataflow == claim.dataflow)
        .values(values)
    )
    return changed.rowcount == 1
