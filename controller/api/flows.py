"""Flows: a page of the records of a flow, oldest increment first."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from cbp.errors import NotFoundError
from controller.api.routing import ServicesParameter, page_size, problems, router
from controller.api.schemas import PageQuery, Records
from controller.api.values import json_value

__all__ = ["routes"]

routes = router("flows")


@routes.get("/dataflows/{name}/flows/{flow}/records", responses=problems(404))
def read(
    name: str, flow: str, services: ServicesParameter, query: Annotated[PageQuery, Query()]
) -> Records:
    """Read a page of a flow; the flow of a source is named like the source."""
    if flow not in services.controller.dataflow(name).flows():
        raise NotFoundError(kind="flow", name=f"{name}/{flow}")
    limit = page_size(services, query)
    records, cursor = services.controller.read_flow(name, flow, query.cursor, limit)
    return Records(items=[json_value(record) for record in records], cursor=cursor)
