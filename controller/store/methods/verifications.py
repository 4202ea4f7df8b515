"""Store methods for results of verifications; no folder has them, so a lost database loses them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, insert, select
from sqlalchemy import delete as delete_from

from controller.store.database.connections import Database
from controller.store.methods.leases import held
from controller.store.records import VerificationRecord
from controller.store.schema import rows
from controller.store.schema.tables import verifications


class Verifications:
    """Store methods for results of verifications; see `Store`."""

    _database: Database

    def keep_verification(self, record: VerificationRecord, *, most: int) -> None:
        """Store the result of a verification, and only the newest `most` (>= 1) of its dataflow.

        Replaces its earlier result.
        """
        c = verifications.c
        mine = c.dataflow == record.dataflow
        newest = select(c.seq).where(mine).order_by(c.seq.desc()).limit(most)
        with held(self._database, record.dataflow) as connection:
            connection.execute(delete_from(verifications).where(mine, c.id == record.id))
            connection.execute(insert(verifications), rows.row_of(record))
            newest_ids = list(connection.execute(newest).scalars())
            connection.execute(delete_from(verifications).where(mine, c.seq < min(newest_ids)))

    def verification(self, id_: str) -> VerificationRecord:
        """Return the result of a verification; raises `NotFoundError`."""
        query = select(verifications).where(verifications.c.id == id_)
        return self._database.one(query, _record, "verification", id_)

    def verifications(self, dataflow: str) -> list[VerificationRecord]:
        """Return the results of a dataflow's verifications, newest first."""
        c = verifications.c
        query = select(verifications).where(c.dataflow == dataflow).order_by(c.seq.desc())
        return self._database.rows(query, _record)


def _record(row: Row[Any]) -> VerificationRecord:
    return VerificationRecord(**rows.fields_of(VerificationRecord, row))
