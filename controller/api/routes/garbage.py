"""Garbage collection: what it removes from a dataflow, and why the rest stays; collect now."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from cbp.model.flow.retention import Expiry
from controller.api.answers.schemas import Model
from controller.api.routing.dependencies import (
    ControllerDep,
    DropFolderDep,
    HousekeepingDep,
    StoreDep,
)
from controller.api.routing.routers import problems, router
from controller.loop.housekeeping.collector import Garbage

__all__ = ["routes"]

routes = router("garbage")


_WITH_A_RUN = "goes with a run of its stage, every eighth or so: "


class HeapOut(Model):
    """Files of one place that all go or all stay, and the reason."""

    place: str = Field(description="A table, `sources/NAME`, `outputs/FLOW` or `finished/NAME`.")
    goes: bool
    because: str
    files: int | None = Field(description="`null`: not counted.")
    bytes: int | None


class GarbageOut(Model):
    """What goes and what stays, by place and reason."""

    dataflow: str
    collected: bool
    items: list[HeapOut]


@routes.get("/dataflows/{name}/garbage", responses=problems(404))
def look(
    name: str,
    store: StoreDep,
    controller: ControllerDep,
    drop_folder: DropFolderDep,
    housekeeping: HousekeepingDep,
) -> GarbageOut:
    """Show what a garbage collection would remove now, and why the rest stays; removes nothing."""
    finished = drop_folder.clean(store.dataflow(name), controller.dataflow(name), dry_run=True)
    garbage = housekeeping.look(name)
    return GarbageOut(dataflow=name, collected=False, items=list(_heaps(garbage, finished)))


@routes.post("/dataflows/{name}/garbage/collect", responses=problems(404))
def collect(
    name: str,
    store: StoreDep,
    controller: ControllerDep,
    drop_folder: DropFolderDep,
    housekeeping: HousekeepingDep,
) -> GarbageOut:
    """Run a garbage collection now, up to a bound; without this call, files go bit by bit."""
    finished = drop_folder.clean(store.dataflow(name), controller.dataflow(name))
    garbage = housekeeping.collect(name)
    return GarbageOut(dataflow=name, collected=True, items=list(_heaps(garbage, finished)))


def _heaps(found: Garbage, finished: dict[str, Expiry]) -> Iterator[HeapOut]:
    for table, plan in found.tables.items():
        if plan.entries:
            because = f"log entries and checkpoints before version {plan.base}"
            yield HeapOut(place=table, goes=True, because=because, files=plan.entries, bytes=None)
        reasons: dict[str, list[int]] = {}
        for file in plan.dead:
            unfinished = file.because.startswith("an unfinished")
            why = file.because if unfinished else "in no readable version, queue or record"
            reasons.setdefault(why, []).append(file.bytes)
        for why, sizes in reasons.items():
            yield HeapOut(place=table, goes=True, because=why, files=len(sizes), bytes=sum(sizes))
        for kept in plan.kept:
            yield HeapOut(
                place=table, goes=False, because=kept.because, files=kept.files, bytes=kept.bytes
            )
    for flow, expiry in found.outputs.items():
        for heap in _expiry(f"outputs/{flow}", expiry):
            because = f"{_WITH_A_RUN}{heap.because}" if heap.goes else heap.because
            yield heap.model_copy(update={"goes": False, "because": because})
    for kind, plans in (("sources", found.inputs), ("finished", finished)):
        for source, expiry in plans.items():
            yield from _expiry(f"{kind}/{source}", expiry)


def _expiry(place: str, plan: Expiry) -> Iterator[HeapOut]:
    if plan.gone:
        sizes = [one.bytes for one in plan.gone]
        yield HeapOut(
            place=place, goes=True, because=plan.because, files=len(sizes), bytes=sum(sizes)
        )
    if plan.stays:
        because = f"from the oldest that stays on: it {plan.stays}"
        yield HeapOut(place=place, goes=False, because=because, files=None, bytes=None)
