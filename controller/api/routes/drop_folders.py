"""Drop folders: what lies in each source's folder, and why some names stay there."""

from __future__ import annotations

from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import SourceFolderOut, SourceFolders
from controller.api.routing.dependencies import ControllerDep, DropFolderDep, StoreDep
from controller.api.routing.routers import problems, router

__all__ = ["routes"]

routes = router("sources")


@routes.get("/dataflows/{name}/sources", responses=problems(404))
def list_sources(
    name: str, store: StoreDep, controller: ControllerDep, drop_folder: DropFolderDep
) -> SourceFolders:
    """List the contents of each source's folder: waiting files, and names that are not taken in."""
    folders = drop_folder.look(store.dataflow(name), controller.dataflow(name))
    return SourceFolders(items=[SourceFolderOut.model_validate(json_value(one)) for one in folders])
