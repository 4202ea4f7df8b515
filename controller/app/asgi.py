"""The service as an ASGI application, which a server of HTTP runs."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import FastAPI

from controller.api import create_api
from controller.app.logs import configure_logging
from controller.app.service import Service
from controller.settings import Settings, load_settings

__all__ = ["api_of", "create_app"]


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the service as an ASGI application; it works while its lifespan lasts.

    Args:
        settings: By default those of the environment.

    Raises:
        DefinitionError: If a setting is wrong.
        OperatingError: If the database cannot be opened, or is in use.
    """
    settings = settings or load_settings()
    configure_logging(settings)
    return api_of(Service(settings))


def api_of(service: Service) -> FastAPI:
    """Return a service as an ASGI application; it works while its lifespan lasts."""
    api = create_api(
        controller=service.controller,
        store=service.store,
        drop_folder=service.drop_folder,
        settings=service.settings,
        standing=service.leadership.standing,
        lifespan=service.lifespan,
        allowed_hosts=[urlsplit(service.settings.advertise_url).hostname or ""],
    )
    api.state.begin_stop = service.begin_stop
    return api
