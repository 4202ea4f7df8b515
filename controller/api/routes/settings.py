"""The effective settings, with secrets masked."""

from __future__ import annotations

from typing import Any

from controller.api.routing.dependencies import SettingsDep
from controller.api.routing.routers import router

__all__ = ["routes"]

routes = router("settings")


@routes.get("/settings")
def show(settings: SettingsDep) -> dict[str, Any]:
    """Return every effective setting; secrets are masked."""
    return settings.effective()
