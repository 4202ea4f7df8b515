"""Disk use of a dataflow, by table."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from controller.access.scopes import Scope
from controller.api.answers.schemas import Model
from controller.api.routing.dependencies import ControllerDep, StoreDep
from controller.api.routing.routers import problems, router
from controller.api.routing.scope_check import needs

routes = router("disk_use")


class PlaceUseOut(Model):
    """The files of one table, source or folder of records."""

    place: str = Field(description="`state/...`, `flows/...`, `sources/...` or `_intentions`.")
    files: int
    bytes: int


class DiskUseOut(Model):
    """The space that a dataflow takes, including all readable versions of its tables."""

    dataflow: str
    at: datetime = Field(description="When it was measured: at most a minute ago.")
    files: int
    bytes: int
    items: list[PlaceUseOut] = Field(description="Largest first.")


@routes.get("/dataflows/{name}/disk", responses=problems(404))
@needs(Scope.VIEWER)
def measure(name: str, store: StoreDep, controller: ControllerDep) -> DiskUseOut:
    """Measure the space that each table of a dataflow takes, at most once a minute."""
    use = controller.disk_uses.of(store.dataflow(name))
    return DiskUseOut(
        dataflow=name,
        at=use.at,
        files=sum(one.files for one in use.places.values()),
        bytes=sum(one.bytes for one in use.places.values()),
        items=[PlaceUseOut.of(one, place=place) for place, one in use.places.items()],
    )
