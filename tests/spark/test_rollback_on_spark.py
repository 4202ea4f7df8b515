"""Roll-backs under Spark: what Spark has run goes back, is read so, and runs on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.spark import SparkExecutor, executor
from tests.controller.world import DIAMOND, World
from tests.kernel import with_kernel

pytestmark = pytest.mark.spark

TABLES = {
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


def read_by_all(spark: Any, folder: str) -> dict[str, list[list[str]]]:
    """Return what Spark, Kernel and delta-rs read of each table."""
    seen = {}
    for table, columns in TABLES.items():
        path = f"{folder}/{table}"
        rows = spark.read.format("delta").load(path).select(*columns).collect()
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
        found = pa.table(query.execute(f"SELECT {', '.join(columns)} FROM t").read_all())
        by_all = [row.asDict() for row in rows], with_kernel(spark, path, *columns)
        seen[table] = [sorted(map(repr, many)) for many in (*by_all, found.to_pylist())]
    return seen


def read_by_us(world: World) -> dict[str, list[list[str]]]:
    """Return what the engine reads of each table, as often."""
    folder = world.store.dataflow("diamond").folder
    nodes = world.controller.dataflow("diamond").stages
    seen = {}
    for table, columns in TABLES.items():
        kind, _, name = table.partition("/")
        stage, _, part = name.partition(".")
        rows = (
            world.engine.read_state(folder, nodes[stage], part)
            if kind == "state"
            else world.flow("diamond", name)
        )
        seen[table] = [sorted(repr({c: row[c] for c in columns}) for row in rows)] * 3
    return seen


def test_back_and_on_again_is_as_if_nothing_had_been(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    there = read_by_us(unbroken)
    position = str(sum(world.picture()["diamond epochs"].values()))
    for one in (unbroken, world):
        play(one, range(3, 4))
    last = read_by_us(unbroken)
    assert read_by_all(spark, f"{world.tables}/diamond") == last != there

    amendments = world.controller.amendments
    amendments.roll_back("diamond", position, who="me", why="a bad file", pause=True)
    assert read_by_all(spark, f"{world.tables}/diamond") == there
    monkeypatch.setattr(executor, "ARRANGED_READS_MAX", 0)
    world.controller.resume("diamond")
    world.ticks()
    assert world.picture() == unbroken.picture()
    for one in (unbroken, world):
        play(one, range(4, 5))
        assert one.store.stages("diamond")[0].failures == 0
    assert world.picture() == unbroken.picture()
    assert read_by_all(spark, f"{world.tables}/diamond") == read_by_us(unbroken)
    unbroken.close()
    world.close()
