"""Claims: files that arrived in a drop folder, including those in quarantine."""

from __future__ import annotations

from fastapi import Query
from pydantic import Field

from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import ClaimOut, Page
from controller.api.figures.rejected import rejected_by_claim
from controller.api.requests.moments import RefusalPageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.store.base import ClaimRecord, ClaimStatus

routes = router("claims")


class ClaimQuery(RefusalPageQuery):
    """Which claims to list."""

    source: str | None = Field(None, max_length=200)
    status: ClaimStatus | None = None
    increment: int | None = Field(
        None, ge=0, lt=2**63, description="Only files of this increment of the source."
    )


@routes.get("/dataflows/{name}/claims", responses=problems(404))
@needs(Scope.VIEWER, read_anywhere=True, lasting=True)
def list_claims(
    name: str, store: StoreDep, cursors: CursorsDep, query: ClaimQuery = Query()
) -> Page[ClaimOut]:
    """List claims, newest first; `status=quarantined` lists refused files with reasons."""
    record = store.dataflow(name)
    page = store.claims(
        name,
        query.source,
        status=query.status,
        index=query.increment,
        code=query.code,
        since=query.since,
        until=query.until,
        cursor=cursors.open(query.cursor),
        limit=cursors.size(query),
    )
    rejected = rejected_by_claim(record, page.items, store)
    items = [claim_out(claim, rejected.get(claim.id, 0)) for claim in page.items]
    return Page(items=items, cursor=cursors.seal(page.cursor))


def claim_out(claim: ClaimRecord, rejected: int = 0) -> ClaimOut:
    """Return a claim as the API shows it; only an accepted file can have rejected records."""
    return ClaimOut.of(
        claim,
        path=json_value(claim.path),
        rejected=rejected,
        reason=json_value(claim.reason),
        same_as=json_value(claim.same_as),
    )
