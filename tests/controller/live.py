"""The real controller on real tables behind the real API, in one process, for commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cbp.engine.direct import LocalEngine
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import World


@dataclass
class Live:
    """One service: its world, and what commands connect to."""

    world: World
    session: Session


def live(
    root: Path,
    *,
    engine: Callable[..., Any] = LocalEngine,
    translators: Mapping[str, Any] | None = None,
    **more: Any,
) -> Live:
    """Return a service over tables of the direct engine, without Spark."""
    world = World(root, engine=engine, **more)
    world.translators |= translators or {}
    world.restart()
    settings = Settings(root=root, token=TOKEN)
    return Live(world, Session(settings, AppTransport(api_of_world(world, settings))))
