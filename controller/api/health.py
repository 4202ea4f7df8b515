"""Health: whether the service lives, whether it can work, and who leads."""

from __future__ import annotations

from cbp.model.lease import Role
from controller.api.ports import Services
from controller.api.problems import NotLeadingError
from controller.api.routing import ServicesParameter, open_router, router
from controller.api.schemas import Health, LeaderOut, Readiness

__all__ = ["leader_routes", "routes"]

routes = open_router("health")
leader_routes = router("health")


@routes.get("/health/live")
async def live() -> Health:
    """Answer as long as the process serves requests."""
    return Health(status="ok")


@routes.get("/health/ready")
def ready(services: ServicesParameter) -> Readiness:
    """Answer 200 when the metadata store can be used and some controller leads, else 503.

    No token needed: it says whether this instance leads, not where the others are.
    """
    services.store.ping()
    standing = services.leading.standing()
    if standing.role is Role.LEADS:
        if why := services.controller.problem:
            raise NotLeadingError(why)
    elif not standing.leader:
        message = "no other controller is known to lead"
        raise NotLeadingError(message)
    return Readiness(status="ok", role=standing.role.value, epoch=standing.epoch)


@leader_routes.get("/leader")
def leader(services: ServicesParameter) -> LeaderOut:
    """Say how this instance stands, and where the one that leads answers."""
    return leader_out(services)


def leader_out(services: Services) -> LeaderOut:
    """Return who leads, as this instance knows it."""
    standing = services.leading.standing()
    return LeaderOut(role=standing.role.value, epoch=standing.epoch, leader=standing.leader or None)
