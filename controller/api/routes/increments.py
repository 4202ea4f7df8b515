"""Increments of a dataflow's flows, newest first."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import FileOut, IncrementOut, Page, PageQuery
from controller.api.routing.dependencies import SettingsDep, StoreDep
from controller.api.routing.routers import page_size, problems, router
from controller.store.base import IncrementRecord

__all__ = ["routes"]

routes = router("increments")


class IncrementQuery(PageQuery):
    """Which increments to list."""

    flow: str | None = Field(None, max_length=200, description="`source` or `stage.output`.")


@routes.get("/dataflows/{name}/increments", responses=problems(404))
def list_increments(
    name: str,
    store: StoreDep,
    settings: SettingsDep,
    query: Annotated[IncrementQuery, Query()],
) -> Page[IncrementOut]:
    """List the increments of a dataflow."""
    store.dataflow(name)
    limit = page_size(settings, query)
    page = store.increments(name, query.flow, cursor=query.cursor, limit=limit)
    return Page(items=[_shown(record) for record in page.items], cursor=page.cursor)


@routes.get("/dataflows/{name}/increments/{flow}/{index}", responses=problems(404))
def show(
    name: str,
    flow: str,
    # A database rejects larger numbers, with an error of its own.
    index: Annotated[int, Path(ge=0, le=(1 << 63) - 1)],
    store: StoreDep,
) -> IncrementOut:
    """Show one increment."""
    return _shown(store.increment(name, flow, index))


def _shown(record: IncrementRecord) -> IncrementOut:
    increment = record.increment
    return IncrementOut(
        flow=increment.flow,
        index=increment.index,
        framing_key=increment.framing_key,
        records=increment.records,
        bytes=increment.bytes,
        created_at=record.created_at,
        origin=json_value(record.origin),
        files=[FileOut(path=f.path, records=f.records, bytes=f.bytes) for f in increment.files],
    )
