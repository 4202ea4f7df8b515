"""Health: whether the process lives, whether the service can work, and which instance leads."""

from __future__ import annotations

from cbp.model.schedule.lease import Role
from controller.api.answers.problems import NotLeadingError
from controller.api.answers.schemas import DegradedOut, Health, LeaderOut, Page, Readiness
from controller.api.figures.degraded import degraded_now
from controller.api.routing.dependencies import ControllerDep, DropFolderDep, StandingDep, StoreDep
from controller.api.routing.routers import leader_only, open_router, router

__all__ = ["leader_routes", "routes"]

routes = open_router("health")
leader_routes = router("health")


@routes.get("/health/live")
async def live() -> Health:
    """Answer as long as the process serves requests."""
    return Health(status="ok")


@routes.get("/health/ready")
def ready(
    standing: StandingDep, controller: ControllerDep, store: StoreDep, drop_folder: DropFolderDep
) -> Readiness:
    """Answer 200 when the metadata store can be used and some controller leads, else 503.

    A dataflow that is being retried or has stopped does not make an instance unready: the other
    dataflows continue, and a restart or another instance would not help. `degraded` names it;
    `/api/v1/degraded`, which needs the token, says why. This route needs no token: it says
    whether this instance leads, but not where the others are.
    """
    store.ping()
    if standing.role is Role.LEADS:
        if why := controller.problem:
            raise NotLeadingError(why)
    elif not standing.leader:
        message = "no instance leads"
        raise NotLeadingError(message)
    return Readiness(
        status="ok",
        role=standing.role.value,
        epoch=standing.epoch,
        degraded={one.dataflow: one.state for one in degraded_now(controller, store, drop_folder)},
    )


@leader_routes.get("/degraded")
@leader_only
def degraded(
    controller: ControllerDep, store: StoreDep, drop_folder: DropFolderDep
) -> Page[DegradedOut]:
    """List the dataflows that make no progress, with the reason and the next try."""
    return Page(items=degraded_now(controller, store, drop_folder))


@leader_routes.get("/leader")
def leader(standing: StandingDep) -> LeaderOut:
    """Return this instance's role, and the address of the leader."""
    return LeaderOut(role=standing.role.value, epoch=standing.epoch, leader=standing.leader or None)
