"""Times, crashes, readers and threads: what a write is, on every database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from cbp.engine.storage.failpoints import Faults
from cbp.errors import CbpError, InvariantError
from controller.store.base import Store, open_store
from controller.store.methods.queues import next_index
from tests.conformance.records import (
    CHAIN,
    START,
    a_claim,
    a_dataflow,
    a_run,
    an_arrival,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)
from tests.planned_faults import Crash, PlannedFaults

Reopen = Callable[[Faults], Store]


def test_times_come_back_in_utc(chain: Store) -> None:
    """An instant keeps its microseconds and loses only its zone."""
    local = datetime(2026, 7, 1, 1, 2, 3, 456789, tzinfo=timezone(timedelta(hours=5.5)))
    chain.intend(a_run(started_at=local))
    actual = chain.run("r0").started_at
    assert actual == local
    assert actual.utcoffset() == timedelta(0)


def test_a_time_without_a_zone_is_refused(chain: Store) -> None:
    """What could mean two instants is not stored as one of them."""
    with pytest.raises(InvariantError):
        chain.intend(a_run(started_at=START.replace(tzinfo=None)))


def test_what_is_not_json_is_refused(chain: Store) -> None:
    """A memo that would not come back as it went in is not stored."""
    arrive(chain)
    with pytest.raises(InvariantError):
        chain.commit(an_intention(a_run(), memo=object()), finished_at=at(1))
    assert chain.stages("d")[0].epoch == 0


WRITES: dict[str, Callable[[Store], object]] = {
    "register": lambda store: store.register(a_dataflow("e"), CHAIN),
    "set_desired": lambda store: store.set_desired("d", "paused"),
    "delete": lambda store: store.delete("d"),
    "add_claim": lambda store: store.add_claim(a_claim("c9")),
    "add_claims": lambda store: store.add_claims([a_claim("c9"), a_claim("c10")]),
    "update_claims": lambda store: store.update_claims(
        [a_claim("da0", status="claimed"), a_claim("da0", status="quarantined")]
    ),
    "claims_moved": lambda store: store.claims_moved(
        [a_claim("da0", status="claimed"), a_claim("da0", status="claimed")]
    ),
    "update_claim": lambda store: store.update_claim(a_claim("da0", status="claimed")),
    "accept_all": lambda store: store.accept_all([(a_claim("c8"), an_arrival(1))]),
    "intend": lambda store: store.intend(a_run("r9")),
    "commit": lambda store: store.commit(
        an_intention(a_run("r1"), an_increment("s.out", 0)), finished_at=at(1)
    ),
    "fail": lambda store: store.fail("r1", {}, finished_at=at(1), retry_at=None),
    "pause_stage": lambda store: store.pause_stage("d", "s", "why"),
    "retry_stage": lambda store: store.retry_stage("d", "t"),
    "resume_stage": lambda store: store.resume_stage("d", "t"),
}


def picture(store: Store) -> list[Any]:
    """Return everything that the store shows."""
    names = [record.name for record in store.dataflows()]
    per_dataflow = [
        (store.stages(n), store.connectors(n), store.claims(n).items, store.increments(n).items)
        for n in names
    ]
    return [store.dataflows(), store.runs().items, *per_dataflow]


@pytest.mark.part(every=3)
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_leaves_all_of_a_write_or_nothing(
    chain: Store, store_with_faults: Reopen, name: str, side: str
) -> None:
    """Dying before the commit leaves the old picture; dying after it, the new one."""
    arrive(chain)
    chain.intend(a_run("r1"))
    chain.pause_stage("d", "t", "it stopped")
    old = picture(chain)
    dying = store_with_faults(PlannedFaults(f"sql_commit.{side}"))
    with pytest.raises(Crash):
        WRITES[name](dying)
    assert (picture(chain) == old) is (side == "before")


def test_readers_never_see_half_of_a_write(chain: Store, store_with_faults: Reopen) -> None:
    """While a commit is under way, others see the state before it, and do not wait."""
    arrive(chain)
    old, seen = picture(chain), list[Any]()
    slow = store_with_faults(lambda point: seen.append(picture(chain)))
    slow.commit(an_intention(a_run(), an_increment("s.out", 0)), finished_at=at(1))
    before, after = seen
    assert before == old
    assert after == picture(chain) != old


def test_one_transaction_reads_one_state(chain: Store) -> None:
    """What is committed between two reads of one transaction shows in neither."""
    with chain._database.read() as connection:
        first = next_index(connection, "d", "a")
        arrive(chain)
        second = next_index(connection, "d", "a")
    assert (first, second) == (0, 0)
    assert chain.next_index("d", "a") == 1


def test_two_threads_that_commit_one_intention_have_one_effect(
    chain: Store, store_with_faults: Reopen
) -> None:
    """A zombie's commit and the redo of its heir, in any order, count once.

    first    BEGIN, moves the queues, waits ................ COMMIT
    second                             enters commit, waits         sees the new epoch
    """
    second_enters, errors = threading.Event(), list[BaseException]()

    def wait_for_the_second(point: str) -> None:
        if point == "sql_commit.before" and not second_enters.is_set():
            holds.set()
            assert second_enters.wait(120)

    holds = threading.Event()
    arrive(chain)
    run = a_run()
    chain.intend(run)
    intention = an_intention(run, an_increment("s.out", 0))
    slow = store_with_faults(wait_for_the_second)

    def commit(first: bool) -> None:
        try:
            if not first:
                assert holds.wait(120)
                second_enters.set()
            slow.commit(intention, finished_at=at(1))
        except BaseException as exc:
            errors.append(exc)

    in_threads(commit, [True, False])
    assert errors == []
    assert waiting(chain) == {"s": {"i": []}, "t": {"j": ["s.out/0"], "k": ["a/0"]}}
    assert [stage.epoch for stage in chain.stages("d")] == [1, 0]
    assert len(chain.increments("d", "s.out").items) == 1


def in_threads(work: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    """Run a function once per argument, each in its own thread; wait for all."""
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_many_threads_lose_nothing(store: Store) -> None:
    """Claims, arrivals and reads from many threads leave no gap and no double."""
    store.register(a_dataflow(), CHAIN)
    errors: list[CbpError] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        try:
            for n in range(5):
                claim = store.add_claim(a_claim(f"w{number}n{n}"))
                with lock:
                    store.accept_all([(claim, an_arrival(store.next_index("d", "a")))])
                store.connectors("d")
        except CbpError as exc:
            errors.append(exc)

    in_threads(work, range(4))
    assert errors == []
    names = [f"a/{n}" for n in range(20)]
    assert waiting(store) == {"s": {"i": names}, "t": {"j": [], "k": names}}
    assert [claim.sequence for claim in store.claims("d").items] == list(range(19, -1, -1))


@pytest.mark.service
def test_a_server_that_restarted_is_found_again(
    new_postgres_database: Callable[[], str],
) -> None:
    """Connections that the server closed are replaced before a method uses them."""
    url = new_postgres_database()
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with closing(open_store(url)) as store:
        store.register(a_dataflow(), CHAIN)
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as connection:
            ended = connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) {others}"))
            assert ended.all() == [(True,)]
        engine.dispose()
        store.set_desired("d", "paused")
        assert store.dataflow("d").desired == "paused"
