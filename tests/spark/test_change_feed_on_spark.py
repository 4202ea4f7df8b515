"""Spark reads the change data feed of a view, as a batch and as a stream."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from tests.change_feeds import (
    Feed,
    columns_of,
    feed_by_delta_rs,
    feed_of_rows,
    is_compacted,
    require_exact,
    versions_of,
)
from tests.controller.loop.reading.test_views import TRANSLATORS, VIEWS
from tests.controller.world import World

pytestmark = pytest.mark.spark

FEED = {"readChangeFeed": "true", "startingVersion": "0"}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the syncs."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def play(world: World, numbers: range) -> None:
    """Bring words that come, change, stay and go."""
    for number in numbers:
        words = [("a", number), ("b", 1), (f"w{number % 4}", number), ("d", 3 - number % 5)]
        world.arrive("views", "words", *words, (f"stays {number}", 1))
        world.clock.advance(1)
        world.ticks()


def batch(spark: Any, path: str) -> Feed:
    rows = spark.read.format("delta").options(**FEED).load(path).collect()
    return feed_of_rows([row.asDict() for row in rows], columns_of(path))


def stream(spark: Any, path: str, sink: Path) -> Feed:
    """Let a stream go on to the end of the feed; return all that it has ever brought."""
    source = spark.readStream.format("delta").options(**FEED).load(path)
    written = source.writeStream.option("checkpointLocation", f"{sink}-place")
    written.trigger(availableNow=True).start(str(sink)).awaitTermination()
    rows = spark.read.parquet(str(sink)).collect()
    return feed_of_rows([row.asDict() for row in rows], columns_of(path))


@pytest.mark.soak
def test_batches_and_streams_bring_each_change_once(spark: Any, tmp_path: Path) -> None:
    """Over compactions and a roll-back too; a stream that stopped goes on where it was.

    They equal what delta-rs reads, and lead from each version of the table to the next.
    """
    limits = EngineLimits(state_fanout=3)
    world = World(tmp_path / "w", engine=LocalEngine, engine_limits=limits)
    world.translators |= TRANSLATORS
    world.restart()
    document: Any = copy.deepcopy(VIEWS)
    document["stages"]["newest"]["buckets"] = 2
    world.controller.register(document)
    path = f"{world.store.dataflow('views').folder}/state/newest.newest"
    play(world, range(10))
    assert stream(spark, path, tmp_path / "sink") == batch(spark, path)
    world.controller.amendments.roll_back("views", "9", who="me", why="a bad file", pause=True)
    world.controller.resume("views")
    play(world, range(20, 22))
    feed = batch(spark, path)
    assert stream(spark, path, tmp_path / "sink") == feed == feed_by_delta_rs(path)
    require_exact(path, feed, ["word"])
    assert is_compacted(path)
    assert "CBP ROLLBACK" in versions_of(path).values()
    kinds = {kind for changes in feed.values() for kind, _ in changes}
    assert kinds == {"insert", "delete", "update_preimage", "update_postimage"}
    world.close()
