"""Positions of sinks: what is published and was undone is known, and nothing else counts so."""

from __future__ import annotations

from itertools import product

from cbp.model.flow.generation import Generation, SinkPosition, home_of_increment
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position

FLOW = "count.totals"


def rolled_back(number: int, first: int) -> Generation:
    """Return a roll-back behind which the flow goes on with increment `first`."""
    newest = (Increment(FLOW, first - 1, first - 1),) if first else ()
    return Generation(number, Position("d", {}, newest), {}, number)


def test_an_increment_is_undone_if_a_roll_back_went_behind_it_after_it_was_published() -> None:
    """Compared with following each increment through all roll-backs, one after the other."""
    for one, two, known, end in product(range(5), range(5), range(3), range(6)):
        generations = [rolled_back(1, one), rolled_back(2, two)]
        alive = set(range(end))
        for generation in generations[known:]:
            alive -= set(range(one if generation.number == 1 else two, end))
        first = SinkPosition(known, end).rolled_back_to(FLOW, generations)
        undone = set() if first is None else set(range(first, end))
        assert undone == set(range(end)) - alive
        expected = min(undone, default=None)
        needed = SinkPosition(known, end).needed(FLOW, generations)
        assert needed == (end if expected is None else expected)


def test_a_flow_that_had_no_increment_is_undone_as_a_whole() -> None:
    """A roll-back to before its first epoch leaves nothing of it; other flows do not count."""
    assert SinkPosition(0, 3).rolled_back_to(FLOW, [rolled_back(1, 0)]) == 0
    assert SinkPosition(1, 3).rolled_back_to(FLOW, [rolled_back(1, 0)]) is None


def test_an_increment_is_at_home_in_the_newest_generation_that_has_it() -> None:
    """As an epoch is."""
    generations = [rolled_back(1, 5), rolled_back(2, 7), rolled_back(3, 3)]
    homes = [home_of_increment(generations[:2], FLOW, index) for index in range(9)]
    assert homes == [0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert [home_of_increment(generations, FLOW, index) for index in range(5)] == [0, 0, 0, 3, 3]
