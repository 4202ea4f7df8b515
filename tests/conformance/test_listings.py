"""Pages of what a store holds, on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbp.model.run.intention import RunStatus
from controller.store.base import Store
from controller.store.errors import CursorInvalidError
from tests.conformance.records import (
    a_claim,
    a_dataflow,
    a_run,
    an_increment,
    an_intention,
    arrive,
    at,
)


def everything(listing: Callable[[str | None], Any]) -> list[Any]:
    """Turn all pages of a listing."""
    items: list[Any] = []
    cursor = None
    while True:
        page = listing(cursor)
        items += page.items
        if (cursor := page.cursor) is None:
            return items


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
def test_pages_hold_every_item_once_newest_first(chain: Store, limit: int) -> None:
    """Whatever the size of a page: no item twice, none missing, the newest first."""
    for n in range(5):
        arrive(chain)
        chain.commit(an_intention(a_run(f"r{n}", epoch=n)), finished_at=at(n))
    increments = everything(lambda c: chain.increments("d", cursor=c, limit=limit))
    runs = everything(lambda c: chain.runs("d", cursor=c, limit=limit))
    claims = everything(lambda c: chain.claims("d", cursor=c, limit=limit))
    assert [i.increment.index for i in increments] == [4, 3, 2, 1, 0]
    assert [run.id for run in runs] == ["r4", "r3", "r2", "r1", "r0"]
    assert [claim.sequence for claim in claims] == [4, 3, 2, 1, 0]


def test_arrivals_are_listed_by_time_and_by_reason(chain: Store) -> None:
    """From a time on, before a time, by the code of a refusal; pages keep to the choice."""
    for n in range(4):
        arrive(chain, at_time=at(n))
        reason = {"code": "type_wrong" if n % 2 else "line_wrong", "message": "type_wrong"}
        refused = a_claim(f"q{n}", status="quarantined", created_at=at(n), reason=reason)
        chain.add_claim(refused)

    def indexes(**choice: Any) -> list[int]:
        pages = everything(lambda c: chain.increments("d", cursor=c, limit=1, **choice))
        return [one.increment.index for one in pages]

    def refused_ids(**choice: Any) -> list[str]:
        pages = everything(lambda c: chain.claims("d", cursor=c, limit=1, **choice))
        return [one.id for one in pages if one.id.startswith("q")]

    assert indexes(since=at(1), until=at(3)) == [2, 1]
    assert indexes(since=at(4)) == []
    assert refused_ids(code="type_wrong") == ["q3", "q1"]
    assert refused_ids(code="type") == []
    assert refused_ids(since=at(1), until=at(3)) == ["q2", "q1"]
    assert refused_ids(code="line_wrong", since=at(1)) == ["q2"]


def test_committed_runs_are_those_of_a_stage_since_a_time(chain: Store) -> None:
    """Oldest first, not more than the limit; runs of other stages and failed ones are left out."""
    for n in range(4):
        arrive(chain)
        run = a_run(f"r{n}", epoch=n, started_at=at(n))
        chain.intend(run)
        chain.commit(an_intention(run), finished_at=at(n + 1))
    chain.intend(a_run("r4", epoch=4, started_at=at(4)))
    chain.fail("r4", {"error_code": "x"}, finished_at=at(5), retry_at=None)
    assert [one.id for one in chain.committed_runs("d", "s", since=at(1), limit=2)] == ["r1", "r2"]
    assert [one.id for one in chain.committed_runs("d", "s", since=at(3), limit=9)] == ["r3"]
    assert chain.committed_runs("d", "t", since=at(0), limit=9) == []


def test_the_last_page_has_no_cursor(chain: Store) -> None:
    """A listing that fits exactly does not promise more."""
    arrive(chain)
    arrive(chain)
    assert chain.increments("d", limit=2).cursor is None
    assert chain.increments("d", limit=1).cursor is not None


def test_what_arrives_meanwhile_does_not_shift_pages(chain: Store) -> None:
    """The next page goes on after the last item that was shown."""
    for _ in range(3):
        arrive(chain)
    first = chain.increments("d", limit=2)
    arrive(chain)
    second = chain.increments("d", cursor=first.cursor, limit=2)
    assert [i.increment.index for i in (*first.items, *second.items)] == [2, 1, 0]


def test_listings_are_filtered(chain: Store) -> None:
    """Each filter leaves exactly what it names."""
    chain.register(a_dataflow("e"), {"s": {}})
    arrive(chain)
    chain.commit(an_intention(a_run("r0"), an_increment("s.out", 0)), finished_at=at(1))
    chain.intend(a_run("r1", stage="t"))
    chain.intend(a_run("r2", dataflow="e"))
    chain.add_claim(a_claim("open", source="b"))

    def ids(**filters: Any) -> list[str]:
        return [run.id for run in chain.runs(**filters).items]

    assert ids() == ["r2", "r1", "r0"]
    assert ids(dataflow="d") == ["r1", "r0"]
    assert ids(dataflow="d", stage="s") == ["r0"]
    assert ids(status=RunStatus.INTENDED) == ["r2", "r1"]
    assert [i.increment.name for i in chain.increments("d", "s.out").items] == ["s.out/0"]
    assert [c.id for c in chain.claims("d", "b").items] == ["open"]
    assert [c.id for c in chain.claims("d", status="accepted").items] == ["da0"]


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "W10", "WyJydW5zIl0", "bnVsbA", "WyJydW5zIiwxXQ", "eyJhIjoxLCJiIjoyfQ"]
)
def test_an_invented_cursor_is_refused(chain: Store, cursor: str) -> None:
    """A cursor that no listing handed out is the caller's mistake, said as such."""
    with pytest.raises(CursorInvalidError):
        chain.runs(cursor=cursor)


def test_a_cursor_belongs_to_its_listing(chain: Store) -> None:
    """The cursor of one kind of listing is refused by another."""
    arrive(chain)
    arrive(chain)
    with pytest.raises(CursorInvalidError):
        chain.claims("d", cursor=chain.increments("d", limit=1).cursor)


def test_a_cursor_belongs_to_its_dataflow(chain: Store) -> None:
    """Its place means nothing among the items of another one."""
    chain.register(a_dataflow("e"), {"s": {}})
    arrive(chain)
    arrive(chain)
    increments = chain.increments("d", limit=1).cursor
    claims = chain.claims("d", limit=1).cursor
    assert increments is not None
    assert claims is not None
    for listing in (
        lambda: chain.increments("e", cursor=increments),
        lambda: chain.claims("e", cursor=claims),
    ):
        with pytest.raises(CursorInvalidError):
            listing()


def test_runs_are_filtered_by_their_end_and_their_time(chain: Store) -> None:
    """By epoch, by the whole code of the error, and by the time when they began; also together."""
    codes = ["disk_full", "disk_full_of_files", "author_code_failed"]
    for n, code in enumerate(codes):
        chain.intend(a_run(f"r{n}", started_at=at(n)))
        error = {"error_code": code, "message": "disk_full", "details": {}}
        chain.fail(f"r{n}", error, finished_at=at(n), retry_at=None)
    arrive(chain)
    chain.commit(an_intention(a_run("r3", started_at=at(3))), finished_at=at(3))
    chain.intend(a_run("r4", epoch=1, started_at=at(4)))

    def ids(**filters: Any) -> list[str]:
        return [run.id for run in everything(lambda c: chain.runs(cursor=c, limit=2, **filters))]

    assert ids(error_code="disk_full") == ["r0"]
    assert ids(error_code="disk%full") == []
    assert ids(error_code="author_code_failed", epoch=0) == ["r2"]
    assert ids(epoch=1) == ["r4"]
    assert ids(since=at(1), until=at(2)) == ["r1"]
    assert ids(since=at(1), status=RunStatus.FAILED) == ["r2", "r1"]
    assert ids(since=at(5)) == []
