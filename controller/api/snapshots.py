"""Snapshots: the versions of all tables of a dataflow that belong together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, Field

from controller.api.problems import RequestInvalidError
from controller.api.routing import ServicesParameter, problems, router
from controller.api.schemas import Model

__all__ = ["routes"]

routes = router("snapshots")


class SnapshotQuery(Model):
    """Which snapshot a client wants; none of these: the newest."""

    epoch: int | None = Field(None, ge=0, description="The first that shows this epoch.")
    stage: str | None = Field(
        None, max_length=200, description="Whose epoch; by default every stage's."
    )
    at: AwareDatetime | None = Field(None, description="The newest one as of this time.")


class TableOut(Model):
    """One table of a snapshot."""

    table: str
    path: str
    version: int = Field(description="For `VERSION AS OF`, `versionAsOf`, `version=`.")
    epoch: int = Field(description="Last epoch that changed it; -1: none did.")


class SnapshotOut(Model):
    """Versions that belong together."""

    dataflow: str
    at: datetime = Field(description="For `TIMESTAMP AS OF`.")
    newest: bool
    readable_until: datetime = Field(description="Collection leaves its files alone until then.")
    epochs: dict[str, int] = Field(description="Stage to the last epoch in it; -1: none.")
    tables: list[TableOut]


@routes.get("/dataflows/{name}/snapshot", responses=problems(404))
def take(
    name: str, services: ServicesParameter, query: Annotated[SnapshotQuery, Query()]
) -> SnapshotOut:
    """Return versions of all tables that show the same publications, while runs go on."""
    if query.stage is not None and query.epoch is None:
        message = "a stage needs an epoch"
        mistake = {"code": "epoch_missing", "where": "query.stage", "message": message}
        raise RequestInvalidError([mistake])
    at_ms = None if query.at is None else int(query.at.timestamp() * 1000)
    found = services.controller.snapshots.take(
        name, epoch=query.epoch, stage=query.stage, at_ms=at_ms
    )
    return SnapshotOut(
        dataflow=found.dataflow,
        at=_time(found.at_ms),
        newest=found.newest,
        readable_until=_time(found.readable_until_ms),
        epochs=found.epochs,
        tables=[
            TableOut(
                table=table,
                path=f"{found.folder}/{table}",
                version=shown.version,
                epoch=shown.epoch,
            )
            for table, shown in found.tables.items()
        ],
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
