"""The audit log: who changed what, when, and with which outcome."""

from __future__ import annotations

from datetime import datetime

from fastapi import Query
from pydantic import Field

from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.requests.moments import ErrorCode, Instant
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import AccessDep
from controller.api.routing.router_factory import Scope, needs, router
from controller.store.access import AuditFilter, AuditRecord, Outcome

_NAME_LENGTH = 200

routes = router("audit")


class AuditQuery(PageQuery):
    """Which entries to list."""

    since: Instant | None = Field(None, description="Only entries from this time on.")
    until: Instant | None = Field(None, description="Only entries from before this time.")
    actor: str | None = Field(
        None,
        max_length=_NAME_LENGTH,
        description="Only requests by this actor: `token-file`, `token:NAME` or `oidc:SUBJECT`; or "
        "`service` for changes that the service made automatically.",
    )
    action: str | None = Field(
        None, max_length=_NAME_LENGTH, description="Only requests with this operationId."
    )
    dataflow: str | None = Field(None, max_length=_NAME_LENGTH)
    outcome: Outcome | None = None
    error_code: ErrorCode = Field(
        None, description="Only requests that were answered with this error code."
    )


class AuditOut(Model):
    """One request that changed something, or a count of refused requests of the same kind."""

    number: int
    at: datetime
    actor: str = Field(
        description="Owner of the credential; empty if no credential was recognised."
    )
    session: str | None = Field(description="The session of the page; `null` for a program.")
    scope: str
    user: str = Field(description="What the client says about its user; not verified.")
    action: str = Field(
        description="The operationId; empty if the request was refused before its route was known."
    )
    dataflow: str | None
    target: dict[str, str] = Field(description="Further names, such as `stage`, `run`, `token`.")
    reason: str
    outcome: Outcome
    status: int
    error_code: str | None
    request: str | None = Field(description="The `X-Request-Id` of the answer.")
    address: str
    count: int = Field(
        description="Number of refused requests that this entry counts; 1 for a request that was "
        "not refused."
    )


@routes.get("/audit")
@needs(Scope.OPERATOR)
def list_entries(
    access: AccessDep, cursors: CursorsDep, query: AuditQuery = Query()
) -> Page[AuditOut]:
    """List entries, newest first."""
    chosen = AuditFilter(**query.model_dump(exclude={"cursor", "limit"}))
    page = access.audit.list(chosen, cursor=cursors.open(query.cursor), limit=cursors.size(query))
    return Page(items=[_shown(entry) for entry in page.items], cursor=cursors.seal(page.cursor))


def _shown(entry: AuditRecord) -> AuditOut:
    return AuditOut.of(
        entry,
        session=entry.session or None,
        dataflow=entry.dataflow or None,
        error_code=entry.error_code or None,
        request=entry.request or None,
    )
