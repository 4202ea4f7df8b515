"""What a verification cannot decide is said to be undecided; what it can, is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.model.run.correction import Correction
from cbp.model.verification import Request, Verification
from cbp.model.version.version_change import Choice
from tests.controller.changing import Double, Upgraded
from tests.controller.verified import EACH_WAY, WAYS, fed, verified, world_of
from tests.controller.world import DIAMOND, ONE, World
from tests.signed_pairs import Pairs

UPGRADED = {**ONE, "stages": {"sum": {**ONE["stages"]["sum"], "translator": "upgraded"}}}
PAIRS = {
    **DIAMOND,
    "stages": {"pairs": {"translator": "pairs", "inputs": {"left": "a", "right": "b"}}},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = world_of(tmp_path, upgraded=Upgraded, double=Double, pairs=Pairs)
    yield made
    made.close()


def statuses(verification: Verification) -> dict[str, str]:
    return {one.table: one.status for one in verification.tables}


@pytest.mark.parametrize("request_", WAYS[::2], ids=lambda one: one.engine)
def test_a_stage_that_has_not_run_is_not_equal(world: World, request_: Request) -> None:
    """While input waits for it there is nothing to compare: neither it nor the whole is equal."""
    world.controller.register(ONE)
    assert verified(world, "one", request_).status == "equal"
    world.store.pause_stage("one", "sum", "by hand")
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    verification = verified(world, "one", request_)
    assert (verification.status, verification.error) == ("undecided", None)
    assert set(statuses(verification).values()) == {"undecided"}
    assert all("`sum` has not run yet" in one.because for one in verification.tables)
    assert all("1 increment waits" in one.because for one in verification.tables)
    world.store.pause_stage("one", "sum", "")
    world.ticks()
    assert verified(world, "one", request_).status == "equal"


def test_a_stage_that_waits_for_another_input_is_not_equal(world: World) -> None:
    """Also where its rule lets nothing run: the input that came is in no table."""
    joined = {"translator": "join", "inputs": {"left": "a", "right": "b"}}
    world.controller.register({**DIAMOND, "stages": {"join": joined}})
    world.arrive("diamond", "a", ("a", 1))
    world.ticks()
    for request in WAYS:
        assert verified(world, "diamond", request).status == "undecided"


@EACH_WAY
def test_records_with_a_sign_are_compared_by_their_sums(world: World, request_: Request) -> None:
    """Pairs that cancel within one epoch do not in two; what is left of them is the same."""
    world.controller.register(PAIRS)
    for number in range(3):
        world.arrive("diamond", "a", ("x", number + 1))
        world.arrive("diamond", "b", ("x", 10))
        world.clock.advance(1)
        world.ticks()
    verification = verified(world, "diamond", request_)
    assert (verification.status, verification.error) == ("equal", None)
    kinds = {one.table: (one.kind, one.status) for one in verification.tables}
    assert kinds == {
        "state/pairs.sums": ("state", "equal"),
        "flows/pairs.pairs": ("changes", "equal"),
    }


def test_a_past_that_was_kept_is_undecided(world: World) -> None:
    """New code goes on from what old code made, so only what came since is compared."""
    fed(world, ONE)
    world.controller.change(UPGRADED, choice=Choice(keep=frozenset({"sum"})))
    verification = verified(world, "one")
    assert verification.status == "undecided"
    assert all("the stage has not run since" in one.because for one in verification.tables)
    world.arrive("one", "a", ("a", 7))
    world.ticks()
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("undecided", None)
    assert set(statuses(verification).values()) == {"undecided"}
    assert {(one.since, one.because, bool(one.records)) for one in verification.tables} == {
        (4, "", True)
    }
    world.controller.change(UPGRADED, choice=Choice(rebuild=frozenset({"sum"})))
    world.ticks()
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("equal", None)
    assert {one.since for one in verification.tables} == {5}
    assert verified(world, "one", Request(engine="reference")).status == "undecided"


def test_what_was_corrected_is_undecided(world: World) -> None:
    """An operator's value has no recomputation; what came since is compared."""
    fed(world, ONE)
    right = [Correction({"word": "a"}, "records", ({"n": 100},))]
    world.controller.amendments.correct("one", "sum", "sums", right, who="me", why="wrong")
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    verification = verified(world, "one")
    assert verification.status == "undecided"
    assert set(statuses(verification).values()) == {"undecided"}
