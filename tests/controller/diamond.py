"""A dataflow whose tables belong together, and readers that would see it if they did not.

`left` and `right` sum two sources, `join` keeps the sum of both: `check` compares them in the
versions of one snapshot, by a reader outside this project. What it cannot see: a snapshot that is
whole but older than it says.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import polars as pl
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.model.flow.snapshot import Snapshot
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.dataflow_part import DataflowPart
from tests.controller.world import DIAMOND, World

KEPT = Retention(versions_min=0, seconds=3600, attempt_seconds=0)


def started(world: World, policy: dict[str, Any] | None = None) -> World:
    document = {**DIAMOND, **({"publish": policy} if policy else {})}
    world.controller.register(document)
    return world


def bystander(world: World, engine: Engine | None = None) -> Snapshots:
    """Return what another instance of the service would answer from, with memory of its own."""
    engine = engine or LocalEngine(cache=str(world.root / "cache-2"))
    return Snapshots(history=engine.history, retention=KEPT, **shared(world))


def shared(world: World) -> dict[str, Any]:
    """Return what all parts that work on dataflows have."""
    names = {one.name for one in fields(DataflowPart)}
    return {name: getattr(world.parts.retained, name) for name in names}


def by_polars(path: str, version: int) -> pl.DataFrame:
    return pl.read_delta(path, version=version)


def by_deltalake(path: str, version: int) -> pl.DataFrame:
    table = DeltaTable(path, version=version)
    return pl.DataFrame(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def check(snapshot: Snapshot, read: Any = by_polars) -> int:
    """Check what holds of every whole epoch: state and the last totals agree, over all stages."""
    tables = {
        name: read(f"{snapshot.folder}/{name}", shown.version)
        for name, shown in snapshot.tables.items()
    }
    for stage, state, output, number in (
        ("left", "sums", "totals", "n"),
        ("right", "sums", "totals", "n"),
        ("join", "pairs", "both", None),
    ):
        kept = tables[f"state/{stage}.{state}"]
        value = pl.col("l") + pl.col("r") if number is None else pl.col(number)
        shown = dict(kept.select("word", value.alias("v")).rows())
        told = tables[f"flows/{stage}.{output}"].sort("_epoch").select("word", "n").rows()
        assert shown == dict(told), (stage, snapshot)
        assert max([*tables[f"flows/{stage}.{output}"]["_epoch"], -1]) <= snapshot.epochs[stage]
    return sum(snapshot.epochs.values())
