"""Store methods for claims of files, and for increments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, func, insert, not_, select
from sqlalchemy import update as update_table

from cbp.errors import NotFoundError
from controller.store import queues, rows
from controller.store.base import ClaimRecord, ClaimStatus, IncrementRecord, Page
from controller.store.database import Database, insert_new
from controller.store.listing import page
from controller.store.tables import claims, increments
from controller.store.writer_lock import hold

__all__ = ["Arrivals"]


class Arrivals:
    """Methods of `SqlStore`; see `controller.store.base` for what they guarantee."""

    _database: Database

    def add_claim(self, claim: ClaimRecord) -> ClaimRecord:
        """See `Store.add_claim`; raises `AlreadyExistsError` when its id is taken."""
        return self.add_claims([claim])[0]

    def add_claims(self, new: Sequence[ClaimRecord]) -> list[ClaimRecord]:
        """See `Store.add_claims`; raises `AlreadyExistsError` when an id is taken."""
        first = new[0]
        highest = select(func.max(claims.c.sequence)).where(
            claims.c.dataflow == first.dataflow, claims.c.source == first.source
        )
        with self._database.write() as connection:
            hold(connection, first.dataflow)
            last = connection.execute(highest).scalar_one()
            start = 0 if last is None else last + 1
            numbered = [replace(claim, sequence=start + n) for n, claim in enumerate(new)]
            for claim in numbered:
                row = rows.claim_row(claim)
                insert_new(connection, claims, row, kind="claim", name=claim.id)
        return numbered

    def update_claim(self, claim: ClaimRecord) -> None:
        """See `Store.update_claim`; raises `NotFoundError`."""
        self.update_claims([claim])

    def update_claims(self, changed: Sequence[ClaimRecord]) -> None:
        """See `Store.update_claims`; raises `NotFoundError`."""
        with self._database.write() as connection:
            hold(connection, changed[0].dataflow)
            for claim in _update_claims(connection, changed):
                raise NotFoundError(kind="claim", name=claim.id)

    def known_claims(self, ids: Sequence[str]) -> set[str]:
        """See `Store.known_claims`."""
        query = select(claims.c.id).where(claims.c.id.in_(ids))
        with self._database.read() as connection:
            return set(connection.execute(query).scalars())

    def find_claims(self, ids: Sequence[str]) -> dict[str, ClaimRecord]:
        """See `Store.find_claims`."""
        query = select(claims).where(claims.c.id.in_(ids))
        with self._database.read() as connection:
            records = [rows.claim_of(row) for row in connection.execute(query)]
        return {claim.id: claim for claim in records}

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
                of=dataflow,
                build=rows.claim_of,
            )

    def same_claim(
        self,
        dataflow: str,
        source: str,
        sha256: str,
        *,
        path: str | None = None,
        waiting: bool = False,
    ) -> ClaimRecord | None:
        """See `Store.same_claim`; if there are several, the first by name."""
        status = ("claiming", "claimed") if waiting else ("accepted",)
        query = _claims(dataflow, source).where(
            claims.c.sha256 == sha256, claims.c.status.in_(status)
        )
        if path is not None:
            query = query.where(claims.c.path == path)
        # The order of its index: fast even with a hundred thousand empty files.
        return self._first_claim(query.order_by(claims.c.path))

    def keyed_claim(self, dataflow: str, source: str, key: str) -> ClaimRecord | None:
        """See `Store.keyed_claim`; if there are several, the oldest."""
        query = _claims(dataflow, source).where(
            claims.c.request_key == key, claims.c.status != "withdrawn"
        )
        return self._first_claim(query.order_by(claims.c.seq))

    def _first_claim(self, query: Select[Any]) -> ClaimRecord | None:
        with self._database.read() as connection:
            row = connection.execute(query.limit(1)).first()
        return None if row is None else rows.claim_of(row)

    def accept(self, claim: ClaimRecord, record: IncrementRecord) -> None:
        """See `Store.accept`; the errors are those of `accept_all`."""
        self.accept_all([(claim, record)])

    def accept_all(self, arrivals: Sequence[tuple[ClaimRecord, IncrementRecord]]) -> None:
        """See `Store.accept_all`; also inserts claims that the store lost.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If another increment of such a name is stored, or a previous one is
                missing.
        """
        records = [record for _, record in arrivals]
        settled = [
            replace(claim, status="accepted", index=record.increment.index)
            for claim, record in arrivals
        ]
        with self._database.write() as connection:
            hold(connection, records[0].dataflow)
            known = len(records) - queues.append_increments(connection, records)
            lost = _update_claims(connection, settled[known:])
            if lost:
                connection.execute(insert(claims), [rows.claim_row(claim) for claim in lost])

    def withdraw(self, dataflow: str, dropped: Mapping[str, Sequence[range]]) -> None:
        """See `Store.withdraw`."""
        with self._database.write() as connection:
            hold(connection, dataflow)
            withdraw(connection, dataflow, dropped)

    def next_index(self, dataflow: str, flow: str) -> int:
        """See `Store.next_index`; 0 for an unknown flow."""
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
                of=dataflow,
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


def withdraw(connection: Connection, dataflow: str, dropped: Mapping[str, Sequence[range]]) -> None:
    """Set the status of accepted claims: dropped increments are withdrawn, others accepted."""
    parts = [
        and_(claims.c.source == source, claims.c.idx >= part.start, claims.c.idx < part.stop)
        for source, ranges in dropped.items()
        for part in ranges
    ]
    mine = update_table(claims).where(claims.c.dataflow == dataflow)
    withdrawn = mine.where(claims.c.status == "withdrawn")
    for part in parts:
        withdrawn = withdrawn.where(not_(part))
        accepted = mine.where(part, claims.c.status == "accepted")
        connection.execute(accepted.values(status="withdrawn"))
    connection.execute(withdrawn.values(status="accepted"))


def _claims(dataflow: str, source: str | None) -> Select[Any]:
    query = select(claims).where(claims.c.dataflow == dataflow)
    return query if source is None else query.where(claims.c.source == source)


_FIXED = ("id", "dataflow", "source", "sequence", "created_at", "request_key")


def _update_claims(connection: Connection, changed: Sequence[ClaimRecord]) -> list[ClaimRecord]:
    """Update the columns of claims that may change; return those that are not stored."""
    if not changed:
        return []
    here = (claims.c.id == bindparam("its_id"), claims.c.dataflow == bindparam("its_dataflow"))
    named = []
    for claim in changed:
        values = rows.claim_row(claim)
        for fixed in _FIXED:
            del values[fixed]
        named.append({"its_id": claim.id, "its_dataflow": claim.dataflow, **values})
    statement = update_table(claims).where(*here)
    if connection.execute(statement, named).rowcount == len(changed):
        return []
    known_ids = {
        row.id
        for row in connection.execute(
            select(claims.c.id).where(
                claims.c.dataflow == changed[0].dataflow,
                claims.c.id.in_([claim.id for claim in changed]),
            )
        )
    }
    return [claim for claim in changed if claim.id not in known_ids]
