"""Snapshots: consistent versions of all tables of a dataflow."""

from __future__ import annotations

from datetime import datetime

from fastapi import Query
from pydantic import Field

from cbp.model.instants import instant_of
from controller.api.answers.schemas import Model
from controller.api.requests.moments import MomentQuery, as_of
from controller.api.routing.dependencies import SnapshotsDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.reading.reader import AsOf

routes = router("snapshots")


class TableOut(Model):
    """One table of a snapshot."""

    table: str
    path: str
    version: int = Field(description="Version for `VERSION AS OF`, `versionAsOf` or `version=`.")
    epoch: int = Field(description="Last epoch that changed the table; -1 if none did.")


class SnapshotOut(Model):
    """Consistent versions of all tables of a dataflow."""

    dataflow: str
    at: datetime = Field(description="Time for `TIMESTAMP AS OF`.")
    newest: bool
    readable_until: datetime = Field(
        description="Time until which garbage collection keeps the files of this snapshot."
    )
    epochs: dict[str, int] = Field(
        description="Maps each stage to its last epoch in the snapshot; -1 if there is none."
    )
    tables: list[TableOut]


@routes.get("/dataflows/{name}/snapshot", responses=problems(404))
@needs(Scope.VIEWER, read_anywhere=True)
def take(name: str, snapshots: SnapshotsDep, query: MomentQuery = Query()) -> SnapshotOut:
    """Return versions of all tables that show the same publications, while runs continue."""
    asked = as_of(query) or AsOf()
    snapshot = snapshots.take(name, epoch=asked.epoch, stage=asked.stage, at_ms=asked.at_ms)
    return SnapshotOut.of(
        snapshot,
        at=instant_of(snapshot.at_ms),
        readable_until=instant_of(snapshot.readable_until_ms),
        tables=[
            TableOut.of(shown, table=table, path=f"{snapshot.folder}/{table}")
            for table, shown in snapshot.tables.items()
        ],
    )
