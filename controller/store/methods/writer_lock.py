"""The lock that every writing method takes first: the dataflow's, so that its writers are serial.

On PostgreSQL the dataflow's row is locked until the transaction ends; SQLite has only one writer
at a time. Writers take this lock before any other, so that no two writers deadlock.

The statement that locks also gives the dataflow its next revision. So what was read of a dataflow
is current for as long as its revision is, whichever instance writes
(tests/conformance/test_store_model.py).
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select
from sqlalchemy import update as update_table

from cbp.errors import NotFoundError
from controller.store.records import StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, stages

__all__ = ["hold", "hold_stage"]

_NEXT_REVISION = (
    update_table(dataflows)
    .where(dataflows.c.name == bindparam("held"))
    .values(revision=dataflows.c.revision + 1)
)


def hold(connection: Connection, dataflow: str) -> None:
    """Lock a dataflow against other writers until the transaction ends, and revise it.

    Raises:
        NotFoundError: If there is no such dataflow.
    """
    if not connection.execute(_NEXT_REVISION, {"held": dataflow}).rowcount:
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
