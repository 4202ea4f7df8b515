"""Pages of what a store holds, on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbp.model.run.intention import RunStatus
from controller.store import SqlStore
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
def test_pages_hold_every_item_once_newest_first(chain: SqlStore, limit: int) -> None:
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


def test_the_last_page_has_no_cursor(chain: SqlStore) -> None:
    """A listing that fits exactly does not promise more."""
    arrive(chain)
    arrive(chain)
    assert chain.increments("d", limit=2).cursor is None
    assert chain.increments("d", limit=1).cursor is not None


def test_what_arrives_meanwhile_does_not_shift_pages(chain: SqlStore) -> None:
    """The next page goes on after the last item that was shown."""
    for _ in range(3):
        arrive(chain)
    first = chain.increments("d", limit=2)
    arrive(chain)
    second = chain.increments("d", cursor=first.cursor, limit=2)
    assert [i.increment.index for i in (*first.items, *second.items)] == [2, 1, 0]


def test_listings_are_filtered(chain: SqlStore) -> None:
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
def test_an_invented_cursor_is_refused(chain: SqlStore, cursor: str) -> None:
    """A cursor that no listing handed out is the caller's mistake, said as such."""
    with pytest.raises(CursorInvalidError):
        chain.runs(cursor=cursor)


def test_a_cursor_belongs_to_its_listing(chain: SqlStore) -> None:
    """The cursor of one kind of listing is refused by another."""
    arrive(chain)
    arrive(chain)
    with pytest.raises(CursorInvalidError):
        chain.claims("d", cursor=chain.increments("d", limit=1).cursor)


def test_a_cursor_belongs_to_its_dataflow(chain: SqlStore) -> None:
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
