"""Which drop folders are listed at an interval: what changed, what was missed, and some in turn."""

from __future__ import annotations

from cbp.model.schedule.idle_until import TURNS
from controller.app.leader_duties import DueListings

MANY = {f"d{number:04d}": 1 for number in range(1000)}


def test_each_dataflow_is_listed_when_a_term_begins() -> None:
    """Nobody knows what came before."""
    listings = DueListings()
    assert listings.due(MANY, ()) == list(MANY)
    listings.begin()
    assert listings.due(MANY, ()) == list(MANY)


def test_of_those_that_are_idle_some_are_listed_in_turn() -> None:
    """All of them in a bounded number of intervals; one of them if there are few."""
    listings, few = DueListings(), {"a": 1, "b": 1}
    listings.due(few, ())
    assert [listings.due(few, ()) for _ in range(4)] == [["b"], ["a"], ["b"], ["a"]]
    listings.due(MANY, ())
    seen = set[str]()
    for _ in range(TURNS):
        chosen = listings.due(MANY, ())
        assert len(chosen) <= 4
        seen.update(chosen)
    assert seen == set(MANY)


def test_what_has_changed_is_listed() -> None:
    """A resume lets files in that came while nothing was taken in; a new dataflow has a folder."""
    listings = DueListings()
    listings.due(MANY, ())
    assert "d0500" in listings.due(MANY | {"d0500": 2}, ())
    assert "new" in listings.due(MANY | {"d0500": 2, "new": 1}, ())
    assert len(listings.due(MANY | {"d0500": 2, "new": 1}, ())) <= 4


def test_what_was_held_is_listed_once_it_is_free() -> None:
    """Whether an event or the interval came meanwhile; one that was deleted is forgotten."""
    listings, known = DueListings(), dict(MANY)
    listings.due(known, ())
    listings.miss(["d0700", "gone"])
    assert "d0700" not in listings.due(known, {"d0700"})
    known["d0800"] = 2
    assert "d0800" not in listings.due(known, {"d0700", "d0800"})
    assert {"d0700", "d0800"} <= set(listings.due(known, ()))
    assert len(listings.due(known, ())) <= 4


def test_what_has_no_events_is_listed_each_time() -> None:
    """As a folder on a network file system; until its files are announced, or it is gone."""
    listings = DueListings()
    listings.due(MANY, ())
    listings.poll("d0900", True)
    assert all("d0900" in listings.due(MANY, ()) for _ in range(3))
    listings.poll("d0900", False)
    assert "d0900" not in listings.due(MANY, ())
    listings.poll("gone", True)
    assert "gone" not in listings.due(MANY, ())
