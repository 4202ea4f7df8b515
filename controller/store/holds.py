"""What every writing method takes first: the dataflow, so that its writers are serial.

On PostgreSQL the row of the dataflow is locked until the transaction ends; SQLite
has one writer at a time anyway. Writers take the dataflow before anything else,
so that two of them never wait for each other in a circle.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from cbp.errors import NotFoundError
from controller.store import rows
from controller.store.base import StageRecord
from controller.store.tables import dataflows, stages

__all__ = ["hold", "hold_stage"]


def hold(connection: Connection, dataflow: str) -> None:
    """Keep other writers of a dataflow out until the transaction ends.

    Raises:
        NotFoundError: If there is no such dataflow.
    """
    query = select(dataflows.c.name).where(dataflows.c.name == dataflow).with_for_update()
    if connection.execute(query).first() is None:
        raise NotFoundError(kind="dataflow", name=dataflow)


def hold_stage(connection: Connection, dataflow: str, stage: str) -> StageRecord:
    """Like `hold`; returns a stage as it now is, and stays until the end.

    Raises:
        NotFoundError: If there is no such dataflow or stage.
    """
    hold(connection, dataflow)
    query = select(stages).where(stages.c.dataflow == dataflow, stages.c.stage == stage)
    row = connection.execute(query).first()
    if row is None:
        raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
    return rows.stage_of(row)
