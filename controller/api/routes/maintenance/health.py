"""The service itself: whether it lives and can work, which instance leads, metrics, settings."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cbp.errors import EngineStartingError
from cbp.model.schedule.lease import Role
from controller.api.answers.request_errors import NotLeadingError
from controller.api.answers.schemas import DegradedOut, Health, LeaderOut, Page, Readiness
from controller.api.figures.degraded import degraded_now
from controller.api.figures.metrics import MetricsScrape
from controller.api.routing.dependencies import (
    ControllerDep,
    DropFolderDep,
    PartsDep,
    SettingsDep,
    StandingDep,
    StoreDep,
)
from controller.api.routing.router_factory import Scope, needs, router
from controller.api.routing.scope_check import public

routes = router("health", is_open=True)
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
@needs(Scope.VIEWER, leader_only=True)
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


metrics_routes = router("metrics")


@metrics_routes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
@needs(Scope.VIEWER)
def metrics(parts: PartsDep) -> Response:
    """Return the metrics of all dataflows in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsScrape(parts))
    ProcessCollector(registry=registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


settings_routes = router("settings")


@settings_routes.get("/settings")
@needs(Scope.VIEWER)
def show(settings: SettingsDep) -> dict[str, Any]:
    """Return every effective setting; secrets are masked."""
    return settings.effective()
