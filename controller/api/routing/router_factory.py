"""Router factory: the router of a resource module, and which of its routes the leader answers.

Every route of a router made here declares what its caller needs, and documents the problems that
any route may answer with.

Several instances may run. Any instance serves a route that only reads, unless the data is in the
leader's memory (`leader_only`), and a route that declares `any_instance`. All other routes are the
leader's; another instance answers 421 with the leader's address.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, Request

from cbp.model.schedule.lease import Role
from controller.access.scopes import Scope
from controller.api.answers.problems import MEDIA_TYPE
from controller.api.answers.request_errors import LedElsewhereError, NotLeadingError
from controller.api.routing.dependencies import parts_of
from controller.api.routing.scope_check import ScopedRoute, need_of, needs, operation_id
from controller.api.security.guard import bearer_scheme

__all__ = ["PREFIX", "Scope", "needs", "problems", "request_body", "router"]

PREFIX = "/api/v1"

_ANY = (400, 403, 422, 429, 500, 503)
_READS = ("GET", "HEAD", "OPTIONS")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI responses that carry a problem document, for these statuses."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def request_body(
    *media_types: str, schema: dict[str, Any], required: bool = True, **more: str
) -> dict[str, Any]:
    """Return the OpenAPI description of a body that the route reads without FastAPI."""
    content = {media_type: {"schema": schema} for media_type in media_types}
    return {"requestBody": {"required": required, "content": content, **more}}


def router(tag: str, below: str = "", *, prefix: str = PREFIX, is_open: bool = False) -> APIRouter:
    """Return a router whose routes declare their scopes; see `controller.api.routing.scope_check`.

    Its routes have their complete path, so that the application has all routes in one list. In an
    included router, FastAPI would examine each route twice for each request.

    Args:
        below: The common beginning of their paths, after the prefix.
        is_open: Whether all its routes are public: the guard lets them through.
    """
    checks = [] if is_open else [Depends(bearer_scheme), Depends(_led_here)]
    return APIRouter(
        prefix=prefix + below,
        tags=[tag],
        route_class=ScopedRoute,
        generate_unique_id_function=operation_id,
        dependencies=checks,
        responses=problems(*_ANY) if is_open else problems(*_ANY, 401, 421),
    )


async def _led_here(request: Request) -> None:
    """Refuse a request that only the leader serves; runs before a body is read."""
    need = need_of(request.scope["endpoint"])
    if need.any_instance or (request.method in _READS and not need.leader_only):
        return
    standing = parts_of(request).standing()
    if standing.role is Role.LEADS:
        return
    if standing.leader:
        raise LedElsewhereError(standing.leader)
    message = "no instance leads at the moment; try again later"
    raise NotLeadingError(message)
