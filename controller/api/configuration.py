"""The effective settings, with secrets masked."""

from __future__ import annotations

from typing import Any

from controller.api.dependencies import SettingsDep
from controller.api.routing import router

__all__ = ["routes"]

routes = router("settings")


@routes.get("/settings")
def show(settings: SettingsDep) -> dict[str, Any]:
    """Return every effective setting; secrets are masked."""
    return settings.effective()
