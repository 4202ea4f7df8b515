"""What was changed, corrected or rolled back is verified from a state that there was.

What a version changed, a back-fill made again, a correction or a roll-back touched; a value that is
wrong since is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State
from cbp.engine.commit.intention_log import IntentionLog
from cbp.model.run.correction import Correction
from cbp.model.verification import Request, Verification
from cbp.model.version.version_change import Choice
from tests.controller.verified import fed, verified, world_of
from tests.controller.world import ONE, SCHEMA, Sum, World

WRONG: dict[str, int] = {}
"""Word to what its sums are wrong by; of the module, so that no code is another."""


class Doubled(Sum):
    """Counts twice what comes from now on; keeps the columns of `Sum`."""

    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = 2 * sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        n += WRONG.get(key.word, 0)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Framed(Doubled):
    """Reads frames."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


STAGES = {
    "old": {"translator": "sum", "inputs": {"items": "a"}, "buckets": 2},
    "new": {"translator": "sum", "inputs": {"items": "a"}, "buckets": 2},
    "after": {"translator": "sum", "inputs": {"items": "new.totals"}, "buckets": 2},
}


def document(**translators: str) -> dict[str, Any]:
    stages = {
        n: {**s, "translator": translators.get(n, s["translator"])} for n, s in STAGES.items()
    }
    return {**ONE, "stages": stages}


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(tmp_path, doubled=Doubled, framed=Framed)
    yield made
    WRONG.clear()
    made.close()


def more(world: World, rounds: int = 2) -> None:
    for number in range(rounds):
        world.arrive("one", "a", ("a", number + 1), ("b", 1), (f"new{number}", 2))
        world.clock.advance(1)
        world.ticks()


def kept(world: World) -> None:
    choice = Choice(keep=frozenset({"new"}))
    world.controller.change(document(new="doubled"), choice=choice)


def rebuilt(world: World) -> None:
    choice = Choice(rebuild=frozenset({"new"}), keep=frozenset({"after"}))
    world.controller.change(document(new="doubled"), choice=choice)


def rebuilt_with_all_behind(world: World) -> None:
    choice = Choice(rebuild=frozenset({"new", "after"}))
    world.controller.change(document(new="doubled"), choice=choice)


def corrected(world: World) -> None:
    kept(world)
    more(world, 1)
    right = [Correction({"word": "a"}, "records", ({"n": 100},))]
    world.controller.amendments.correct("one", "new", "sums", right, who="me", why="wrong")
    world.ticks()


def rolled_back(world: World) -> None:
    kept(world)
    more(world, 2)
    world.controller.amendments.roll_back("one", "new:2", who="me", why="")
    world.ticks()


def rolled_back_and_dropped(world: World) -> None:
    kept(world)
    more(world, 2)
    world.controller.amendments.roll_back("one", "new:2", who="me", why="", drop_later=True)
    world.ticks()


def twice(world: World) -> None:
    kept(world)
    more(world, 1)
    rebuilt(world)


WAYS: list[Callable[[World], None]] = [
    kept,
    rebuilt,
    rebuilt_with_all_behind,
    corrected,
    rolled_back,
    rolled_back_and_dropped,
    twice,
]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def changed(request: pytest.FixtureRequest, world: World) -> World:
    fed(world, document(), 2)
    request.param(world)
    return world


@pytest.mark.part(every=3)
def test_what_is_right_after_a_change_is_equal_and_what_is_wrong_is_found(changed: World) -> None:
    """Every table is compared; a value that a later run got wrong is shown with its key."""
    more(changed)
    verification = verified(changed, "one")
    undecided = {v.table for v in verification.tables if v.status == "undecided"}
    assert verification.error is None
    assert verification.status == ("undecided" if undecided else "equal")
    assert undecided in (set(), {"state/new.sums", "flows/new.totals"})
    assert {v.status for v in verification.tables} <= {"equal", "undecided"}
    assert not any(v.because for v in verification.tables)
    assert len(verification.tables) == 6
    assert all(v.records for v in verification.tables)
    since = {v.table: v.since for v in verification.tables}
    assert since["state/old.sums"] is None
    assert since["state/new.sums"] is not None
    WRONG["b"] = 7
    more(changed, 1)
    WRONG.clear()
    verification = verified(changed, "one")
    assert (verification.status, verification.suspect) == ("differs", "new")
    # The stage behind it is held to what it did read.
    assert told(verification) == {"state/new.sums": ["'b'"], "flows/new.totals": ["'b'"]}


def told(found: Verification) -> dict[str, list[str]]:
    differing = (v for v in found.tables if v.status == "differs")
    return {v.table: sorted(one.key for one in v.differing) for v in differing}


def test_what_cannot_be_repeated_says_why(world: World) -> None:
    """Frames; a state that is collected; and nothing that came since: table by table."""
    fed(world, document(), 2)
    kept(world)
    verification = verified(world, "one")
    because = {v.table: v.because for v in verification.tables if v.because}
    assert because.keys() == {"state/new.sums", "flows/new.totals"}
    assert all("has not run since" in why for why in because.values())
    more(world)
    choice = Choice(rebuild=frozenset({"new"}), keep=frozenset({"after"}))
    world.controller.change(document(new="framed"), choice=choice)
    more(world, 1)
    verification = verified(world, "one")
    because = {v.table: v.because for v in verification.tables if v.because}
    assert because.keys() == {"state/new.sums", "flows/new.totals"}
    assert all("`new` reads frames" in why for why in because.values())


def test_the_reference_engine_begins_with_nothing(world: World) -> None:
    """The error advises to ask for the direct engine."""
    fed(world, document(), 2)
    kept(world)
    more(world)
    verification = verified(world, "one", Request(engine="reference"))
    because = {v.table: v.because for v in verification.tables if v.because}
    assert because.keys() > {"state/new.sums", "flows/new.totals"}
    assert all("the direct engine" in why for why in because.values())


def test_it_begins_where_records_are_kept(world: World) -> None:
    """With the state that there was before the first of them."""
    fed(world, document(), 2)
    kept(world)
    more(world, 3)
    log = IntentionLog(world.store.dataflow("one").folder, world.files)
    assert log.trim({"new": 4}) == 4
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("undecided", None)
    assert {v.table: v.since for v in verification.tables if "new" in v.table} == {
        "state/new.sums": 4,
        "flows/new.totals": 4,
    }
    assert log.trim({"new": 5}) == 1
    because = {v.table: v.because for v in verified(world, "one").tables if v.because}
    assert because.keys() == {"state/new.sums", "flows/new.totals"}
    assert all("the record of epoch 4 is no longer kept" in why for why in because.values())
