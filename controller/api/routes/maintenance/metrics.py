"""Metrics in Prometheus' text format."""

from __future__ import annotations

from fastapi import Response
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from controller.access.scopes import Scope
from controller.api.figures.metrics import MetricsScrape
from controller.api.routing.dependencies import MetricSourcesDep
from controller.api.routing.routers import router
from controller.api.routing.scope_check import needs

routes = router("metrics")


@routes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
@needs(Scope.VIEWER)
def metrics(sources: MetricSourcesDep) -> Response:
    """Return the metrics of all dataflows in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsScrape(sources))
    ProcessCollector(registry=registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
