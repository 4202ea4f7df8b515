"""Store methods for dataflows, their stages and their connectors."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, bindparam, func, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import NotFoundError
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.schedule.priority import NORMAL, Priority
from controller.store.base import DataflowDesired, DataflowRecord, Event, StageRecord
from controller.store.database.connections import Database, insert_new
from controller.store.methods import queues
from controller.store.methods.events import tell
from controller.store.methods.frames import EMPTY, keep_frames
from controller.store.methods.writer_lock import hold, hold_stage
from controller.store.records import EventKind
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, metadata, stages, wiring

__all__ = ["Registrations"]

# Almost every request asks these; to build a statement takes as long as to execute it.
_DATAFLOW = select(dataflows).where(dataflows.c.name == bindparam("name"))
_REVISIONS = select(dataflows.c.name, dataflows.c.revision).order_by(dataflows.c.name)
_STAGES = select(stages).where(stages.c.dataflow == bindparam("dataflow")).order_by(stages.c.stage)

_NAMED_MAX = 100
"""More dataflows than these are read all together."""

_REVISION_BITS = 48
_NEVER: tuple[int, None] = (-1, None)

_TOLD: dict[DataflowDesired, EventKind] = {
    "drained": "dataflow.drained",
    "draining": "dataflow.draining",
    "paused": "dataflow.paused",
    "running": "dataflow.resumed",
}


class Registrations:
    """Methods of `SqlStore`; see `controller.store.base` for what they guarantee."""

    _database: Database
    _known: dict[str, queues.Known]
    _records: dict[str, tuple[int, DataflowRecord]]

    def register(
        self,
        record: DataflowRecord,
        stages: Mapping[str, Mapping[str, str]],
        framed: Collection[tuple[str, str]] = (),
    ) -> None:
        """See `Store.register`."""
        with self._database.write() as connection:
            # Drawn: one that was deleted had another number, whatever it was.
            row = rows.dataflow_row(record) | {"revision": secrets.randbits(_REVISION_BITS)}
            insert_new(connection, dataflows, row, kind="dataflow", name=record.name)
            for stage, inputs in stages.items():
                _insert_stage(connection, record, stage, inputs, framed)
            tell(connection, Event(kind="dataflow.registered", dataflow=record.name))

    def dataflows(self) -> list[DataflowRecord]:
        """See `Store.dataflows`."""
        kept = self._records
        with self._database.read() as connection:
            revisions = _revisions(connection)
            changed = [
                name
                for name, revision in revisions.items()
                if kept.get(name, _NEVER)[0] != revision
            ]
            query = select(dataflows)
            if len(changed) <= _NAMED_MAX:  # their number is limited by the database
                query = query.where(dataflows.c.name.in_(changed))
            read = connection.execute(query).all() if changed else ()
        fresh = {row.name: (row.revision, rows.dataflow_of(row)) for row in read}
        self._records = {name: fresh.get(name) or kept[name] for name in revisions}
        return [record for _, record in self._records.values()]

    def revisions(self) -> dict[str, int]:
        """See `Store.revisions`."""
        with self._database.read_once() as connection:
            return _revisions(connection)

    def dataflow(self, name: str) -> DataflowRecord:
        """See `Store.dataflow`."""
        with self._database.read_once() as connection:
            row = connection.execute(_DATAFLOW, {"name": name}).first()
        if row is None:
            raise NotFoundError(kind="dataflow", name=name)
        return rows.dataflow_of(row)

    def set_desired(
        self, name: str, desired: DataflowDesired, *, instead_of: DataflowDesired | None = None
    ) -> None:
        """See `Store.set_desired`; `running` also lifts the pauses of its stages."""
        with self._database.write() as connection:
            hold(connection, name)
            known = select(dataflows.c.desired).where(dataflows.c.name == name)
            if instead_of is not None and connection.execute(known).scalar() != instead_of:
                return
            connection.execute(
                update_table(dataflows).where(dataflows.c.name == name).values(desired=desired)
            )
            if desired == "running":
                fresh = {"failures": 0, "retry_at": None, "paused_because": "", "error": None}
                connection.execute(
                    update_table(stages).where(stages.c.dataflow == name).values(fresh)
                )
            tell(connection, Event(kind=_TOLD[desired], dataflow=name))

    def set_priorities(self, dataflow: str, priorities: Mapping[str, Priority]) -> None:
        """See `Store.set_priorities`; raises `NotFoundError`."""
        with self._database.write() as connection:
            hold(connection, dataflow)
            known = select(stages.c.stage, stages.c.priority).where(stages.c.dataflow == dataflow)
            changed = []
            for stage, priority in connection.execute(known.order_by(stages.c.stage)).all():
                if priority != (wanted := priorities.get(stage, NORMAL)):
                    here = (stages.c.dataflow == dataflow, stages.c.stage == stage)
                    connection.execute(update_table(stages).where(*here).values(priority=wanted))
                    changed.append(stage)
            events = (
                Event(kind="stage.prioritized", dataflow=dataflow, stage=stage, subject=stage)
                for stage in changed
            )
            if changed:
                tell(connection, *events)

    def delete(self, name: str) -> None:
        """See `Store.delete`; raises `NotFoundError`."""
        with self._database.write() as connection:
            hold(connection, name)
            for table in reversed(metadata.sorted_tables):
                parts = table.foreign_keys and "dataflow" in table.c
                if table is not dataflows and not parts:
                    continue  # its rows are no part of a dataflow
                owner = table.c.name if table is dataflows else table.c.dataflow
                connection.execute(delete_from(table).where(owner == name))
            tell(connection, Event(kind="dataflow.deleted", dataflow=name))
        self._known.pop(name, None)

    def stages(self, dataflow: str) -> list[StageRecord]:
        """See `Store.stages`; empty for an unknown dataflow."""
        with self._database.read_once() as connection:
            return [
                rows.stage_of(row) for row in connection.execute(_STAGES, {"dataflow": dataflow})
            ]

    def all_stages(self) -> list[StageRecord]:
        """See `Store.all_stages`."""
        query = select(stages).order_by(stages.c.dataflow, stages.c.stage)
        with self._database.read_once() as connection:
            return [rows.stage_of(row) for row in connection.execute(query)]

    def epochs(self) -> dict[str, int]:
        """See `Store.epochs`."""
        query = select(stages.c.dataflow, func.sum(stages.c.epoch)).group_by(stages.c.dataflow)
        with self._database.read_once() as connection:
            return {name: int(epochs) for name, epochs in connection.execute(query)}

    def frame(
        self,
        dataflow: str,
        stage: str,
        input_: str,
        *,
        index: int | None,
        framing: Framing,
        frames: Sequence[Increment],
    ) -> None:
        """See `Store.frame`."""
        with self._database.write() as connection:
            hold_stage(connection, dataflow, stage)
            keep_frames(
                connection,
                dataflow,
                stage,
                input_=input_,
                index=index,
                framing=framing,
                frames=frames,
            )
            framed = Event(kind="increment.framed", dataflow=dataflow, stage=stage, subject=input_)
            tell(connection, framed)

    def connectors(self, dataflow: str) -> dict[str, dict[str, Connector]]:
        """See `Store.connectors`; empty for an unknown dataflow."""
        with self._database.read() as connection:
            return queues.connectors(connection, dataflow, self._known)


def _revisions(connection: Connection) -> dict[str, int]:
    return {row.name: row.revision for row in connection.execute(_REVISIONS)}


def _insert_stage(
    connection: Connection,
    record: DataflowRecord,
    stage: str,
    inputs: Mapping[str, str],
    framed: Collection[tuple[str, str]],
) -> None:
    fresh = StageRecord(record.name, stage, epoch=0, waiting_since=record.created_at)
    connection.execute(insert(stages), rows.stage_row(fresh))
    wired = [
        {
            "dataflow": record.name,
            "stage": stage,
            "input": input_,
            "flow": flow,
            "position": position,
            "framing": EMPTY if (stage, input_) in framed else None,
        }
        for position, (input_, flow) in enumerate(inputs.items())
    ]
    if wired:
        connection.execute(insert(wiring), wired)
