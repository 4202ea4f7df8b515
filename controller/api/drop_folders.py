"""Drop folders: what lies in each source's folder, and why some names stay there."""

from __future__ import annotations

from controller.api.ports import Services
from controller.api.routing import ServicesParameter, problems, router
from controller.api.schemas import SourceFolderOut, SourceFolders
from controller.api.values import json_value

__all__ = ["folders", "routes"]

routes = router("sources")


@routes.get("/dataflows/{name}/sources", responses=problems(404))
def list_sources(name: str, services: ServicesParameter) -> SourceFolders:
    """List the contents of each source's folder: waiting files, and names that are not taken in."""
    return SourceFolders(items=folders(services, name))


def folders(services: Services, name: str) -> list[SourceFolderOut]:
    """Return the current contents of the folders of a dataflow's sources."""
    record = services.store.dataflow(name)
    found = services.drop_folder.look(record, services.controller.dataflow(name))
    return [SourceFolderOut.model_validate(json_value(one)) for one in found]
