"""Rejected records of files whose other records were taken in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from cbp.errors import NotFoundError
from controller.access.scopes import Scope
from controller.api.answers.schemas import Model, Page
from controller.api.requests.moments import RefusalPageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import ControllerDep, StoreDep
from controller.api.routing.routers import problems, router
from controller.api.routing.scope_check import needs
from controller.ingest.rejects_table import Chosen, read_rejects

routes = router("sources")


class RejectsQuery(RefusalPageQuery):
    """Which rejected records to list."""

    increment: int | None = Field(
        None, ge=0, lt=2**63, description="Only records of the files of this increment."
    )


class RejectedRecordOut(Model):
    """One rejected record."""

    increment: int = Field(description="Index of the increment that has the file's other records.")
    claim: str = Field(description="Id of the file's claim.")
    file: str = Field(description="Name of the file.")
    line: int = Field(description="Line in the decompressed text (row of a binary file), from 1.")
    column_name: str | None = Field(description="Null if the record as a whole is wrong.")
    code: str = Field(description="What is wrong, as a stable code.")
    message: str = Field(description="The found and the expected value.")
    text: str = Field(description="The record, cut to 1,000 characters.")
    rejected_at: datetime = Field(description="When the file was taken in.")


@routes.get("/dataflows/{name}/sources/{source}/rejects", responses=problems(400, 404))
@needs(Scope.VIEWER)
def list_rejects(
    name: str,
    source: str,
    store: StoreDep,
    controller: ControllerDep,
    cursors: CursorsDep,
    query: Annotated[RejectsQuery, Query()],
) -> Page[RejectedRecordOut]:
    """List the rejected records of a source, newest increment first."""
    record = store.dataflow(name)
    if source not in controller.dataflow(name).sources:
        raise NotFoundError(kind="source", name=f"{name}.{source}")
    rows, place = read_rejects(
        record.folder,
        source,
        below=cursors.pair(query.cursor),
        limit=cursors.size(query),
        chosen=Chosen(query.code, query.increment, query.since, query.until),
    )
    items = [RejectedRecordOut.model_validate(row) for row in rows]
    following = None if place is None else f"{place[0]}/{place[1]}"
    return Page(items=items, cursor=cursors.seal(following))
