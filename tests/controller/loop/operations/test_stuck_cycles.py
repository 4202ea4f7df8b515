"""A dataflow with a stage that never runs is refused; one of an earlier version still opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import DataflowInvalidError
from cbp.sdk.document import LATER_RULES, dataflow_from_document
from controller.registry import Registry
from tests.controller.lost import lose_the_store
from tests.controller.world import SCHEMA, World

STUCK: dict[str, Any] = {
    "name": "stuck",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "begin": {
            "translator": "join",
            "inputs": {"left": "a", "right": "inner.both"},
            "runnable": "run_any",
        },
        "inner": {
            "translator": "join",
            "inputs": {"left": "begin.both", "right": "inner.both"},
        },
    },
}


class EarlierRegistry(Registry):
    """Accepts what versions accepted that did not look for cycles inside of others."""

    def compile(self, document: Any, duplicates: Any = ()) -> Any:
        return dataflow_from_document(document, self.resolve, without=LATER_RULES)


def test_a_cycle_inside_of_another_is_refused(tmp_path: Path) -> None:
    """With the rule's code, the cycle and what to write; nothing is left of the dataflow."""
    world = World(tmp_path / "world")
    with pytest.raises(DataflowInvalidError) as caught:
        world.controller.register(STUCK)
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.where) == ("cycle_never_runs", "stages.inner.runnable")
    assert "inner -> inner" in mistake.message
    assert "runnable: run_any" in mistake.message
    assert not world.store.dataflows()
    again = dict(STUCK["stages"]["inner"], runnable="run_any")
    world.controller.register({**STUCK, "stages": {**STUCK["stages"], "inner": again}})
    world.close()


def test_one_of_an_earlier_version_opens(tmp_path: Path) -> None:
    """Its other stages run, also after a restart; the stuck one says which cycle, and stops."""
    world = World(tmp_path / "world", engine=LocalEngine)
    registry = world.controller.registry
    earlier = EarlierRegistry(["cbp"], entry_points=world._entry_points)
    registry.compile = earlier.compile  # type: ignore[method-assign]
    world.controller.register(STUCK)
    world.restart()
    for number in range(2):
        world.arrive("stuck", "a", ("x", 1))
        world.ticks()
        epochs = {one.stage: one.epoch for one in world.store.stages("stuck")}
        assert epochs == {"begin": number + 1, "inner": 0}
        wait = world.controller.waits("stuck")["inner"]
        assert wait.kind == "stopped"
        assert wait.error is not None
        assert wait.error.details["rule"] == "cycle_never_runs"
        assert "inner -> inner" in wait.words
        world.restart()
    world = lose_the_store(world, tmp_path / "again", {"a": 2})
    assert {one.stage: one.epoch for one in world.store.stages("stuck")}["begin"] == 2
    world.close()
