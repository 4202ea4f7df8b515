"""Garbage collection: what it removes, and why the rest stays; collect now; use of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from cbp.engine.interface.garbage_collector import UNFINISHED
from cbp.model.flow.retention import Expiry
from cbp.model.instants import instant_of
from controller.api.answers.schemas import Model
from controller.api.routing.dependencies import (
    ControllerDep,
    DeliveriesDep,
    HousekeepingDep,
    StoreDep,
)
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.controller import Controller
from controller.loop.housekeeping.collector import Collector, Garbage

_UNNAMED = "not in any readable version, queue or record"

routes = router("garbage")


class HeapOut(Model):
    """Some files of one place, all removed or all kept for the same reason."""

    place: str = Field(description="A table, `sources/NAME`, `outputs/FLOW` or `finished/NAME`.")
    goes: bool = Field(description="Whether a collection removes these files.")
    because: str = Field(description="Why the files are removed or kept.")
    files: int | None = Field(description="Number of files; `null` if they were not counted.")
    bytes: int | None


class LastCollectionOut(Model):
    """The last collection by this instance since it became the leader."""

    at: datetime
    by: Literal["request", "idle work"]
    files: int = Field(description="Files of tables that it removed.")
    bytes: int


class CompactionOut(Model):
    """How a run merged small files of one table into larger ones."""

    table: str
    stage: str
    epoch: int
    at: datetime
    files_before: int
    files_after: int
    bytes_before: int | None = Field(description="`null` if it is no longer known.")
    bytes_after: int


class GarbageOut(Model):
    """The files that a collection removes, those that stay, and each table's last compaction."""

    dataflow: str
    collected: bool
    items: list[HeapOut]
    last: LastCollectionOut | None
    compactions: list[CompactionOut] = Field(
        description="The newest compaction of each table that the last runs of its stage made."
    )


class SourceReachOut(Model):
    """The kept input of one source."""

    source: str
    first: int = Field(description="The oldest increment that is kept.")
    first_at: datetime | None = Field(description="When it arrived.")
    increments: int = Field(description="Number of increments that are kept.")
    complete: bool = Field(
        description="Whether every increment that ever arrived is kept. Only then can a rebuild "
        "read all input, and only then can stages recompute groups for a replaced or retracted "
        "file."
    )


class ReachOut(Model):
    """How far back operations on a dataflow can go with the kept data."""

    dataflow: str
    sources: list[SourceReachOut]
    rebuild: bool = Field(description="Whether a rebuild can read all input.")
    oldest_position: int | None = Field(
        description="The oldest position to which a roll-back can go; `null` if it can go to the "
        "start."
    )


@routes.get("/dataflows/{name}/reach", responses=problems(404))
@needs(Scope.VIEWER)
def reach(name: str, housekeeping: HousekeepingDep) -> ReachOut:
    """Show how far back a replace, a retract, a rebuild and a roll-back can go."""
    found = housekeeping.reach(name)
    sources = [
        SourceReachOut.of(one, increments=one.next_index - one.first) for one in found.sources
    ]
    return ReachOut.of(found, dataflow=name, sources=sources, rebuild=not found.incomplete)


@routes.get("/dataflows/{name}/garbage", responses=problems(404))
@needs(Scope.VIEWER)
def look(name: str, at: DeliveriesDep, housekeeping: HousekeepingDep) -> GarbageOut:
    """Show files that a garbage collection would remove now, and why others are kept."""
    finished = at.folder.clean(*at.of(name), dry_run=True)
    heaps = list(_heaps(housekeeping.look(name), finished))
    return _garbage(name, at.controller, housekeeping, collected=False, items=heaps)


@routes.post("/dataflows/{name}/garbage/collect", responses=problems(404))
@needs(Scope.ADMIN)
def collect(name: str, at: DeliveriesDep, housekeeping: HousekeepingDep) -> GarbageOut:
    """Run a garbage collection now, up to a bound; the service also collects automatically."""
    finished = at.folder.clean(*at.of(name))
    heaps = list(_heaps(housekeeping.collect(name), finished))
    return _garbage(name, at.controller, housekeeping, collected=True, items=heaps)


def _garbage(
    name: str, controller: Controller, housekeeping: Collector, **found: Any
) -> GarbageOut:
    compactions = [
        CompactionOut.of(one, at=instant_of(one.at_ms)) for one in controller.compactions(name)
    ]
    last = housekeeping.last(name)
    return GarbageOut.of(dataflow=name, last=last, compactions=compactions, **found)


def _heaps(garbage: Garbage, finished: dict[str, Expiry]) -> Iterator[HeapOut]:
    for table, plan in garbage.tables.items():
        if plan.entries:
            because = f"log entries and checkpoints before version {plan.base}"
            yield HeapOut(place=table, goes=True, because=because, files=plan.entries, bytes=None)
        reasons: dict[str, list[int]] = {}
        for file in plan.dead:
            why = UNFINISHED if file.because == UNFINISHED else _UNNAMED
            reasons.setdefault(why, []).append(file.bytes)
        for why, sizes in reasons.items():
            yield HeapOut(place=table, goes=True, because=why, files=len(sizes), bytes=sum(sizes))
        for reason in plan.kept:
            yield HeapOut.of(reason, place=table, goes=False)
    for flow, expiry in garbage.outputs.items():
        for heap in _expiry(f"outputs/{flow}", expiry):
            with_a_run = "removed by about every eighth run of its stage: " if heap.goes else ""
            because = f"{with_a_run}{heap.because}"
            yield heap.model_copy(update={"goes": False, "because": because})
    for kind, plans in (("sources", garbage.inputs), ("finished", finished)):
        for source, expiry in plans.items():
            yield from _expiry(f"{kind}/{source}", expiry)


def _expiry(place: str, plan: Expiry) -> Iterator[HeapOut]:
    if plan.gone:
        sizes = [one.bytes for one in plan.gone]
        yield HeapOut(
            place=place, goes=True, because=plan.because, files=len(sizes), bytes=sum(sizes)
        )
    if plan.stays:
        because = f"the oldest retained increment is {plan.stays}; all later ones are kept, too"
        yield HeapOut(place=place, goes=False, because=because, files=None, bytes=None)


disk_routes = router("disk_use")


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


@disk_routes.get("/dataflows/{name}/disk", responses=problems(404))
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
