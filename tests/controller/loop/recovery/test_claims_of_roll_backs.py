"""Claims tell the truth behind every roll-back, and what was dropped may come again.

Claims say which increments roll-backs dropped, also in a store that was lost or is an earlier one;
a file that came again counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import RollbackImpossibleError
from cbp.model.flow.generation import Generation, increments_dropped
from cbp.model.version.version_change import Choice
from controller.store.base import ClaimRecord, IncrementRecord
from tests.controller.verified import verified
from tests.controller.world import ONE, Inline, World

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, verifier=Inline())
    made.controller.register(ONE)
    for number in range(3):
        arrive(made, f"f{number}", number)
    yield made
    made.close()


def arrive(world: World, name: str, number: int, *, word: str = "w") -> None:
    """Let a file come, whose claim and increment know its name and content."""
    accept, add = world.store.accept_all, world.store.add_claim
    world.clock.advance(1)

    def named(arrivals: Sequence[tuple[ClaimRecord, IncrementRecord]]) -> None:
        origin = {"files": [name], "sha256": f"{number}"}
        ((claim, record),) = arrivals
        accept([(replace(claim, sha256=f"{number}"), replace(record, origin=origin))])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "add_claim", lambda claim: add(replace(claim, path=name)))
        patch.setattr(world.store, "accept_all", named)
        world.arrive("one", "a", (word, number))
    world.ticks()


def claims(world: World) -> dict[int, ClaimRecord]:
    actual = world.store.claims("one", "a").items
    return {one.index: one for one in actual if one.index is not None}


def statuses(world: World) -> list[str]:
    return [one.status for _, one in sorted(claims(world).items())]


def back(world: World, to: str, *, drop_later: bool = False) -> Generation:
    actual = world.controller.amendments.roll_back(
        "one", to, who="me", why="a bad file", drop_later=drop_later
    )
    world.ticks()
    return actual


def test_what_is_queued_again_stays_accepted(world: World) -> None:
    """A roll-back without `drop_later` takes nothing away."""
    back(world, "sum:0")
    assert statuses(world) == ["accepted"] * 3


def test_what_was_dropped_is_withdrawn_and_may_come_again(world: World) -> None:
    """Also when repeated, and after another roll-back that leaves it dropped."""
    begun = back(world, "sum:0", drop_later=True)
    assert statuses(world) == ["accepted", "withdrawn", "withdrawn"]
    assert world.store.same_claim("one", "a", "1", path="f1") is None
    assert increments_dropped([begun]) == {"a": [range(1, 3)]}
    arrive(world, "f1", 1)
    assert statuses(world) == ["accepted", "withdrawn", "withdrawn", "accepted"]
    back(world, "sum:0")
    assert statuses(world) == ["accepted", "withdrawn", "withdrawn", "accepted"]


def test_an_earlier_store_learns_it_at_its_next_start(world: World) -> None:
    """Its claims said accepted; the record of the roll-back says what it dropped."""
    back(world, "sum:0", drop_later=True)
    for claim in claims(world).values():
        world.store.update_claim(replace(claim, status="accepted"))
    world.restart()
    world.controller.recover()
    assert statuses(world) == ["accepted", "withdrawn", "withdrawn"]


def test_what_comes_back_counts_once(world: World) -> None:
    """A roll-back behind the one that dropped it: its file came again, so one of both counts."""
    back(world, "sum:1", drop_later=True)
    arrive(world, "f2", 2)
    arrive(world, "f3", 3)
    back(world, "sum:2", drop_later=True)
    assert statuses(world) == ["accepted", "accepted", "withdrawn", "accepted", "withdrawn"]
    begun = back(world, "sum:0")
    assert begun.superseded == {"a": (2,)}
    assert statuses(world) == ["accepted", "accepted", "withdrawn", "accepted", "accepted"]
    assert Generation.from_json(begun.to_json()) == begun
    world.restart()
    world.controller.recover()
    assert statuses(world) == ["accepted", "accepted", "withdrawn", "accepted", "accepted"]


def arrive_together(world: World, *files: tuple[str, int]) -> None:
    """Let files come as one increment."""
    accept_all, add = world.store.accept_all, world.store.add_claim
    world.clock.advance(1)

    def named(arrivals: Sequence[tuple[ClaimRecord, IncrementRecord]]) -> None:
        ((claim, record),) = arrivals
        claims = [replace(claim, path=name, sha256=f"{number}") for name, number in files]
        more = world.store.add_claims(
            [replace(one, id=f"{one.id}{n}", status="claiming") for n, one in enumerate(claims[1:])]
        )
        origin = {"files": [name for name, _ in files], "file_count": len(files)}
        record = replace(record, origin=origin)
        accept_all([(one, record) for one in (claims[0], *more)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "add_claim", lambda claim: add(replace(claim, path=files[0][0])))
        patch.setattr(world.store, "accept_all", named)
        world.arrive("one", "a", *(("w", number) for _, number in files))
    world.ticks()


def test_files_of_one_increment_come_back_together_or_not_at_all(world: World) -> None:
    """All came again: they count once. Some did: such a roll-back would lose or double records."""
    arrive_together(world, ("g1", 11), ("g2", 12))
    back(world, "sum:2", drop_later=True)
    arrive(world, "g2", 12)
    with pytest.raises(RollbackImpossibleError) as caught:
        back(world, "sum:0")
    assert "1 of the 2 files" in caught.value.details["why"]
    arrive(world, "g1", 11)
    begun = back(world, "sum:0")
    assert begun.superseded == {"a": (3,)}


@pytest.mark.parametrize("again", [False, True], ids=["gone", "again"])
def test_a_back_fill_reads_nothing_that_was_dropped(world: World, again: bool) -> None:
    """What came again counts once; what did not, not at all; and the recomputation agrees."""
    back(world, "sum:0", drop_later=True)
    if again:
        arrive(world, "f2", 2)
    expected = 2 if again else 0
    for choice in (Choice(rebuild=frozenset({"sum"})), Choice(retained=frozenset({"late"}))):
        stages = {"sum": ONE["stages"]["sum"]}
        if choice.retained:
            stages["late"] = stages["sum"]
        world.controller.change({**ONE, "stages": stages}, choice=choice)
        world.ticks()
        assert sums(world, *stages) == dict.fromkeys(stages, expected)
        assert statuses(world) == ["accepted", "withdrawn", "withdrawn", *["accepted"] * again]
        assert world.store.same_claim("one", "a", "1", path="f1") is None
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("equal", None)
    assert all(one.records for one in verification.tables)
    arrive(world, "f1", 1)
    assert sums(world, "sum", "late") == {"sum": expected + 1, "late": expected + 1}


def sums(world: World, *stages: str) -> dict[str, int]:
    actual = {}
    for stage in stages:
        rows = world.controller.reading.look_up("one", stage, "sums", {"word": "w"})
        actual[stage] = sum(row["n"] for row in rows)
    return actual


def test_what_was_dropped_stays_so_when_its_stage_is_gone(world: World) -> None:
    """A roll-back of a later version, which has other stages, undoes none of an earlier one."""
    back(world, "sum:0", drop_later=True)
    other = {**ONE, "stages": {"late": ONE["stages"]["sum"]}}
    world.controller.change(other, choice=Choice(retained=frozenset({"late"})))
    world.ticks()
    arrive(world, "f1", 1)
    arrive(world, "f3", 3)
    assert statuses(world) == ["accepted", "withdrawn", "withdrawn", "accepted", "accepted"]
    back(world, "late:1", drop_later=True)
    assert statuses(world) == ["accepted", "withdrawn", "withdrawn", "accepted", "withdrawn"]
    arrive(world, "f2", 2)
    assert sums(world, "late") == {"late": 3}
