"""Health: whether the service lives, and whether it can work. No token needed."""

from __future__ import annotations

from controller.api.problems import NotLeadingError
from controller.api.routing import ServicesParameter, open_router
from controller.api.schemas import Health

__all__ = ["routes"]

routes = open_router("health")


@routes.get("/health/live")
async def live() -> Health:
    """Answer as long as the process serves requests."""
    return Health(status="ok")


@routes.get("/health/ready")
def ready(services: ServicesParameter) -> Health:
    """Answer 200 when the metadata store can be used and this controller leads, else 503."""
    services.store.ping()
    if why := services.controller.problem:
        raise NotLeadingError(why)
    return Health(status="ok")
