"""Generations: every epoch has one home, and a position is kept unless it was undone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cbp.errors import InvariantError
from cbp.model.flow.generation import Generation, home_of, kept_positions
from cbp.model.flow.position import Position, StagePosition


def position(**epochs: int) -> Position:
    return Position("df", {n: StagePosition(e, None, {}) for n, e in epochs.items()}, ())


def generation(number: int, **epochs: int) -> Generation:
    return Generation(number, position(**epochs), dict.fromkeys(epochs, 9), number * 100, "a", "b")


def test_an_epoch_is_at_home_in_the_newest_generation_that_began_before_it() -> None:
    """Also where a later roll-back went further back than an earlier one."""
    generations = [generation(1, s=5), generation(2, s=7), generation(3, s=3)]
    homes = [home_of(generations[:2], "s", epoch) for epoch in range(9)]
    assert homes == [0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert [home_of(generations, "s", epoch) for epoch in range(5)] == [0, 0, 0, 3, 3]
    assert home_of(generations, "later", 0) == 3


def test_positions_behind_a_roll_back_are_undone() -> None:
    """A position stays a beginning only if every later generation began at or behind it."""
    kept = [position(s=2), position(s=3), position(s=4)]
    assert kept_positions([generation(1, s=3)], 0, kept) == kept[:2]
    assert kept_positions([generation(1, s=3)], 1, kept) == kept


def test_a_roll_back_undoes_nothing_of_an_earlier_version() -> None:
    """Its stages may be others, or begin at other epochs."""
    earlier = [position(s=4, gone=3)]
    later = generation(1, s=3)
    newer = replace(later, position=replace(later.position, version=2))
    assert kept_positions([later], 0, earlier) == []
    assert kept_positions([newer], 0, earlier) == earlier


def test_a_generation_goes_through_json() -> None:
    """It is read as it was written; another format is refused."""
    one = generation(1, s=2, t=3)
    value = json.loads(json.dumps(one.to_json()))
    assert Generation.from_json(value) == one
    lacking = replace(one, superseded={"a": (1,)}, left_out={"a": (4, 7)})
    assert Generation.from_json(json.loads(json.dumps(lacking.to_json()))) == lacking
    with pytest.raises(InvariantError):
        Generation.from_json({**value, "format": 99})
