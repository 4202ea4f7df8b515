"""The real API over real parts, in this process."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from cbp.model.schedule.lease import Role, Standing
from controller.access.access import Access
from controller.api import create_api
from controller.ingest.drop_folder import DropFolder
from controller.settings import Settings
from tests.controller.world import World

__all__ = ["api_of_world", "lead_alone"]


def lead_alone() -> Standing:
    """Return that this instance leads, as an instance without others does."""
    return Standing(Role.LEADS, 0, "")


def api_of_world(world: World, settings: Settings, *, controller: Any = None) -> FastAPI:
    """Return the API of a world, with drop folders beside its tables.

    Args:
        controller: Replaces the world's controller, which is a new one after each restart.
    """
    made = world.controller if controller is None else controller
    drop_folder = DropFolder(
        store=world.store,
        files=world.files,
        clock=world.clock,
        drop_root=settings.drop_root,
        on_accept=made.wake,
        faults=world.faults,
    )
    for record in world.store.dataflows():
        drop_folder.prepare(record, made.dataflow(record.name))
    return create_api(
        controller=made,
        store=world.store,
        drop_folder=drop_folder,
        settings=settings,
        access=Access(settings, world.store),
        standing=lead_alone,
    )
