"""Store methods that remove old rows of runs and increments.

Increments that wait in a queue and runs under way always stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, exists, func, select
from sqlalchemy import delete as delete_from

from cbp.model.run.intention import RunStatus
from controller.store.database.connections import Database
from controller.store.records import IncrementRecord
from controller.store.schema import rows
from controller.store.schema.tables import increments, queue, runs

ROWS_MAX = 2_000
"""Most rows that one transaction removes, so that writers wait only some milliseconds."""


class Forgetting:
    """Store methods that remove old rows of runs and increments; see `Store`."""

    _database: Database

    def oldest_increments(
        self, dataflow: str, flow: str, *, first: int = 0, limit: int | None = None
    ) -> list[IncrementRecord]:
        """Return the oldest increments of a flow that the store knows, ascending by index."""
        mine = and_(increments.c.dataflow == dataflow, increments.c.flow == flow)
        query = select(increments).where(mine, increments.c.idx >= first).order_by(increments.c.idx)
        return self._database.rows(query.limit(limit), rows.increment_record_of)

    def forget_increments(self, dataflow: str, flow: str, *, below: int) -> int:
        """Remove increments of a flow below an index, at most some thousand; return how many.

        Increments in a queue stay. So does the newest one, since it determines the next index.
        """
        mine = and_(increments.c.dataflow == dataflow, increments.c.flow == flow)
        waits = exists().where(
            queue.c.dataflow == increments.c.dataflow,
            queue.c.flow == increments.c.flow,
            queue.c.idx == increments.c.idx,
        )
        with self._database.write() as connection:
            newest = select(func.max(increments.c.idx)).where(mine)
            last = connection.execute(newest).scalar_one()
            if last is None:
                return 0
            ids = (
                select(increments.c.seq)
                .where(mine, increments.c.idx < min(below, last), ~waits)
                .order_by(increments.c.idx)
                .limit(ROWS_MAX)
            )
            chosen = connection.execute(ids).scalars().all()
            _delete(connection, increments, increments.c.seq, chosen)
            return len(chosen)

    def forget_runs(self, dataflow: str, stage: str, *, below: int) -> int:
        """Remove runs of epochs below this one, at most some thousand; return how many.

        Runs under way stay.
        """
        ids = (
            select(runs.c.id)
            .where(
                runs.c.dataflow == dataflow,
                runs.c.stage == stage,
                runs.c.epoch < below,
                runs.c.status != RunStatus.INTENDED.value,
            )
            .order_by(runs.c.id)
            .limit(ROWS_MAX)
        )
        with self._database.write() as connection:
            chosen = connection.execute(ids).scalars().all()
            _delete(connection, runs, runs.c.id, chosen)
            return len(chosen)


def _delete(connection: Connection, table: Table, key: Column[Any], chosen: Sequence[Any]) -> None:
    if chosen:
        connection.execute(delete_from(table).where(key.in_(chosen)))
