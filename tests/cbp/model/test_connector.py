"""Connectors, decisions and the default Runnable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import InvariantError
from cbp.model.connector import Connector, Decision, runnable_all
from cbp.model.increment import Increment


def queue(*indexes: int, name: str = "items") -> Connector:
    connector = Connector(name)
    for index in indexes:
        connector = connector.append(Increment("flow", index, index))
    return connector


def indexes(connector: Connector) -> list[tuple[int, bool]]:
    return [(queued.increment.index, queued.read) for queued in connector.queue]


def test_increments_are_queued_in_order() -> None:
    """The oldest stands first, and nothing is read at first."""
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


def test_runnable_all_takes_the_oldest_of_each() -> None:
    """Every input has one: the oldest unread of each is read and removed; the memo is kept."""
    decision = runnable_all({"a": queue(1, 2), "b": queue(7)}, "memo")
    assert decision == Decision({"a": (1,), "b": (7,)}, {"a": (1,), "b": (7,)}, "memo")
    assert decision.runnable


def test_runnable_all_says_what_it_waits_for() -> None:
    """Inputs without an unread increment are named."""
    decision = runnable_all({"a": queue(1), "b": queue(), "c": queue(0).after((0,), ())}, None)
    assert not decision.runnable
    assert decision.waits_for == "waits for an increment on b, c"
    assert not runnable_all({}, None).runnable


@given(st.lists(st.integers(0, 3), max_size=20))
def test_runnable_all_reads_everything_once_and_in_order(arrivals: list[int]) -> None:
    """However arrivals and runs alternate, each increment is read once, oldest first."""
    seen: list[int] = []
    connector, fed = Connector("items"), 0
    for count in [*arrivals, 0]:
        for _ in range(count):
            connector, fed = connector.append(Increment("flow", fed, fed)), fed + 1
        decision = runnable_all({"items": connector}, None)
        if decision.runnable:
            seen += decision.read["items"]
            connector = connector.after(decision.read["items"], decision.remove["items"])
    assert seen == list(range(len(seen)))
    assert [index for index, _ in indexes(connector)] == list(range(len(seen), fed))
