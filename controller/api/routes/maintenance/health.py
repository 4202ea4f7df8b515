"""Health: whether the process lives, whether the service can work, and which instance leads."""

from __future__ import annotations

from cbp.errors import EngineStartingError
from cbp.model.schedule.lease import Role
from controller.access.scopes import Scope
from controller.api.answers.request_errors import NotLeadingError
from controller.api.answers.schemas import DegradedOut, Health, LeaderOut, Page, Readiness
from controller.api.figures.degraded import degraded_now
from controller.api.routing.dependencies import ControllerDep, DropFolderDep, StandingDep, StoreDep
from controller.api.routing.routers import leader_only, open_router, router
from controller.api.routing.scope_check import needs, public

routes = open_router("health")
leader_routes = router("health")


@routes.get("/health/live")
@public
async def live() -> Health:
    """Answer as long as the process serves requests."""
    return Health(status="ok")


@routes.get("/health/ready")
@public
def ready(
    standing: StandingDep, controller: ControllerDep, store: StoreDep, drop_folder: DropFolderDep
) -> Readiness:
    """Answer 200 if the metadata store, the engine and a leader are available, otherwise 503.

    While Spark starts in the background, the answer is 503 with the code `engine_starting` and the
    reason; everything except runs and the check of SQL works already.

    A dataflow that is being retried or has stopped does not make an instance unready: the other
    dataflows continue, and a restart or another instance would not help. `degraded` names it;
    `/api/v1/degraded`, which needs a token, gives the reason. This route needs no token, so it
    shows whether this instance leads, but not the addresses of others.
    """
    store.ping()
    if standing.role is Role.LEADS:
        if why := controller.problem:
            raise NotLeadingError(why)
    elif not standing.leader:
        message = "no instance leads"
        raise NotLeadingError(message)
    if waits_for := controller.waits_for:
        raise EngineStartingError(waits_for)
    return Readiness(
        status="ok",
        role=standing.role.value,
        epoch=standing.epoch,
        degraded={one.dataflow: one.state for one in degraded_now(controller, store, drop_folder)},
    )


@leader_routes.get("/degraded")
@needs(Scope.VIEWER)
@leader_only
def degraded(
    controller: ControllerDep, store: StoreDep, drop_folder: DropFolderDep
) -> Page[DegradedOut]:
    """List the dataflows that make no progress, with the reason and the next attempt."""
    return Page(items=degraded_now(controller, store, drop_folder))


@leader_routes.get("/leader")
@needs(Scope.VIEWER)
def leader(standing: StandingDep) -> LeaderOut:
    """Return this instance's role, and the address of the leader."""
    return LeaderOut(role=standing.role.value, epoch=standing.epoch, leader=standing.leader or None)
