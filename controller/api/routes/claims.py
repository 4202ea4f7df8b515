"""Claims: files that arrived in a drop folder, including those in quarantine."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import ClaimOut, Page, PageQuery
from controller.api.routing.dependencies import SettingsDep, StoreDep
from controller.api.routing.routers import page_size, problems, router
from controller.store.base import ClaimRecord, ClaimStatus

__all__ = ["claim_out", "routes"]

routes = router("claims")


class ClaimQuery(PageQuery):
    """Which claims to list."""

    source: str | None = Field(None, max_length=200)
    status: ClaimStatus | None = None


@routes.get("/dataflows/{name}/claims", responses=problems(404))
def list_claims(
    name: str, store: StoreDep, settings: SettingsDep, query: Annotated[ClaimQuery, Query()]
) -> Page[ClaimOut]:
    """List claims, newest first; `status=quarantined` lists what was refused, and why."""
    store.dataflow(name)
    page = store.claims(
        name,
        query.source,
        status=query.status,
        cursor=query.cursor,
        limit=page_size(settings, query),
    )
    return Page(items=[claim_out(claim) for claim in page.items], cursor=page.cursor)


def claim_out(claim: ClaimRecord) -> ClaimOut:
    """Return a claim as the API shows it."""
    return ClaimOut(
        id=claim.id,
        dataflow=claim.dataflow,
        source=claim.source,
        sequence=claim.sequence,
        path=json_value(claim.path),
        bytes=claim.bytes,
        status=claim.status,
        sha256=claim.sha256,
        index=claim.index,
        reason=None if claim.reason is None else json_value(claim.reason),
        same_as=None if claim.same_as is None else json_value(claim.same_as),
        created_at=claim.created_at,
    )
