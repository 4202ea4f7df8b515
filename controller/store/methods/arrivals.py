"""Store methods for claims of files, and for increments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Select, and_, bindparam, func, insert, not_, select
from sqlalchemy import update as update_table

from cbp.errors import AlreadyExistsError, NotFoundError
from controller.store.database.connections import Database, insert_new
from controller.store.methods import queues
from controller.store.methods.events import tell
from controller.store.methods.leases import held
from controller.store.methods.listing_pages import begins_with, between, page
from controller.store.records import (
    ClaimRecord,
    ClaimStatus,
    Event,
    EventKind,
    IncrementRecord,
    Page,
)
from controller.store.schema import rows
from controller.store.schema.tables import claims, increments


class Arrivals:
    """Store methods for claims of files, and for increments; see `Store`."""

    _database: Database

    def add_claim(self, claim: ClaimRecord) -> ClaimRecord:
        """Record the intention to claim a file, and give it the source's next `sequence`.

        Raises `AlreadyExistsError`.
        """
        return self.add_claims([claim])[0]

    def add_claims(self, new: Sequence[ClaimRecord]) -> list[ClaimRecord]:
        """Like `add_claim`, for several (>= 1) files of one source, in order, all or none.

        Raises `AlreadyExistsError`.
        """
        first = new[0]
        highest = select(func.max(claims.c.sequence)).where(
            claims.c.dataflow == first.dataflow, claims.c.source == first.source
        )
        with held(self._database, first.dataflow) as connection:
            last = connection.execute(highest).scalar_one()
            start = 0 if last is None else last + 1
            numbered = [replace(claim, sequence=start + n) for n, claim in enumerate(new)]
            _insert_new(connection, numbered)
            tell(connection, _event("file.arrived", numbered))
        return numbered

    def update_claim(self, claim: ClaimRecord) -> None:
        """Replace a claim by id (status, sha256, reason); raises `NotFoundError`."""
        self.update_claims([claim])

    def update_claims(self, changed: Sequence[ClaimRecord]) -> None:
        """Replace several (>= 1) claims of one dataflow by id, all or none.

        Raises `NotFoundError`.
        """
        self._update(changed, _CHANGING)

    def claims_moved(self, moved: Sequence[ClaimRecord]) -> None:
        """Like `update_claims`, for status and size only; cheaper, as no index has these."""
        self._update(moved, _MOVED)

    def _update(self, changed: Sequence[ClaimRecord], columns: Sequence[str]) -> None:
        with held(self._database, changed[0].dataflow) as connection:
            for claim in _update_claims(connection, changed, columns):
                raise NotFoundError(kind="claim", name=claim.id)
            tell(connection, *_events(changed))

    def known_claims(self, ids: Sequence[str]) -> set[str]:
        """Return which of these ids (some hundred at most) belong to claims."""
        query = select(claims.c.id).where(claims.c.id.in_(ids))
        with self._database.read_once() as connection:
            return set(connection.execute(query).scalars())

    def find_claims(self, ids: Sequence[str]) -> dict[str, ClaimRecord]:
        """Return the existing claims of these ids, by id (some hundred ids at most)."""
        query = select(claims).where(claims.c.id.in_(ids))
        with self._database.read_once() as connection:
            records = [rows.claim_of(row) for row in connection.execute(query)]
        return {claim.id: claim for claim in records}

    def open_claims(self, dataflow: str, source: str) -> list[ClaimRecord]:
        """Return claims in status `claiming` or `claimed`, by sequence."""
        query = (
            _claims(dataflow, source)
            .where(claims.c.status.in_(("claiming", "claimed")))
            .order_by(claims.c.sequence, claims.c.seq)
        )
        return self._database.rows(query, rows.claim_of)

    def claims(
        self,
        dataflow: str,
        source: str | None = None,
        *,
        status: ClaimStatus | None = None,
        index: int | None = None,
        code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ClaimRecord]:
        """List claims, newest first; `until` is exclusive. Raises `CursorInvalidError`."""
        query = _claims(dataflow, source).where(*between(claims.c.created_at, since, until))
        if code is not None:
            query = query.where(begins_with(claims.c.reason, "code", code))
        if index is not None:
            query = query.where(claims.c.idx == index)
        if status is not None:
            query = query.where(claims.c.status == status)
        return page(self._database, query, claims.c.seq, rows.claim_of, cursor, limit, of=dataflow)

    def claim_counts(self, dataflow: str) -> dict[str, dict[ClaimStatus, int]]:
        """Return source -> status -> number of claims; a source without claims is left out."""
        columns = (claims.c.source, claims.c.status)
        query = select(*columns, func.count()).where(claims.c.dataflow == dataflow)
        counts: dict[str, dict[ClaimStatus, int]] = {}
        with self._database.read_once() as connection:
            for source, status, number in connection.execute(query.group_by(*columns)):
                counts.setdefault(source, {})[status] = number
        return counts

    def same_claim(
        self,
        dataflow: str,
        source: str,
        sha256: str,
        *,
        path: str | None = None,
        waiting: bool = False,
    ) -> ClaimRecord | None:
        """Return the first accepted claim, ordered by name, with this content, if there is one.

        Args:
            path: The name that the claim must have, too; `None` means any.
            waiting: Search claims whose file still waits to be taken in, instead of accepted ones.
        """
        status = ("claiming", "claimed") if waiting else ("accepted",)
        query = _claims(dataflow, source).where(
            claims.c.sha256 == sha256, claims.c.status.in_(status)
        )
        if path is not None:
            query = query.where(claims.c.path == path)
        # The order of its index: fast even with a hundred thousand empty files.
        return self._first_claim(query.order_by(claims.c.path))

    def claims_of_content(
        self, dataflow: str, source: str, sha256: str, *, limit: int = 100
    ) -> list[ClaimRecord]:
        """Return accepted claims with this content, ordered by name."""
        query = _claims(dataflow, source).where(
            claims.c.sha256 == sha256, claims.c.status == "accepted"
        )
        return self._database.rows(query.order_by(claims.c.path).limit(limit), rows.claim_of)

    def same_claims(
        self, dataflow: str, source: str, wanted: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], ClaimRecord]:
        """Return, by (SHA-256, name), the accepted claim with both, or with that content."""
        mine = _claims(dataflow, source).where(claims.c.status == "accepted")
        mine = mine.where(claims.c.sha256 == bindparam("its_sha256")).limit(1)
        first = mine.order_by(claims.c.path)
        named = mine.where(claims.c.path == bindparam("its_path"))
        firsts: dict[str, ClaimRecord | None] = {}
        same: dict[tuple[str, str], ClaimRecord] = {}
        with self._database.read() as connection:
            contents = {one for one, _ in wanted}
            stored = _stored_of(connection, claims.c.sha256, dataflow, source, contents)
            for sha256, path in wanted:
                if sha256 not in stored:
                    continue
                if sha256 not in firsts:
                    firsts[sha256] = _one(connection, first, {"its_sha256": sha256})
                known = firsts[sha256]
                if known is None:
                    continue
                if known.path != path:
                    asked = {"its_sha256": sha256, "its_path": path}
                    known = _one(connection, named, asked) or known
                same[sha256, path] = known
        return same

    def named_claims(
        self, dataflow: str, source: str, paths: Collection[str]
    ) -> dict[str, ClaimRecord]:
        """Return, by name, the newest accepted claim of each of these names, if any."""
        mine = _claims(dataflow, source).where(claims.c.status == "accepted")
        mine = mine.where(claims.c.path == bindparam("its_path")).order_by(claims.c.idx.desc())
        named: dict[str, ClaimRecord] = {}
        with self._database.read() as connection:
            for path in _stored_of(connection, claims.c.path, dataflow, source, paths):
                newest = _one(connection, mine.limit(1), {"its_path": path})
                if newest is not None:
                    named[path] = newest
        return named

    def claim_before(self, claim: ClaimRecord) -> ClaimRecord | None:
        """Return the newest other accepted claim with this claim's name, up to its increment.

        An increment can hold several files of one name.
        """
        query = _claims(claim.dataflow, claim.source).where(
            claims.c.status == "accepted",
            claims.c.path == claim.path,
            claims.c.id != claim.id,
            claims.c.idx <= claim.index,
        )
        return self._first_claim(query.order_by(claims.c.idx.desc()))

    def keyed_claim(
        self, dataflow: str, source: str, key: str, *, withdrawn: bool = False
    ) -> ClaimRecord | None:
        """Return the claim of the upload with this key; a withdrawn one only on request."""
        query = _claims(dataflow, source).where(claims.c.request_key == key)
        if not withdrawn:
            query = query.where(claims.c.status != "withdrawn")
        return self._first_claim(query.order_by(claims.c.seq))

    def _first_claim(self, query: Select[Any]) -> ClaimRecord | None:
        return self._database.row(query.limit(1), rows.claim_of)

    def claims_of(self, dataflow: str, source: str, index: int) -> list[ClaimRecord]:
        """Return the claims whose files an increment of a source holds, by sequence."""
        query = _claims(dataflow, source).where(claims.c.idx == index).order_by(claims.c.sequence)
        return self._database.rows(query, rows.claim_of)

    def accept_all(self, arrivals: Sequence[tuple[ClaimRecord, IncrementRecord]]) -> None:
        """Store a source's increments, enqueue them at every consumer, settle their claims.

        The increments (>= 1) are in order, and all are stored, or none. One of several files is
        passed once for each of their claims. Does nothing for a (flow, index) that is already
        stored (redo after a crash). A claim that the store has lost is inserted.

        Raises `NotFoundError`; and `InvariantError` if a (flow, index) is stored with other
        content, or a previous increment is missing.
        """
        records = list({record.increment.index: record for _, record in arrivals}.values())
        with held(self._database, records[0].dataflow) as connection:
            known = len(records) - queues.append_increments(connection, records)
            new = {record.increment.index for record in records[known:]}
            settled = [
                replace(claim, status="accepted", index=record.increment.index)
                for claim, record in arrivals
                if record.increment.index in new
            ]
            lost = _update_claims(connection, settled)
            if lost:
                connection.execute(insert(claims), [rows.claim_row(claim) for claim in lost])
            if new:
                last = records[-1].increment
                arrived = Event(
                    kind="increment.arrived",
                    dataflow=records[-1].dataflow,
                    flow=last.flow,
                    subject=last.name,
                    count=len(new),
                )
                tell(connection, arrived)

    def withdraw(self, dataflow: str, dropped: Mapping[str, Sequence[range]]) -> None:
        """Mark the claims whose increments roll-backs dropped, and unmark all others.

        Args:
            dropped: Source -> the indexes of all dropped increments; see
                `cbp.model.flow.generation.increments_dropped`.
        """
        with held(self._database, dataflow) as connection:
            withdraw(connection, dataflow, dropped)
            tell(connection, Event(kind="file.withdrawn", dataflow=dataflow))

    def next_index(self, dataflow: str, flow: str) -> int:
        """Return the index for the next increment of a flow."""
        with self._database.read() as connection:
            return queues.next_index(connection, dataflow, flow)

    def increments(
        self,
        dataflow: str,
        flow: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[IncrementRecord]:
        """List the stored increments, the latest arrivals first; `until` is exclusive.

        Raises `CursorInvalidError`.
        """
        table, record_of = increments.c, rows.increment_record_of
        query = select(increments).where(table.dataflow == dataflow)
        query = query.where(*between(table.created_at, since, until))
        if flow is not None:
            query = query.where(table.flow == flow)
        return page(self._database, query, table.seq, record_of, cursor, limit, of=dataflow)

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        """Return one increment; raises `NotFoundError`."""
        query = select(increments).where(
            increments.c.dataflow == dataflow, increments.c.flow == flow, increments.c.idx == index
        )
        return self._database.one(query, rows.increment_record_of, "increment", f"{flow}/{index}")

    def arrival_times(
        self, keys: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], datetime]:
        """Return when increments were stored, by (dataflow, flow, index), if they are stored."""
        return self._of_increments(increments.c.created_at, keys)

    def origins(
        self, dataflow: str, keys: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], Mapping[str, Any]]:
        """Return the origins of increments of a dataflow, by (flow, index), if they are stored."""
        found = self._of_increments(increments.c.origin, [(dataflow, *key) for key in keys])
        return {(flow, index): origin for (_, flow, index), origin in found.items()}

    def _of_increments(
        self, column: Column[Any], keys: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Any]:
        """Return a column of these increments, if they are stored."""
        indexes: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for dataflow, flow, index in keys:
            indexes[dataflow, flow].add(index)
        found = {}
        with self._database.read() as connection:
            for (dataflow, flow), wanted in indexes.items():
                for some in _parts(wanted):
                    query = select(increments.c.idx, column).where(
                        increments.c.dataflow == dataflow,
                        increments.c.flow == flow,
                        increments.c.idx.in_(some),
                    )
                    for index, value in connection.execute(query):
                        found[dataflow, flow, index] = value
        return found


def withdraw(connection: Connection, dataflow: str, dropped: Mapping[str, Sequence[range]]) -> None:
    """Make accepted claims of dropped increments withdrawn, and other withdrawn claims accepted."""
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


_ASKED_AT_ONCE = 500
_Value = TypeVar("_Value", int, str)


def _parts(values: Collection[_Value]) -> Iterator[list[_Value]]:
    """Yield values, sorted, in parts that one statement can hold."""
    every = sorted(values)
    for start in range(0, len(every), _ASKED_AT_ONCE):
        yield every[start : start + _ASKED_AT_ONCE]


def _insert_new(connection: Connection, new: Sequence[ClaimRecord]) -> None:
    """Insert claims whose ids must be free; raises `AlreadyExistsError`."""
    if len(new) == 1:
        insert_new(connection, claims, rows.claim_row(new[0]), kind="claim", name=new[0].id)
        return
    for some in _parts([claim.id for claim in new]):
        query = select(claims.c.id).where(claims.c.id.in_(some))
        known = connection.execute(query).scalars().first()
        if known is not None:
            raise AlreadyExistsError("claim", known)
    connection.execute(insert(claims), [rows.claim_row(claim) for claim in new])


def _stored_of(
    connection: Connection, column: Column[Any], dataflow: str, source: str, wanted: Collection[str]
) -> set[str]:
    """Return which of these digests, or names, an accepted claim of a source has.

    The files that are being taken in have claims of their own, which do not count.
    """
    stored = set[str]()
    mine = select(column).where(claims.c.dataflow == dataflow, claims.c.source == source)
    mine = mine.where(claims.c.status == "accepted")
    for some in _parts(wanted):
        query = mine.where(column.in_(some)).group_by(column)
        stored.update(connection.execute(query).scalars())
    return stored


def _one(
    connection: Connection, query: Select[Any], values: Mapping[str, Any]
) -> ClaimRecord | None:
    row = connection.execute(query, values).first()
    return None if row is None else rows.claim_of(row)


def _claims(dataflow: str, source: str | None) -> Select[Any]:
    query = select(claims).where(claims.c.dataflow == dataflow)
    return query if source is None else query.where(claims.c.source == source)


_KINDS: Mapping[ClaimStatus, EventKind] = {
    "claiming": "file.arrived",
    "claimed": "file.claimed",
    "accepted": "file.claimed",
    "duplicate": "file.duplicate",
    "quarantined": "file.quarantined",
    "withdrawn": "file.withdrawn",
    "readmitted": "file.readmitted",
    "discarded": "file.discarded",
}


def _events(changed: Sequence[ClaimRecord]) -> list[Event]:
    """Return one event for each status that claims of one source now have."""
    by_kind: dict[EventKind, list[ClaimRecord]] = {}
    for claim in changed:
        by_kind.setdefault(_KINDS[claim.status], []).append(claim)
    return [_event(kind, some) for kind, some in by_kind.items()]


def _event(kind: EventKind, some: Sequence[ClaimRecord]) -> Event:
    last = some[-1]
    return Event(
        kind=kind, dataflow=last.dataflow, flow=last.source, subject=last.id, count=len(some)
    )


_CHANGING = ("status", "bytes", "sha256", "idx", "reason", "same_as")
_MOVED = ("status", "bytes")


def _update_claims(
    connection: Connection, changed: Sequence[ClaimRecord], columns: Sequence[str] = _CHANGING
) -> list[ClaimRecord]:
    """Update columns of claims, by default all that change; return those that are not stored."""
    if not changed:
        return []
    here = (claims.c.id == bindparam("its_id"), claims.c.dataflow == bindparam("its_dataflow"))
    named = []
    for claim in changed:
        row = rows.claim_row(claim)
        values = {name: row[name] for name in columns}
        named.append({"its_id": claim.id, "its_dataflow": claim.dataflow, **values})
    statement = update_table(claims).where(*here)
    if connection.execute(statement, named).rowcount == len(changed):
        return []
    mine = select(claims.c.id).where(claims.c.dataflow == changed[0].dataflow)
    known = mine.where(claims.c.id.in_([claim.id for claim in changed]))
    known_ids = set(connection.execute(known).scalars())
    return [claim for claim in changed if claim.id not in known_ids]
