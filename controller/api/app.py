"""Builds the FastAPI application; all its parts are passed in.

    api = create_api(
        controller=controller,
        store=store,
        drop_folder=drop_folder,
        settings=settings,
        standing=leadership.standing,
    )

All routes lie under `/api/v1`; `/` returns links. FastAPI's documentation pages are off, since
they load scripts from other sites; the OpenAPI document is served.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from cbp.model.schedule.lease import Standing
from controller.api.answers import problems
from controller.api.answers.schemas import Links, Problem
from controller.api.requests.bounds import Bounds
from controller.api.requests.idempotency import IdempotencyKeys
from controller.api.routes import (
    claims,
    corrections,
    dataflows,
    drop_folders,
    explain,
    flows,
    garbage,
    health,
    increments,
    metrics,
    rollbacks,
    runs,
    scrubs,
    snapshots,
    sources,
    states,
    translators,
    verifications,
)
from controller.api.routes import settings as settings_routes
from controller.api.routing.dependencies import Parts
from controller.api.routing.routers import PREFIX, router
from controller.api.security import Guard
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.settings import Settings
from controller.store.base import Store

__all__ = ["create_api"]

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_RESOURCES = (
    dataflows,
    increments,
    claims,
    drop_folders,
    sources,
    runs,
    explain,
    rollbacks,
    corrections,
    garbage,
    flows,
    states,
    snapshots,
    verifications,
    scrubs,
    translators,
    settings_routes,
    metrics,
    health,
)


def create_api(
    *,
    controller: Controller,
    store: Store,
    drop_folder: DropFolder,
    settings: Settings,
    standing: Callable[[], Standing],
    lifespan: Lifespan | None = None,
    allowed_hosts: Iterable[str] = (),
) -> FastAPI:
    """Return the API.

    Args:
        controller: Registers, steers and reads dataflows.
        store: The metadata store.
        drop_folder: Receives uploads.
        settings: Address, limits and token.
        standing: Returns which instance leads; answers at once.
        lifespan: Starts and stops other parts with the application.
        allowed_hosts: Names besides the loopback ones and `settings.host` under
            which clients may reach the service.
    """
    app = FastAPI(
        title="Continuous bulk processing",
        version=_version(),
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = Parts(
        controller=controller,
        store=store,
        drop_folder=drop_folder,
        settings=settings,
        standing=standing,
        idempotency_keys=IdempotencyKeys(),
        uploads=anyio.CapacityLimiter(settings.uploads_max),
    )
    for resource in _RESOURCES:
        app.include_router(resource.routes, prefix=PREFIX)
    app.include_router(health.leader_routes, prefix=PREFIX)
    app.include_router(_index())
    problems.install(app)
    app.add_middleware(
        Guard,
        token=settings.ensure_token(),
        host=settings.host,
        allowed_hosts=tuple(allowed_hosts),
        bounds=Bounds(
            settings.body_bytes_max, settings.upload_bytes_max, settings.client_idle_seconds
        ),
    )
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _index() -> APIRouter:
    index = router("index")

    @index.get("/")
    def links() -> Links:
        """Return links to the other resources; there is no dashboard in this version."""
        names = ("dataflows", "runs", "translators", "settings", "metrics")
        return Links(
            service="cbp",
            version=_version(),
            links={
                **{name: f"{PREFIX}/{name}" for name in names},
                "live": f"{PREFIX}/health/live",
                "ready": f"{PREFIX}/health/ready",
                "openapi": f"{PREFIX}/openapi.json",
            },
        )

    return index


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, including the problem document; it is built once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = Problem.model_json_schema()
        app.openapi_schema = document
    return app.openapi_schema


def _version() -> str:
    try:
        return importlib.metadata.version("cbp")
    except importlib.metadata.PackageNotFoundError:
        return "0"
