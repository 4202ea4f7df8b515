"""What every resource module shares: its router, its services, its page size.

Every route of a router made here needs the token (see `controller.api.security`)
and documents the problems that any route may answer with.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from controller.api.ports import Services
from controller.api.problems import MEDIA_TYPE, RequestInvalidError
from controller.api.schemas import PageQuery
from controller.api.security import bearer_scheme

__all__ = ["PREFIX", "ServicesParameter", "open_router", "page_size", "problems", "router"]

PREFIX = "/api/v1"

_ANY = (400, 403, 422, 500, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI responses: these statuses carry a problem document."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def router(tag: str) -> APIRouter:
    """Return a router whose routes need the token."""
    return APIRouter(
        tags=[tag], dependencies=[Depends(bearer_scheme)], responses=problems(*_ANY, 401)
    )


def open_router(tag: str) -> APIRouter:
    """Return a router whose routes are listed in `security.OPEN_PATHS`."""
    return APIRouter(tags=[tag], responses=problems(*_ANY))


def page_size(services: Services, query: PageQuery) -> int:
    """Return how many items a page may have.

    Raises:
        RequestInvalidError: If the client asks for more than the operator allows.
    """
    settings = services.settings
    if query.limit is None:
        return settings.page_size_default
    if query.limit > settings.page_size_max:
        message = f"at most {settings.page_size_max}"
        mistake = {"code": "limit_too_large", "where": "query.limit", "message": message}
        raise RequestInvalidError([mistake])
    return query.limit


def _services(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


ServicesParameter = Annotated[Services, Depends(_services)]
