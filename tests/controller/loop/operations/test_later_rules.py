"""A rule that grew stricter refuses new documents only: a registered one opens and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Lookup, Output, Translate
from cbp.engine.direct import LocalEngine
from cbp.errors import DataflowInvalidError
from tests.controller.loop.operations.test_stuck_cycles import EarlierRegistry
from tests.controller.lost import lose_the_store
from tests.controller.world import SCHEMA, World


class Looks(Translate):
    """Earlier releases read its look-up as one without a key."""

    items = Input(SCHEMA, route_by="word")
    sums = Lookup(SCHEMA, by="word", key=["word"])  # type: ignore[arg-type]
    known = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit what the table has."""
        for one in group.sums:
            out.known(*one)


DOCUMENT: dict[str, Any] = {
    "name": "looks",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "sum": {"translator": "sum", "inputs": {"items": "a"}},
        "look": {"translator": "looks", "inputs": {"items": "a", "sums": "sum.sums"}},
    },
    "sinks": {
        "one": {"to": "parquet", "flow": "sum.totals", "path": "out/totals"},
        "two": {"to": "parquet", "flow": "sum.totals", "path": "./out//totals/"},
    },
}


def test_a_dataflow_that_breaks_later_rules_opens(tmp_path: Path) -> None:
    """After a restart and without the store; a new registration is refused."""
    world = World(tmp_path / "world", engine=LocalEngine)
    world.translators = {**world.translators, "looks": Looks}
    world.restart()
    with pytest.raises(DataflowInvalidError) as caught:
        world.controller.register(DOCUMENT)
    assert {one.code for one in caught.value.mistakes} == {"lookup_key_invalid", "sink_path_twice"}
    earlier = EarlierRegistry(["cbp"], entry_points=world._entry_points)
    world.controller.registry.compile = earlier.compile  # type: ignore[method-assign]
    world.controller.register(DOCUMENT)
    for number in range(2):
        world.restart()
        world.arrive("looks", "a", ("x", 1))
        world.ticks()
        epochs = {one.stage: one.epoch for one in world.store.stages("looks")}
        assert epochs == {"sum": number + 1, "look": number + 1}
    world = lose_the_store(world, tmp_path / "again", {"a": 2})
    assert {one.stage: one.epoch for one in world.store.stages("looks")} == epochs
    world.close()
