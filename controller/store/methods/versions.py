"""Store methods that bring a dataflow to a new version.

One transaction: before it every stage, input and queue is that of the old version; after it they
are those of the new version, at the position in its description. It does not depend on what was
there before. So it works for a store of the old version, and for a lost store that begins with the
new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from cbp.model.schedule.priority import NORMAL, Priority
from controller.store.database.connections import Database
from controller.store.methods.events import tell
from controller.store.methods.frames import EMPTY, write_frames
from controller.store.methods.positions import (
    close_again,
    restore_queue,
    standing,
    store_increments,
)
from controller.store.methods.writer_lock import hold
from controller.store.records import DataflowRecord, Event, StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, increments, queue, runs, stages, wiring

__all__ = ["Versions"]


class Versions:
    """Methods of `Store`."""

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

        What arrived at sources since the position is queued behind it. Increments of removed
        flows stay known; runs of removed stages do not.

        Args:
            record: Carries the new version and document; other fields are ignored.
            stages: As in `register`.
            framed: As in `register`.
            position: Where the new version begins; has every stage and input of `stages`.
            fresh: Stages that go on if an error paused them. Who paused a stage resumes it.
            priorities: Those of stages that the store does not know; others keep theirs.
            at: Time for increments and stages that the store does not know.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        with self._database.write() as connection:
            hold(connection, record.name)
            _remove_wiring(connection, record.name)
            _bring_stages(connection, record.name, position, fresh, priorities, at)
            connection.execute(
                update_table(dataflows)
                .where(dataflows.c.name == record.name)
                .values(
                    version=record.version,
                    document=dict(record.document),
                )
            )
            store_increments(connection, position, at)
            ends = {increment.flow: increment.index for increment in position.newest}
            for stage, inputs in stages.items():
                for number, (input_, flow) in enumerate(inputs.items()):
                    place = {"dataflow": record.name, "stage": stage, "input": input_}
                    framing = EMPTY if (stage, input_) in framed else None
                    wired = {**place, "flow": flow, "position": number, "framing": framing}
                    connection.execute(insert(wiring), wired)
                    connector = position.stages[stage].connectors[input_]
                    if framing is not None:
                        write_frames(connection, record.name, stage, connector)
                    later = _behind(connection, record.name, flow, ends.get(flow, -1))
                    held = [*standing(connector), *later]
                    restore_queue(connection, record.name, stage, input_, held)
            # Closes made since the version's description was put: they count for the new version.
            close_again(connection, position)
            tell(connection, Event(kind="dataflow.changed", dataflow=record.name))


def _remove_wiring(connection: Connection, dataflow: str) -> None:
    for table in (queue, wiring):
        connection.execute(delete_from(table).where(table.c.dataflow == dataflow))


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
            connection.execute(insert(stages), rows.stage_row(new))
            continue
        values: dict[str, Any] = {
            "epoch": stage.epoch,
            "memo": stage.memo,
            "turns": stage.turns,
            "due_ms": stage.due_ms,
            "failures": 0,
            "retry_at": None,
        }
        if name in fresh and known[name].error is not None:
            values["error"] = None
            if not known[name].is_paused:
                values["paused_because"] = ""
        connection.execute(update_table(stages).where(here, stages.c.stage == name).values(values))


def _behind(
    connection: Connection, dataflow: str, flow: str, index: int
) -> list[tuple[Increment, bool]]:
    """Return the increments of a flow that came after the position, oldest first."""
    query = select(increments).where(
        increments.c.dataflow == dataflow, increments.c.flow == flow, increments.c.idx > index
    )
    later_rows = connection.execute(query.order_by(increments.c.idx))
    return [(rows.increment_of(row), False) for row in later_rows]
