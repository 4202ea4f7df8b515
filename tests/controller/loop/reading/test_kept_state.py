"""State that is kept, in the service: crashes, corrections and verification know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DefinitionError
from cbp.model.run.correction import Correction
from tests.controller.world import ONE, SCHEMA, Sum, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


class Times(Sum):
    """Counts how often each number came with a word."""

    items = Input(SCHEMA, route_by="word")
    sums = State("word STRING, n BIGINT, times BIGINT", keep=True, key="word, n")
    totals = Output("word STRING, n BIGINT, times BIGINT", key="word, n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for n, came in sorted(Counter(item.n for item in group.items).items()):
            before = group.sums.get(n)
            times = came + (before.times if before else 0)
            out.sums(key.word, n, times)
            out.totals(key.word, n, times)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    made.translators["sum"] = Times
    made.restart()
    made.controller.register(ONE)
    made.arrive("one", "a", ("x", 1), ("x", 2), ("x", 2), ("y", 1))
    made.ticks()
    yield made
    made.close()


def times(world: World, word: str) -> dict[int, int]:
    """Look up a word, as a user does."""
    records = world.controller.reading.look_up("one", "sum", "sums", {"word": word})
    return {record["n"]: record["times"] for record in records}


def correct(world: World, *records: dict[str, int]) -> None:
    one = Correction({"word": "x"}, "records", records)
    world.controller.amendments.correct("one", "sum", "sums", [one], who="me", why="wrong")


def test_a_corrected_key_is_kept_from_there(world: World) -> None:
    """What was put right is found by its second key; other keys stay."""
    correct(world, {"n": 7, "times": 10}, {"n": 2, "times": 20})
    assert times(world, "x") == {7: 10, 2: 20}
    world.arrive("one", "a", ("x", 7), ("x", 3))
    world.ticks()
    assert times(world, "x") == {7: 11, 2: 20, 3: 1}
    assert times(world, "y") == {1: 1}
    with pytest.raises(DefinitionError) as caught:
        correct(world, {"n": 7, "times": 1}, {"n": 7, "times": 2})
    assert caught.value.mistake.code == "correction_invalid"


@pytest.mark.part(every=4)
@pytest.mark.parametrize("point", ["intention", "log_entry", "sql_commit"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_puts_once(world: World, point: str, side: str) -> None:
    """A run that is repeated reads what was before it, not what it put."""
    for number in range(3):
        world.arrive("one", "a", ("x", 2), ("z", number))
        world.faults.to = PlannedFaults(f"{point}.{side}")
        with suppress(Crash):
            world.ticks()
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
        world.ticks()
    assert times(world, "x") == {1: 1, 2: 5}
    assert times(world, "z") == {0: 1, 1: 1, 2: 1}
