"""What a verification says after a swap was taken back: that of the tables that are shown again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, Translate, View
from cbp.model.run.correction import Correction
from cbp.model.verification import Request, Verification
from controller.loop import LoopLimits
from tests.controller.loop.rebuild.beside_world import Beside, arrive, document
from tests.controller.verified import EACH_WAY, verified

pytestmark = pytest.mark.usefixtures("without_syncs")


WRONG: dict[str, int] = {}
"""What a run counts too many, by word."""


class Listed(Translate):
    """Count the numbers of a word; what it writes is a history."""

    items = Input("word STRING, n BIGINT", route_by="word")
    counts = View("word STRING, n BIGINT", key="word")
    seen = Output("word STRING, n BIGINT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.items) + sum(r.n for r in group.counts) + WRONG.get(key.word, 0)
        out.counts(word=key.word, n=n)
        out.seen(word=key.word, n=n)


PLAIN = document(listed={"translator": "listed", "inputs": {"items": "a"}})
OTHER = document("tripled", listed={"translator": "listed", "inputs": {"items": "a"}})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    """Give a world that keeps all records, and whose swap was taken back."""
    made = Beside(tmp_path, limits=LoopLimits(), collect_every=10**6)
    made.translators["listed"] = Listed
    made.restart()
    made.controller.register(PLAIN)
    applied(made, 0, 3)
    yield made
    made.close()


def applied(world: Beside, first: int, last: int) -> None:
    """Let increments come, each applied by itself."""
    for number in range(first, last):
        arrive(world, number, number + 1)
        world.clock.advance(1)
        world.ticks()


def swapped(world: Beside, wanted: Any) -> None:
    world.swap(world.build(wanted))


def back(world: Beside) -> None:
    world.controller.rebuild_jobs.swaps.back("d")
    world.ticks()


def found(verification: Verification) -> dict[str, tuple[str, str]]:
    """Return the tables that are not equal, with what is said of them."""
    return {
        one.table: (one.status, one.because) for one in verification.tables if one.status != "equal"
    }


@EACH_WAY
def test_all_is_compared_from_the_beginning(world: Beside, request_: Request) -> None:
    """As if there had been no swap: what came before it, meanwhile and afterwards, by the old code.

    A history too: the epochs of the swap are in no table, and those of before and after are as in
    one life.
    """
    swapped(world, OTHER)
    applied(world, 3, 5)
    back(world)
    assert verified(world, "d", request_).error is None
    applied(world, 5, 7)
    result = verified(world, "d", request_)
    if request_.split == "at_once":
        assert set(found(result)) == {"flows/listed.seen", "flows/best.seen"}, result
        return
    assert (result.status, found(result)) == ("equal", {}), result
    records = {one.table: one.records for one in result.tables}
    assert records["flows/listed.seen"] == 2 * 2 * 7


def test_several_swaps_that_were_taken_back_change_nothing(world: Beside) -> None:
    """Each leaves out its own epochs."""
    for number in (3, 5):
        swapped(world, OTHER)
        applied(world, number, number + 1)
        back(world)
        applied(world, number + 1, number + 2)
    result = verified(world, "d")
    assert (result.status, found(result)) == ("equal", {}), result


def test_what_is_wrong_is_found(world: Beside) -> None:
    """A value that a run got wrong after the return, whatever was before it."""
    swapped(world, OTHER)
    back(world)
    WRONG["x"] = 1
    applied(world, 3, 4)
    WRONG.clear()
    applied(world, 4, 5)
    result = verified(world, "d")
    assert (result.status, result.suspect) == ("differs", "listed")


def test_a_correction_that_was_taken_back_counts_no_more(world: Beside) -> None:
    """One made of the tables that were swapped in is gone with them; one before them is there."""
    right = [Correction({"word": "x"}, "set", ({"n": 100},))]
    swapped(world, PLAIN)
    world.controller.amendments.correct("d", "sum", "sums", right, who="me", why="wrong")
    world.ticks()
    assert verified(world, "d").status == "undecided"
    assert [one.undone for one in world.controller.amendments.corrections("d")] == [False]
    back(world)
    assert [one.undone for one in world.controller.amendments.corrections("d")] == [True]
    applied(world, 3, 4)
    result = verified(world, "d")
    assert (result.status, found(result)) == ("equal", {}), result
    world.controller.amendments.correct("d", "sum", "sums", right, who="me", why="wrong")
    world.ticks()
    swapped(world, PLAIN)
    back(world)
    applied(world, 4, 5)
    assert {"state/sum.sums"} <= found(verified(world, "d")).keys()


def test_back_to_tables_that_were_swapped_in(world: Beside) -> None:
    """They are those of the swap before: compared with all input, at rest."""
    swapped(world, OTHER)
    applied(world, 3, 4)
    swapped(world, PLAIN)
    applied(world, 4, 5)
    back(world)
    applied(world, 5, 6)
    result = verified(world, "d")
    assert found(result).keys() == {"flows/listed.seen"}, result
    assert world.sums()["x"] == 3 * sum(range(6))
