"""Who leads, on every database: one at a time, and who was replaced writes nothing more.

A write of an old epoch is before the take-over or refused; one that stopped is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from cbp.errors import LeaseLostError, OperatingError
from cbp.model.schedule.lease import Lease
from controller.store.base import Store, open_store
from tests.conformance.records import a_dataflow

LONG, SHORT = 600_000, 1
WAIT_SECONDS = 120.0


@pytest.fixture
def two(store: Store, database: str) -> Iterator[tuple[Store, Store]]:
    """Give two stores on one database whose lease is free."""
    with closing(open_store(database, exclusive=False)) as other:
        store.fence(None)
        store.release_lease(store.lease()[0].epoch)
        yield store, other
        store.fence(None)
        store.release_lease(store.lease()[0].epoch)


def test_the_lease_is_held_by_one(two: tuple[Store, Store]) -> None:
    """While it has time left nobody else gets it; the row says who holds it and where."""
    one, other = two
    before = one.lease()[0].epoch
    held = one.take_lease("one", "http://one", milliseconds=LONG)
    assert held is not None
    assert (held.epoch, held.holder, held.address) == (before + 1, "one", "http://one")
    assert other.take_lease("other", "http://other", milliseconds=LONG) is None
    seen, now_ms = other.lease()
    assert seen == held
    assert 0 < seen.expires_ms - now_ms <= LONG


def test_a_lease_that_ran_out_is_free_and_may_also_be_renewed(
    two: tuple[Store, Store],
) -> None:
    """Time alone takes nothing away: the first of both, taking or renewing, has it."""
    one, other = two
    held = one.take_lease("one", "", milliseconds=SHORT)
    assert held is not None
    until_free(one)
    assert one.renew_lease(held.epoch, milliseconds=SHORT)
    until_free(one)
    taken = other.take_lease("other", "", milliseconds=LONG)
    assert taken is not None
    assert taken.epoch == held.epoch + 1
    assert not one.renew_lease(held.epoch, milliseconds=LONG)
    one.release_lease(held.epoch)
    assert other.lease()[0] == taken


def test_a_released_lease_is_free_at_once(two: tuple[Store, Store]) -> None:
    """A stop in good order costs no waiting, and the epoch goes on rising."""
    one, other = two
    held = one.take_lease("one", "", milliseconds=LONG)
    assert held is not None
    one.release_lease(held.epoch)
    taken = other.take_lease("other", "", milliseconds=LONG)
    assert taken is not None
    assert taken.epoch == held.epoch + 1


def test_of_many_that_stand_at_once_one_leads(two: tuple[Store, Store]) -> None:
    """A race for a free lease has one winner, whose epoch is the next."""
    one, other = two
    start = threading.Barrier(4)

    def stand(number: int) -> Lease | None:
        start.wait(WAIT_SECONDS)
        return (one, other)[number % 2].take_lease(str(number), "", milliseconds=LONG)

    before = one.lease()[0].epoch
    with ThreadPoolExecutor(4) as pool:
        won = [lease for lease in pool.map(stand, range(4)) if lease is not None]
    assert [lease.epoch for lease in won] == [before + 1]


def test_the_fence_refuses_every_write_of_an_old_epoch(two: tuple[Store, Store]) -> None:
    """Who was replaced changes nothing any more, whatever it calls; reading goes on."""
    one, other = two
    held = one.take_lease("one", "", milliseconds=SHORT)
    assert held is not None
    one.fence(held.epoch)
    one.register(a_dataflow("before"), {"s": {"i": "a"}})
    until_free(one)
    one.pause_stage("before", "s", "ran out, and nobody took it")
    taken = other.take_lease("other", "http://other", milliseconds=LONG)
    assert taken is not None
    calls: list[Callable[[], Any]] = [
        lambda: one.register(a_dataflow("after"), {}),
        lambda: one.pause_stage("before", "s", "late"),
        lambda: one.set_desired("before", "paused"),
        lambda: one.delete("before"),
    ]
    for call in calls:
        with pytest.raises(LeaseLostError) as refused:
            call()
        assert refused.value.details["epoch"] == held.epoch
        assert "http://other" in refused.value.message
    assert [record.name for record in one.dataflows()] == ["before"]
    other.fence(taken.epoch)
    other.set_desired("before", "paused")
    other.fence(None)
    one.fence(None)
    one.set_desired("before", "running")


@pytest.mark.service
def test_a_take_over_waits_for_a_write_under_way_and_not_for_one_that_is_stuck(
    new_postgres_database: Callable[[], str],
) -> None:
    """A write of the old epoch is before the take-over or never; one that stopped is cut off.

    Who waited for that has the lease for its whole time.

    zombie  BEGIN, holds the epoch ............(stopped)............ its connection is gone
    renewal                          passes
    rival                                      waits ................ leads
    """
    url = new_postgres_database()
    with closing(open_store(url)) as zombie, closing(open_store(url)) as rival:
        held = zombie.take_lease("zombie", "", milliseconds=SHORT)
        assert held is not None
        zombie.fence(held.epoch)
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        actual: list[tuple[Lease | None, int]] = []
        with pytest.raises(OperatingError):
            _stop_inside_a_write(zombie, held.epoch, rival, engine, actual)
        engine.dispose()
    ((taken, waits_ms),) = actual  # not judged in there: what ends with an error may hide another
    assert taken is not None
    assert taken.epoch == held.epoch + 1
    assert taken.expires_ms - LONG > waits_ms, "it counts from before it was had"


def _stop_inside_a_write(
    zombie: Store,
    epoch: int,
    rival: Store,
    engine: Engine,
    found: list[tuple[Lease | None, int]],
) -> None:
    """Add what the rival got, and the database's time while it waited for that."""
    with zombie._database.write() as connection:
        assert zombie.renew_lease(epoch, milliseconds=SHORT)
        until_free(rival)
        with ThreadPoolExecutor(1) as pool, engine.connect() as watching:
            standing = pool.submit(rival.take_lease, "rival", "", milliseconds=LONG)
            waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            while not watching.execute(waits).scalar_one():
                watching.rollback()
                assert not standing.done(), "it did not wait"
            _, waits_ms = rival.lease()
            found.append((standing.result(WAIT_SECONDS), waits_ms))
        connection.execute(text("SELECT 1"))


def test_who_has_a_database_for_itself_need_not_wait(tmp_path: Any) -> None:
    """The time that a killed process left on SQLite holds up nobody: the lock file decides."""
    url = f"sqlite:///{tmp_path}/cbp.db"
    with closing(open_store(url)) as store:
        assert not store.shared
        assert store.take_lease("killed", "", milliseconds=LONG) is not None
    with closing(open_store(url)) as store:
        again = store.take_lease("next", "", milliseconds=LONG)
    assert again is not None
    assert again.epoch == 2


def until_free(store: Store) -> None:
    """Return once the lease has no time left."""
    while (seen := store.lease())[0].expires_ms > seen[1]:
        pass
