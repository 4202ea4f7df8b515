"""A world whose sinks publish, stepped by hand, and what readers find in their folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import Input, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import LocalFiles
from cbp.errors import NotFoundError
from controller.loop.records.version_log import Descriptions
from controller.outbound.addresses import AddressRules
from controller.sinks import SinkNotes, SinkPlaces, SinkPublishing
from controller.sinks.publishing import Mirrors
from controller.sinks.sink_standing import standing_of, state_of
from controller.sinks.targets import Targets
from controller.store.records import SinkRecord
from tests.controller.world import ONE, Crash, World
from tests.planned_faults import PlannedFaults

FLOW = "sum.totals"


class Counts(Translate):
    """Count per word; a word whose sum is 0 is taken out."""

    items = Input("word STRING, n BIGINT", route_by="word")
    counts = View("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.counts)
        if n:
            out.counts(word=key.word, n=n)


def document(sinks: dict[str, Any], **stage: Any) -> dict[str, Any]:
    """Return the dataflow of one stage, with sinks."""
    made = {**ONE["stages"]["sum"], "buckets": 2, **stage}
    return {**ONE, "stages": {"sum": made}, "sinks": sinks}


def viewed(sinks: dict[str, Any]) -> dict[str, Any]:
    """Return the same with a view, `sum.counts`."""
    return document(sinks, translator="counts")


def sink_world(root: Path, **more: Any) -> World:
    """Return a world on real tables that knows the translators of these tests."""
    (root / "out").mkdir(parents=True, exist_ok=True)
    world = World(root, engine=LocalEngine, **more)
    world.translators["counts"] = Counts
    world.restart()
    return world


def places_of(world: World, **more: Any) -> SinkPlaces:
    """Return the places that a world allows: its folder `out`."""
    root = world.root
    given = {"secrets": root / "secrets", "taken": (root / "tables",), **more}
    return SinkPlaces((root / "out",), **given)


def sinks_of(world: World, **more: Any) -> SinkPublishing:
    """Return what publishes for a world; made anew after a crash."""
    parts = world.parts
    rules = AddressRules.of(more.pop("outbound", ("127.0.0.1",)))
    exclusion = more.pop("exclusion", parts.exclusion)
    passes = {name: more.pop(name) for name in ("pass_seconds",) if name in more}
    files = LocalFiles(world.faults)
    targets = Targets(places_of(world, **more), files, world.faults, "http://here", rules)
    return SinkPublishing(
        store=world.store,
        catalog=parts.catalog,
        increments=parts.given.engine.increments,
        open_log=parts.open_log,
        exclusion=exclusion,
        notes=SinkNotes(world.files, world.faults),
        make_target=targets.make,
        mirrors=Mirrors(parts.snapshots, parts.given.engine.records, Descriptions(world.files)),
        clock=world.clock,
        draw=lambda: 1.0,
        **passes,
    )


def publish(world: World, sinks: SinkPublishing | None = None) -> SinkPublishing:
    """Make passes over every sink until nothing more waits."""
    sinks = sinks or sinks_of(world)
    for dataflow, sink in sinks.all():
        while sinks.publish(dataflow, sink):
            pass
    return sinks


def crash_before_the_note(world: World, sink: str) -> None:
    """Publish what waits for one sink, and die before its note says so."""
    world.faults.to = PlannedFaults("sink_note.before")
    with pytest.raises(Crash):
        sinks_of(world).publish("one", sink)
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()


def row(world: World, sink: str, dataflow: str = "one") -> SinkRecord:
    return next(one for one in world.store.sinks(dataflow) if one.sink == sink)


def state(world: World, sink: str) -> str:
    return state_of(row(world, sink))


def code(world: World, sink: str) -> str:
    """Return the code of a sink's error; `""` if it has none."""
    return str((standing_of(row(world, sink)).error or {}).get("error_code", ""))


def names(world: World, folder: str) -> list[str]:
    """Return the names of the published files, in order."""
    path = world.root / "out" / folder
    return sorted(one.name for one in path.iterdir() if not one.name.startswith(("_", ".")))


def rows_of(world: World, folder: str) -> list[dict[str, Any]]:
    """Return the records of all files of a sink, in the order of their names."""
    found: list[dict[str, Any]] = []
    for name in names(world, folder):
        path = world.root / "out" / folder / name
        read = polars.read_csv if name.endswith(".csv") else polars.read_parquet
        found += read(path).to_dicts()
    return found


def flow_of(world: World, flow: str = FLOW) -> list[dict[str, Any]]:
    """Return the records of the flow, as the service reads them."""
    if not world.store.next_index("one", flow):
        return []
    return [{k: v for k, v in one.items() if k[0] != "_"} for one in world.flow("one", flow)]


def drafts(world: World) -> list[str]:
    """Return the unfinished files below the folder of all sinks."""
    return [str(path) for path in (world.root / "out").rglob(".*") if path.is_file()]


def note_of(world: World, sink: str) -> dict[str, Any]:
    (path,) = Path(world.tables).glob(f"one/_sinks/{sink}-*.json")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


ARRIVALS = [[("a", 1), ("b", 2)], [("a", 5)], [("c", 3), ("b", 1)], [("d", 0)], [("a", -6)]]


def play(world: World, given: dict[str, Any], *faults: PlannedFaults) -> int:
    """Register, bring increments one after the other and publish; return the crashes.

    After each crash everything in memory is forgotten, as by a kill.
    """
    crashes, left = 0, list(faults)
    world.faults.to = left.pop(0) if left else NO_FAULTS

    def register() -> None:
        try:
            world.store.dataflow("one")
        except NotFoundError:
            world.controller.register(given)

    def arrive(number: int) -> Callable[[], None]:
        def step() -> None:
            if world.store.next_index("one", "a") <= number:
                world.clock.advance(1)
                world.arrive("one", "a", *ARRIVALS[number])

        return step

    steps: list[Callable[[], object]] = [register]
    for number in range(len(ARRIVALS)):
        steps += [arrive(number), world.ticks, lambda: publish(world)]
    for step in steps:
        crashed = False
        while True:
            try:
                if crashed:
                    world.controller.recover()
                step()
                break
            except Crash:
                crashes, crashed = crashes + 1, True
                world.faults.to = left.pop(0) if left else NO_FAULTS
                world.restart()
    world.faults.to = NO_FAULTS
    return crashes
