"""The effective settings, with secrets masked."""

from __future__ import annotations

from typing import Any

from controller.access.scopes import Scope
from controller.api.routing.dependencies import SettingsDep
from controller.api.routing.routers import router
from controller.api.routing.scope_check import needs

routes = router("settings")


@routes.get("/settings")
@needs(Scope.VIEWER)
def show(settings: SettingsDep) -> dict[str, Any]:
    """Return every effective setting; secrets are masked."""
    return settings.effective()
