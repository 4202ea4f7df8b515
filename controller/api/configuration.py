"""The effective settings, with secrets masked."""

from __future__ import annotations

from typing import Any

from controller.api.routing import ServicesParameter, router

__all__ = ["routes"]

routes = router("settings")


@routes.get("/settings")
def show(services: ServicesParameter) -> dict[str, Any]:
    """Return every effective setting; secrets are masked."""
    return services.settings.effective()
