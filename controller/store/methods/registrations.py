"""Store methods for dataflows, their stages and their connectors, and for new versions of them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.model.flow.connector import Connector
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from cbp.model.schedule.priority import NORMAL, Priority
from controller.store.database.connections import Database, insert_new
from controller.store.methods import queues
from controller.store.methods.events import tell
from controller.store.methods.frames import EMPTY
from controller.store.methods.leases import held
from controller.store.methods.positions import (
    close_again,
    restore_input,
    restore_stage,
    store_increments,
)
from controller.store.records import DataflowDesired, DataflowRecord, Event, EventKind, StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import (
    dataflows,
    increments,
    metadata,
    queue,
    runs,
    stages,
    wiring,
)

# Almost every request runs these; building a statement takes as long as executing it.
_DATAFLOW = select(dataflows).where(dataflows.c.name == bindparam("name"))
_REVISIONS = select(dataflows.c.name, dataflows.c.revision).order_by(dataflows.c.name)
_STAGES = select(stages).where(stages.c.dataflow == bindparam("dataflow")).order_by(stages.c.stage)

_NAMED_MAX = 100
"""If more dataflows than this have changed, all dataflows are read."""

_REVISION_BITS = 48
_NEVER: tuple[int, None] = (-1, None)

_TOLD: dict[DataflowDesired, EventKind] = {
    "drained": "dataflow.drained",
    "draining": "dataflow.draining",
    "paused": "dataflow.paused",
    "running": "dataflow.resumed",
}


class Registrations:
    """Store methods for dataflows, their stages and connectors; see `Store`."""

    _database: Database
    _known: dict[str, queues.Known]
    _records: dict[str, tuple[int, DataflowRecord]]

    def register(
        self,
        record: DataflowRecord,
        stages: Mapping[str, Mapping[str, str]],
        framed: Collection[tuple[str, str]] = (),
    ) -> None:
        """Add a dataflow with its stages and empty connectors. Raises `AlreadyExistsError`.

        Args:
            record: The dataflow; its stages begin to wait at `created_at`.
            stages: Stage -> its wiring (input name -> flow name).
            framed: The (stage, input) pairs that frame their flow; arrivals wait there until
                `frame` is called.
        """
        with self._database.write() as connection:
            # Random, so that it differs from the number of any deleted dataflow.
            row = rows.row_of(record) | {"revision": secrets.randbits(_REVISION_BITS)}
            insert_new(connection, dataflows, row, kind="dataflow", name=record.name)
            for stage, inputs in stages.items():
                _add_stage(connection, StageRecord(record.name, stage, 0, record.created_at))
                _wire(connection, record.name, stage, inputs, framed)
            tell(connection, Event(kind="dataflow.registered", dataflow=record.name))

    def dataflows(self) -> list[DataflowRecord]:
        """Return every dataflow, by name."""
        return list(self._database.kept.get("dataflows", self._read_dataflows))

    def _read_dataflows(self) -> tuple[DataflowRecord, ...]:
        kept = self._records
        with self._database.read() as connection:
            revisions = _revisions(connection)
            changed = [name for name, now in revisions.items() if kept.get(name, _NEVER)[0] != now]
            query = select(dataflows)
            if len(changed) <= _NAMED_MAX:  # their number is limited by the database
                query = query.where(dataflows.c.name.in_(changed))
            read = connection.execute(query).all() if changed else ()
        fresh = {row.name: (row.revision, rows.dataflow_of(row)) for row in read}
        self._records = {name: fresh.get(name) or kept[name] for name in revisions}
        return tuple(record for _, record in self._records.values())

    def revisions(self) -> dict[str, int]:
        """Return dataflow -> its revision, by name, with one statement.

        It changes with each transaction, of any instance, that changes the dataflow, its stages,
        queues, claims, sinks or runs, but not when old rows are removed. Data that was read after
        the revision is current as long as the revision is the same. A dataflow that was deleted and
        registered again has another revision.
        """
        return dict(self._database.kept.get("revisions", self._read_revisions))

    def _read_revisions(self) -> dict[str, int]:
        with self._database.read_once() as connection:
            return _revisions(connection)

    def dataflow(self, name: str) -> DataflowRecord:
        """Return one dataflow; raises `NotFoundError`."""
        return self._database.kept.get(("dataflow", name), lambda: self._read_dataflow(name))

    def _read_dataflow(self, name: str) -> DataflowRecord:
        return self._database.one(_DATAFLOW, rows.dataflow_of, "dataflow", name, name=name)

    def set_desired(
        self, name: str, desired: DataflowDesired, *, instead_of: DataflowDesired | None = None
    ) -> None:
        """Record the desired state of a dataflow; raises `NotFoundError`.

        `running` also clears the failures of its stages, and lifts their pauses.

        Args:
            instead_of: Change nothing unless this was the desired state until now.
        """
        with held(self._database, name) as connection:
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
        """Set the priorities of all stages; a missing stage gets normal. Raises `NotFoundError`."""
        with held(self._database, dataflow) as connection:
            known = select(stages.c.stage, stages.c.priority).where(stages.c.dataflow == dataflow)
            events = []
            for stage, priority in connection.execute(known.order_by(stages.c.stage)).all():
                if priority != (wanted := priorities.get(stage, NORMAL)):
                    here = (stages.c.dataflow == dataflow, stages.c.stage == stage)
                    connection.execute(update_table(stages).where(*here).values(priority=wanted))
                    events.append(
                        Event(
                            kind="stage.prioritized", dataflow=dataflow, stage=stage, subject=stage
                        )
                    )
            if events:
                tell(connection, *events)

    def delete(self, name: str) -> None:
        """Remove a dataflow and all its rows, but not its tables; raises `NotFoundError`."""
        with held(self._database, name) as connection:
            for table in reversed(metadata.sorted_tables):
                parts = table.foreign_keys and "dataflow" in table.c
                if table is not dataflows and not parts:
                    continue  # its rows belong to no dataflow
                owner = table.c.name if table is dataflows else table.c.dataflow
                connection.execute(delete_from(table).where(owner == name))
            tell(connection, Event(kind="dataflow.deleted", dataflow=name))
        self._known.pop(name, None)

    def stages(self, dataflow: str) -> list[StageRecord]:
        """Return the stages of a dataflow, by name."""
        return self._database.rows(_STAGES, rows.stage_of, dataflow=dataflow)

    def all_stages(self) -> list[StageRecord]:
        """Return the stages of all dataflows, by dataflow and name, with one statement.

        It fails if one row is unreadable; `stages` then finds its dataflow.
        """
        query = select(stages).order_by(stages.c.dataflow, stages.c.stage)
        return self._database.rows(query, rows.stage_of)

    def epochs(self) -> dict[str, int]:
        """Return dataflow -> how many epochs it has committed, over all its stages."""
        query = select(stages.c.dataflow, func.sum(stages.c.epoch)).group_by(stages.c.dataflow)
        with self._database.read_once() as connection:
            return {name: int(epochs) for name, epochs in connection.execute(query)}

    def connectors(self, dataflow: str) -> dict[str, dict[str, Connector]]:
        """Return stage -> input -> connector, including inputs without increments."""
        with self._database.read() as connection:
            return queues.connectors(connection, dataflow, self._known)


def _revisions(connection: Connection) -> dict[str, int]:
    return {row.name: row.revision for row in connection.execute(_REVISIONS)}


def _add_stage(connection: Connection, stage: StageRecord) -> None:
    connection.execute(insert(stages), rows.row_of(stage))


def _wire(
    connection: Connection,
    dataflow: str,
    stage: str,
    inputs: Mapping[str, str],
    framed: Collection[tuple[str, str]],
) -> None:
    wired = [
        {
            "dataflow": dataflow,
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


class Versions:
    """Store methods for changes from one version of a dataflow to the next; see `Store`.

    A change is one transaction: before it every stage, input and queue is that of the old version;
    after it they are those of the new one, at the position in its description. It does not depend
    on what was there before. So it works for a store of the old version, and for a lost store that
    begins with the new one.
    """

    _database: Database

    def change(
        self,
        record: DataflowRecord,
        stages: Mapping[str, Mapping[str, str]],
        framed: Collection[tuple[str, str]] = (),
        *,
        position: Position,
        fresh: Collection[str] = (),
        priorities: Mapping[str, Priority] = MappingProxyType({}),
        at: datetime,
    ) -> None:
        """Bring a dataflow to a new version, with exactly these stages, inputs and queues.

        Later arrivals at sources are queued after the position. Increments of removed
        flows stay known; runs of removed stages do not.

        Args:
            record: Carries the new version and document; other fields are ignored.
            position: Where the new version begins; has every stage and input of `stages`.
            fresh: Stages to resume if an error paused them; a stage that a user paused stays
                paused.
            priorities: Priorities of new stages; others keep theirs.
            at: Time for new increments and stages.

        Raises `NotFoundError`.
        """
        with held(self._database, record.name) as connection:
            for table in (queue, wiring):
                connection.execute(delete_from(table).where(table.c.dataflow == record.name))
            _bring_stages(connection, record.name, position, fresh, priorities, at)
            connection.execute(
                update_table(dataflows)
                .where(dataflows.c.name == record.name)
                .values(version=record.version, document=dict(record.document))
            )
            store_increments(connection, position, at)
            ends = {increment.flow: increment.index for increment in position.newest}
            for stage, inputs in stages.items():
                _wire(connection, record.name, stage, inputs, framed)
                for input_, flow in inputs.items():
                    connector = position.stages[stage].connectors[input_]
                    later = _behind(connection, record.name, flow, ends.get(flow, -1))
                    restore_input(connection, record.name, stage, connector, later)
            # Closes made after the version's description was written count for the new version.
            close_again(connection, position)
            tell(connection, Event(kind="dataflow.changed", dataflow=record.name))


def _bring_stages(
    connection: Connection,
    dataflow: str,
    position: Position,
    fresh: Collection[str],
    priorities: Mapping[str, Priority],
    at: datetime,
) -> None:
    here = stages.c.dataflow == dataflow
    known = {
        row.stage: rows.stage_of(row) for row in connection.execute(select(stages).where(here))
    }
    for gone in known.keys() - position.stages.keys():
        # Runs of a removed stage stay in the intention log only.
        for table in (runs, stages):
            mine = (table.c.dataflow == dataflow, table.c.stage == gone)
            connection.execute(delete_from(table).where(*mine))
    for name, stage in position.stages.items():
        if name not in known:
            new = StageRecord(
                dataflow, name, epoch=stage.epoch, waiting_since=at, memo=stage.memo,
                priority=priorities.get(name, NORMAL),
                turns=stage.turns, due_ms=stage.due_ms,
            )  # fmt: skip
            _add_stage(connection, new)
            continue
        resumed: dict[str, Any] = {}
        if name in fresh and known[name].error is not None:
            resumed["error"] = None
            if not known[name].is_paused:
                resumed["paused_because"] = ""
        restore_stage(connection, dataflow, name, stage, **resumed)


def _behind(
    connection: Connection, dataflow: str, flow: str, index: int
) -> list[tuple[Increment, bool]]:
    """Return the increments of a flow after the position, oldest first."""
    query = select(increments).where(
        increments.c.dataflow == dataflow, increments.c.flow == flow, increments.c.idx > index
    )
    later_rows = connection.execute(query.order_by(increments.c.idx))
    return [(rows.increment_of(row), False) for row in later_rows]
