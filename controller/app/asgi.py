"""The service as an ASGI application, which an HTTP server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from controller.api import create_api
from controller.app.logs import configure_logging
from controller.app.service import Service
from controller.settings import Settings, load_settings


def create_app(settings: Settings | None = None, sign_in_code: str = "") -> FastAPI:
    """Return the service as an ASGI application; it works while its lifespan lasts.

    `sign_in_code` signs a browser in once, as the admin. Raises `DefinitionError` if a setting is
    wrong, and `OperatingError` if the database cannot be opened, or is in use.
    """
    settings = settings or load_settings()
    settings.ensure_token()  # before logging starts, so that the logs mask it
    configure_logging(settings)
    service = Service(settings)
    if sign_in_code:
        access = service.access
        access.sessions.make_code(access.authentication.admin, code=sign_in_code)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.lifespan(app):
            service.warm()  # before the first file arrives
            yield

    return api_of(service, lifespan=lifespan)


def api_of(
    service: Service,
    *,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Return a service as an ASGI application; it works while its lifespan lasts."""
    api = create_api(
        controller=service.controller,
        store=service.store,
        drop_folder=service.drop_folder,
        settings=service.settings,
        access=service.access,
        standing=service.leadership.standing,
        alerts=service.alerts,
        now=service.clock,
        lifespan=lifespan or service.lifespan,
    )

    def begin_stop() -> None:
        # A stream of events would not end, so the server would wait for it.
        api.state.parts.events.stop()
        service.begin_stop()

    api.state.begin_stop = begin_stop
    api.state.registry = service.controller.registry
    return api
