"""The versions of a dataflow, each with its document and its differences from the previous one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Header, Path, Query, Response
from pydantic import Field

from cbp.errors import NotFoundError
from controller.api.answers.schemas import Model, Page
from controller.api.requests.moments import RangePageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import ExplainingDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.reading.explain import VersionEntry
from controller.registry.library import difference, document_text

routes = router("versions", "/dataflows/{name}/versions")

_NONE = 1 << 31


ETAG_HEADER = {
    "description": "The version in quotes, for `If-Match`.",
    "schema": {"type": "string"},
}
"""The header ETag, as the OpenAPI document describes it."""


def etag(version: int) -> str:
    """Return the entity tag of a version; a version never changes."""
    return f'"{version}"'


class VersionOut(Model):
    """One version of a dataflow."""

    version: int
    at: datetime = Field(description="When the version became current.")
    text: str = Field(description="The document as YAML; comments are not kept.")
    difference: list[str] | None = Field(
        description="Lines that differ from the previous version, as `diff -u` prints them; "
        "`null` if there is no previous version, or if the documents are too long to compare."
    )
    anew: list[str] = Field(
        description="Stages that the version changed, or whose state it started over."
    )


class VersionsQuery(RangePageQuery):
    """Which versions to list."""

    below: int = Field(_NONE, ge=1, le=_NONE, description="Only versions below this number.")


@routes.get("", responses=problems(404))
@needs(Scope.VIEWER)
def list_versions(
    name: str, explaining: ExplainingDep, cursors: CursorsDep, query: VersionsQuery = Query()
) -> Page[VersionOut]:
    """List the versions of a dataflow, newest first."""
    place = cursors.number(query.cursor)
    below = query.below if place is None else min(query.below, place)
    size = cursors.size(query)
    entries = explaining.versions(
        name, below=below, limit=size, since=query.since, until=query.until
    )
    more = len(entries) == size and entries[-1].version > 1
    return Page(
        items=[_shown(one) for one in entries],
        cursor=cursors.seal(str(entries[-1].version) if more else None),
    )


@routes.get(
    "/{version}",
    responses={
        **problems(404),
        200: {"headers": {"ETag": ETAG_HEADER}},
        304: {"description": "The version is still the one that `If-None-Match` names."},
    },
    response_model=VersionOut,
)
@needs(Scope.VIEWER)
def show(
    name: str,
    version: Annotated[int, Path(ge=1, lt=_NONE)],
    explaining: ExplainingDep,
    response: Response,
    if_none_match: Annotated[str | None, Header(max_length=200)] = None,
) -> VersionOut | Response:
    """Show one version; send its `ETag` as `If-Match` with a change."""
    entries = explaining.versions(name, below=version + 1, limit=1)
    if not entries or entries[0].version != version:
        raise NotFoundError(kind="version", name=f"{name}/{version}")
    if if_none_match == etag(version):
        return Response(status_code=304, headers={"ETag": etag(version)})
    response.headers["ETag"] = etag(version)
    return _shown(entries[0])


def _shown(one: VersionEntry) -> VersionOut:
    text = document_text(one.document)
    lines = None if one.previous is None else difference(document_text(one.previous), text)
    return VersionOut(
        version=one.version, at=one.at, text=text, difference=lines, anew=sorted(one.anew)
    )
