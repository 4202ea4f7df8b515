"""Roll-backs under Spark: what Spark has run goes back, is read so, and runs on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.spark import SparkExecutor
from tests.controller.world import DIAMOND, World
from tests.kernel import with_kernel
from tests.limited import SHUFFLED

pytestmark = pytest.mark.spark

Columns = tuple[str, ...]
Rows = list[dict[str, Any]]

TABLES: dict[str, Columns] = {
    "state/join.pairs": ("word", "l", "r"),
    "flows/join.both": ("word", "n", "_epoch"),
}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the controllers' syncs: nothing loses power here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def play(world: World, epochs: range) -> None:
    """Bring increments, some to both sides, and run what can run."""
    for number in epochs:
        world.clock.advance(1)
        world.arrive("diamond", "a", (f"w{number % 3}", number), ("w", 1))
        if number % 2:
            world.arrive("diamond", "b", (f"w{number % 2}", number), ("w", 1))
        world.ticks()


def by_spark(spark: Any, path: str, columns: Columns) -> Rows:
    rows = spark.read.format("delta").load(path).select(*columns).collect()
    return [row.asDict() for row in rows]


def by_kernel(spark: Any, path: str, columns: Columns) -> Rows:
    return with_kernel(spark, path, *columns)


def by_delta_rs(spark: Any, path: str, columns: Columns) -> Rows:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    actual = query.execute(f"SELECT {', '.join(columns)} FROM t").read_all()
    rows: Rows = pa.table(actual).to_pylist()
    return rows


def read(reader: Any, spark: Any, world: World) -> dict[str, list[str]]:
    """Return what somebody reads of each table, in any order."""
    folder = world.store.dataflow("diamond").folder
    return {
        table: sorted(map(repr, reader(spark, f"{folder}/{table}", columns)))
        for table, columns in TABLES.items()
    }


def shown(world: World) -> dict[str, list[str]]:
    """Return the same as the engine itself reads it."""
    (state, pairs), (flow, both) = TABLES.items()
    node, folder = world.controller.dataflow("diamond").stages["join"], f"{world.tables}/diamond"
    actual = {
        state: (pairs, world.engine.records.read_state(folder, node, "pairs")),
        flow: (both, world.flow("diamond", "join.both")),
    }
    return {
        table: sorted(repr({name: row[name] for name in columns}) for row in rows)
        for table, (columns, rows) in actual.items()
    }


@pytest.mark.soak
def test_back_and_on_again_is_as_if_nothing_had_been(spark: Any, tmp_path: Path) -> None:
    """Every reader sees the earlier moment; the replay, shuffled now, ends as an unbroken run."""

    def engine(**options: Any) -> Any:
        return DirectEngine(SparkExecutor(spark), **options)

    unbroken, world = (
        World(tmp_path / "u", engine=LocalEngine),
        World(tmp_path / "w", engine=engine),
    )
    for one in (unbroken, world):
        one.controller.register(DIAMOND)
        play(one, range(3))
    there = shown(unbroken)
    position = str(sum(world.picture()["diamond epochs"].values()))
    for one in (unbroken, world):
        play(one, range(3, 4))
    assert read(by_spark, spark, world) == shown(unbroken) != there

    amendments = world.controller.amendments
    amendments.roll_back("diamond", position, who="me", why="a bad file", pause=True)
    for reader in (by_spark, by_kernel, by_delta_rs):
        assert read(reader, spark, world) == there
    world.engine_limits = SHUFFLED
    world.restart()
    world.controller.resume("diamond")
    world.ticks()
    assert world.picture() == unbroken.picture()
    for one in (unbroken, world):
        play(one, range(4, 5))
        assert one.store.stages("diamond")[0].failures == 0
    assert world.picture() == unbroken.picture()
    for reader in (by_kernel, by_delta_rs):
        assert read(reader, spark, world) == shown(unbroken)
    unbroken.close()
    world.close()
