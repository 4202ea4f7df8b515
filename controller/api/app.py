"""Builds the FastAPI application; all its parts are passed in.

All routes are under `/api/v1`; the page is under `/ui/`. `/` redirects browsers to the page, and
returns links to other clients. FastAPI's documentation pages are off, since they load scripts from
other sites; the OpenAPI document is served (`openapi_document.py`).
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import anyio
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import RedirectResponse

from cbp.clock import MACHINE
from cbp.model.schedule.lease import Standing
from controller.access.access import Access
from controller.access.rate_limits import RequestRates
from controller.alerts import AlertWatch, silent_watch
from controller.api import routes
from controller.api.answers import problems
from controller.api.answers.schemas import Links
from controller.api.figures.metrics import SlowFigures
from controller.api.openapi_document import openapi_document, serve_document
from controller.api.requests.body import Bounds
from controller.api.requests.idempotency import IdempotencyKeys
from controller.api.requests.present_state import OwnState, PresentState
from controller.api.requests.request_counts import RequestCounter, RequestCounts
from controller.api.requests.shared_answers import SharedAnswers
from controller.api.routing.dependencies import Parts
from controller.api.routing.read_routes import IndexedRouter
from controller.api.routing.router_factory import PREFIX, router
from controller.api.routing.scope_check import operation_id, public
from controller.api.security.guard import Guard
from controller.api.web_page import page_router, prefers_page
from controller.events import EventFeed, FeedLimits
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.query import Queries, QueryLimits
from controller.run_logs import run_logs_of
from controller.settings import Settings
from controller.store.base import Store

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_api(
    *,
    controller: Controller,
    store: Store,
    drop_folder: DropFolder,
    settings: Settings,
    access: Access,
    standing: Callable[[], Standing],
    alerts: AlertWatch | None = None,
    present: Callable[[], PresentState] | None = None,
    now: Callable[[], datetime] = MACHINE.now,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """Return the API.

    Args:
        standing: Returns which instance leads; does not block.
        present: Returns the present state; by default from the controller and the drop folder.
    """
    app = _application(lifespan)
    requests = RequestCounts()
    app.state.parts = Parts(
        controller=controller,
        store=store,
        drop_folder=drop_folder,
        settings=settings,
        standing=standing,
        alerts=alerts or silent_watch(),
        idempotency_keys=IdempotencyKeys(),
        access=access,
        uploads=anyio.CapacityLimiter(settings.uploads_max),
        run_logs=run_logs_of(settings),
        events=EventFeed(store, FeedLimits(settings.event_streams_max)),
        queries=Queries(
            QueryLimits(
                seconds=settings.query_seconds,
                rows=settings.query_rows_max,
                memory_bytes=settings.query_memory_bytes,
                parallel=settings.queries_max,
            )
        ),
        present=present or (lambda: OwnState(controller, drop_folder)),
        now=now,
        answers=SharedAnswers(store.stamp),
        requests=requests,
        slow_figures=SlowFigures(store, settings.cache),
    )
    problems.install(app)
    app.add_middleware(
        Guard,
        access=access,
        host=settings.host,
        allowed_hosts=[urlsplit(settings.advertise_url).hostname or ""],
        bounds=Bounds(
            settings.body_bytes_max, settings.upload_bytes_max, settings.client_idle_seconds
        ),
        tls=settings.tls_cert is not None,
        rates=RequestRates(settings.requests_per_second_max),
    )
    app.add_middleware(RequestCounter, counts=requests, prefix=PREFIX)
    return app


def describe_api() -> dict[str, Any]:
    """Return the OpenAPI document; needs no service."""
    return _application(None).openapi()


def _application(lifespan: Lifespan | None) -> FastAPI:
    """Return the application with all its routes, but none of the parts that they use."""
    app = FastAPI(
        title="Continuous bulk processing",
        version=_version(),
        lifespan=lifespan,
        openapi_url=None,  # see `serve_document`
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
    )
    serve_document(app)
    for one in (*_resources(), _index(), page_router()):
        app.router.routes += one.routes
    app.router = IndexedRouter.of(app.router)
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    return app


def _resources() -> Iterator[APIRouter]:
    """Yield the routers of every module below `routes`, so that new modules need no list."""
    for found in pkgutil.walk_packages(routes.__path__, f"{routes.__name__}."):
        module = importlib.import_module(found.name)
        yield from (one for one in vars(module).values() if isinstance(one, APIRouter))


def _index() -> APIRouter:
    index = router("index", prefix="")

    @index.get("/", response_model=Links)
    @public
    def links(request: Request) -> Links | RedirectResponse:
        """Return links to the other resources; a browser is sent to the page."""
        if prefers_page(request.headers):
            return RedirectResponse("/ui/", 307, headers={"Vary": "Accept"})
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


def _version() -> str:
    try:
        return importlib.metadata.version("cbp")
    except importlib.metadata.PackageNotFoundError:
        return "0"
