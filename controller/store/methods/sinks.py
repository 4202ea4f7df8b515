"""Store methods for sinks: their progress, and the choices of operators.

The folders of the dataflows have the truth (`controller.sinks.notes`): a lost database is filled
again from there. Only pauses and choices of operators are lost with it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row, Select, func, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import NotFoundError
from controller.store.database.connections import Database
from controller.store.methods.leases import held
from controller.store.records import Desired, SinkRecord
from controller.store.schema import rows
from controller.store.schema.tables import increments, sinks


class Sinks:
    """Store methods for the progress of sinks; see `Store`."""

    _database: Database

    def sinks(self, dataflow: str | None = None) -> list[SinkRecord]:
        """Return the sinks of a dataflow, or of all, by dataflow and name."""
        query = _query().order_by(sinks.c.dataflow, sinks.c.sink)
        if dataflow is not None:
            query = query.where(sinks.c.dataflow == dataflow)
        return self._database.rows(query, _record)

    def put_sink(self, record: SinkRecord) -> None:
        """Put a sink; replaces an earlier sink of this name. Raises `NotFoundError`."""
        row = rows.row_of(record)
        del row["end"], row["waits_since"]
        with held(self._database, record.dataflow) as connection:
            connection.execute(delete_from(sinks).where(*_of(record.dataflow, record.sink)))
            connection.execute(insert(sinks), row)

    def move_sink(self, record: SinkRecord, *, chosen: str | None = None) -> None:
        """Store generation, position and standing of a sink; operators' choices stay unchanged.

        Does nothing if the sink was removed or has another identity. A choice that was carried out
        (`chosen`) is cleared, unless an operator made another.
        """
        mine = (*_of(record.dataflow, record.sink), sinks.c.identity == record.identity)
        moved = {"generation": record.generation, "next": record.next, "standing": record.standing}
        with held(self._database, record.dataflow) as connection:
            connection.execute(update_table(sinks).where(*mine).values(moved))
            if chosen is not None:
                taken_back = update_table(sinks).where(*mine, sinks.c.choice == chosen)
                connection.execute(taken_back.values(choice=""))

    def want_sink(
        self, dataflow: str, sink: str, *, desired: Desired | None = None, choice: str | None = None
    ) -> SinkRecord:
        """Store the state, or the choice, that an operator wants for a sink; return the sink.

        Its wait after a failure ends, so it is tried at once. Raises `NotFoundError`.
        """
        with held(self._database, dataflow) as connection:
            row = connection.execute(select(sinks).where(*_of(dataflow, sink))).first()
            if row is None:
                raise NotFoundError(kind="sink", name=f"{dataflow}.{sink}")
            values: dict[str, Any] = {"standing": {**row.standing, "retry_ms": 0}}
            values |= {} if desired is None else {"desired": desired}
            values |= {} if choice is None else {"choice": choice}
            connection.execute(update_table(sinks).where(*_of(dataflow, sink)).values(values))
            return _record(connection.execute(_query().where(*_of(dataflow, sink))).one())

    def forget_sinks(self, dataflow: str, *, keep: Collection[str]) -> None:
        """Remove the sinks of a dataflow that are not in `keep`; raises `NotFoundError`."""
        with held(self._database, dataflow) as connection:
            gone = sinks.c.sink.not_in(sorted(keep))
            connection.execute(delete_from(sinks).where(sinks.c.dataflow == dataflow, gone))


def _query() -> Select[Any]:
    """Return the query of all sinks, with the end of each one's flow."""
    i = increments.c
    mine = i.dataflow == sinks.c.dataflow, i.flow == sinks.c.flow
    end = select(func.max(i.idx) + 1).where(*mine).scalar_subquery()
    since = select(i.created_at).where(*mine, i.idx == sinks.c.next).scalar_subquery()
    return select(sinks, end.label("end"), since.label("waits_since"))


def _of(dataflow: str, sink: str) -> tuple[Any, ...]:
    return sinks.c.dataflow == dataflow, sinks.c.sink == sink


def _record(row: Row[Any]) -> SinkRecord:
    return SinkRecord(**(rows.fields_of(SinkRecord, row) | {"end": row.end or 0}))
