"""Router factory: the router of a resource module, and which of its routes the leader answers.

Every route of a router made here declares what its caller needs, and documents the problems that
any route may answer with.

Several instances may run. Any instance serves a route that only reads, unless the data is in the
leader's memory (`leader_only`), and a route marked `any_instance`. All other routes are the
leader's; another instance answers 421 with the leader's address.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request

from cbp.model.schedule.lease import Role
from controller.api.answers.problems import MEDIA_TYPE
from controller.api.answers.request_errors import LedElsewhereError, NotLeadingError
from controller.api.routing.dependencies import standing_of
from controller.api.routing.scope_check import ScopedRoute, operation_id
from controller.api.security.guard import bearer_scheme

PREFIX = "/api/v1"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ANY = (400, 403, 422, 429, 500, 503)
_READS = ("GET", "HEAD", "OPTIONS")
_ANYWHERE: set[Any] = set()
_LEADERS: set[Any] = set()


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


def router(tag: str, prefix: str = PREFIX) -> APIRouter:
    """Return a router whose routes declare their scopes; see `controller.api.routing.scope_check`.

    Its routes have their whole path, so that the application holds them in one list. In an
    included router, FastAPI would examine each route twice for each request.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=ScopedRoute,
        generate_unique_id_function=operation_id,
        dependencies=[Depends(bearer_scheme), Depends(_led_here)],
        responses=problems(*_ANY, 401, 421),
    )


def any_instance(endpoint: Endpoint) -> Endpoint:
    """Mark a route that writes only to the store, so that any instance can serve it."""
    _ANYWHERE.add(endpoint)
    return endpoint


def leader_only(endpoint: Endpoint) -> Endpoint:
    """Mark a route that reads data held only by the leader's process."""
    _LEADERS.add(endpoint)
    return endpoint


def open_router(tag: str) -> APIRouter:
    """Return a router whose routes are public: the guard lets them through."""
    return APIRouter(
        prefix=PREFIX,
        tags=[tag],
        route_class=ScopedRoute,
        generate_unique_id_function=operation_id,
        responses=problems(*_ANY),
    )


async def _led_here(request: Request) -> None:
    """Refuse a request that only the leader serves; runs before a body is read."""
    endpoint = request.scope["endpoint"]
    if endpoint in _ANYWHERE or (request.method in _READS and endpoint not in _LEADERS):
        return
    standing = standing_of(request)
    if standing.role is Role.LEADS:
        return
    if standing.leader:
        raise LedElsewhereError(standing.leader)
    message = "no instance leads at the moment; try again later"
    raise NotLeadingError(message)
