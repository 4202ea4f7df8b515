"""A recovery that an error broke off: what is recorded is redone before anything is amended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DataflowBusyError
from cbp.model.run.correction import Correction
from cbp.model.version.version_change import Choice
from tests.controller.loop.runs.test_set_aside import (
    FRAGILE,
    MENDED,
    Fragile,
    begin,
    give_back,
    sums,
)
from tests.controller.lost import lose_the_store
from tests.controller.verified import world_of
from tests.controller.world import World
from tests.planned_faults import PlannedFaults

AMENDMENTS: dict[str, Callable[[World], Any]] = {
    "change": lambda world: world.controller.change(MENDED, choice=Choice(keep=frozenset({"sum"}))),
    "roll_back": lambda world: world.controller.amendments.roll_back(
        "one", "sum:0", who="me", why=""
    ),
    "correct": lambda world: world.controller.amendments.correct(
        "one", "sum", "sums", [Correction({"word": "b"}, "records")], who="me", why=""
    ),
    "give_back": give_back,
}


@pytest.mark.part(every=2)
@pytest.mark.parametrize("amendment", AMENDMENTS)
def test_an_amendment_waits_for_what_is_recorded(
    tmp_path: Path, without_syncs: None, amendment: str
) -> None:
    """It is refused while records lie behind the one that could not be redone; then it is done."""
    world = world_of(tmp_path, fragile=Fragile)
    begin(world)
    broken = PlannedFaults("intention.before", error=OSError("boom"))
    new = lose_the_store(world, tmp_path / "new", {"a": 3}, broken)
    assert FRAGILE["name"] == "one"
    new.faults.to = NO_FAULTS
    amend = AMENDMENTS[amendment]
    with pytest.raises(DataflowBusyError):
        amend(new)
    new.clock.advance(600)
    new.ticks()
    assert sums(new) == {"a": 1, "b": 3, "c": 1}
    amend(new)
    assert new.controller.problem == ""
    new.close()
    world.close()
