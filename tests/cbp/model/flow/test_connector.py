"""Connectors, decisions and the default Runnable."""

from __future__ import annotations

from typing import Any

import pytest

from cbp.errors import InvariantError
from cbp.model.flow.connector import Connector, Decision, Queued
from cbp.model.flow.framing import FrameNote, Framing
from cbp.model.flow.increment import DataFile, Increment


def queue(*indexes: int, name: str = "items") -> Connector:
    connector = Connector(name)
    for index in indexes:
        connector = connector.append(Increment("flow", index, index))
    return connector


def indexes(connector: Connector) -> list[tuple[int, bool]]:
    return [(queued.increment.index, queued.read) for queued in connector.queue]


def test_increments_are_queued_in_order() -> None:
    """The oldest comes first, and nothing is read at first."""
    assert indexes(queue(3, 4)) == [(3, False), (4, False)]
    assert queue(3, 4).find(4).index == 4


def test_a_read_increment_stays_until_it_is_removed() -> None:
    """Reading leaves a mark and wakes nobody again; removing takes it off the queue."""
    connector = queue(0, 1).after((0,), ())
    assert indexes(connector) == [(0, True), (1, False)]
    assert [increment.index for increment in connector.unread] == [1]
    assert indexes(connector.after((1,), (0,))) == [(1, True)]


def test_removing_without_reading_is_allowed() -> None:
    """An increment may be dropped unread."""
    assert indexes(queue(0, 1).after((), (0,))) == [(1, False)]


@pytest.mark.parametrize(("read", "remove"), [((2,), ()), ((), (2,))])
def test_what_is_not_queued_cannot_be_read_or_removed(
    read: tuple[int, ...], remove: tuple[int, ...]
) -> None:
    """A decision about an increment that is not there is our own mistake."""
    with pytest.raises(InvariantError):
        queue(0, 1).after(read, remove)


def test_of_framed_inputs_the_frames_that_are_taken_are_noted() -> None:
    """What is read or removed of them, each once; inputs that are not framed have no frames."""
    queue = tuple(
        Queued(Increment("a", n, f"day {n}", (DataFile("f", 9, 90, 0, n),))) for n in range(5)
    )
    connectors = {"i": Connector("i", queue, Framing()), "j": Connector("j", queue)}
    decision = Decision({"i": (1, 2), "j": (1,)}, {"i": (2, 4)})
    assert decision.frames(connectors) == {
        "i": tuple(FrameNote(n, f"day {n}", n, 10 * n) for n in (1, 2, 4))
    }
    assert Decision({"j": (1,)}).frames(connectors) == {}


@pytest.mark.parametrize(
    ("read", "remove", "expected"),
    [
        ({"i": (0, 1)}, {"i": (0, 1)}, {"i": (0, 1)}),
        ({"i": [0]}, {}, {"i": (0,)}),
        ({"i": (0, 1, 2), "j": (4,)}, {}, {"i": (0, 1, 2), "j": (4,)}),
        ({"i": (1,)}, {}, None),
        ({"i": (0, 1, 2, 3)}, {}, None),
        ({"k": (0,)}, {}, None),
        ({"i": (0,)}, {"i": (1,)}, None),
        ({}, {}, None),
    ],
)
def test_another_try_reads_what_came_before_the_first_one(
    read: Any, remove: Any, expected: dict[str, tuple[int, ...]] | None
) -> None:
    """Only where that is the begin of what it would read now; a run for timers decides anew."""
    now = Decision({"i": (0, 1, 2), "j": (4,)}, {"i": (0, 1, 2)}, memo=7)
    before = now.as_before(read, remove)
    if expected is None:
        assert before is now
    else:
        removed = {name: tuple(some) for name, some in remove.items()}
        assert before == Decision(expected, removed, memo=7)
