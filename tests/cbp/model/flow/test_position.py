"""Positions: plain values that come back as they went."""

from __future__ import annotations

import json

import pytest

from cbp.errors import InvariantError
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.position import Position, StagePosition


def position(epoch: int = 3) -> Position:
    one = Increment("pages", 4, "monday", (DataFile("sources/pages/x.parquet", 2, 9),))
    waiting = Connector("urls", (Queued(one, True), Queued(Increment("pages", 5, 5))))
    stage = StagePosition(epoch, {"seen": [1]}, {"urls": waiting, "other": Connector("other")}, 2)
    return Position("d", {"count": stage, "join": StagePosition(1, None, {})}, (one,))


def test_a_position_survives_json() -> None:
    """What is written is what is read; its number counts the epochs."""
    actual = Position.from_json(json.loads(json.dumps(position().to_json())))
    assert actual == position()
    assert actual.number == 4


def test_an_unknown_format_is_refused() -> None:
    """A later version's position is not guessed at."""
    with pytest.raises(InvariantError):
        Position.from_json({**position().to_json(), "format": 99})
