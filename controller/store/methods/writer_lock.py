"""The lock that every writing method takes first: the dataflow's, so that its writers are serial.

On PostgreSQL the dataflow's row is locked until the transaction ends; SQLite has only one writer
at a time. Writers take this lock before any other, so that no two writers deadlock.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from cbp.errors import NotFoundError
from controller.store.base import StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, stages

__all__ = ["hold", "hold_stage"]


def hold(connection: Connection, dataflow: str) -> None:
    """Lock a dataflow against other writers until the transaction ends.

    Raises:
        NotFoundError: If there is no such dataflow.
    """
    query = select(dataflows.c.name).where(dataflows.c.name == dataflow).with_for_update()
    if connection.execute(query).first() is None:
        raise NotFoundError(kind="dataflow", name=dataflow)


def hold_stage(connection: Connection, dataflow: str, stage: str) -> StageRecord:
    """Like `hold`; return the stage, which stays as it is until the transaction ends.

    Raises:
        NotFoundError: If there is no such dataflow or stage.
    """
    hold(connection, dataflow)
    query = select(stages).where(stages.c.dataflow == dataflow, stages.c.stage == stage)
    row = connection.execute(query).first()
    if row is None:
        raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
    return rows.stage_of(row)
