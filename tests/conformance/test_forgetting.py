"""Forgetting: rows go, what waits, what is under way and the newest stay; on both databases."""

from __future__ import annotations

from cbp.model.run.intention import RunStatus
from controller.store.base import Store
from tests.conformance.records import a_dataflow, a_run, an_increment, an_intention, arrive, at

CHAIN = {"s": {"i": "a"}, "t": {"j": "s.out"}}


def filled(store: Store) -> None:
    """Fill a store: five arrivals, three runs of `s`, the fourth under way; `t` read nothing."""
    store.register(a_dataflow(), CHAIN)
    for _ in range(5):
        arrive(store)
    for epoch in range(3):
        made = a_run(f"r{epoch}", epoch=epoch)
        store.intend(made)
        store.commit(an_intention(made, an_increment("s.out", epoch)), finished_at=at(1))
    store.intend(a_run("r3", epoch=3))


def test_increments_that_wait_and_the_newest_stay(store: Store) -> None:
    """Consumed ones below the index go; numbers go on where they were."""
    filled(store)
    assert [i.increment.index for i in store.oldest_increments("d", "a", limit=2)] == [0, 1]
    assert store.forget_increments("d", "a", below=2) == 2
    assert store.forget_increments("d", "a", below=99) == 1
    assert [i.increment.index for i in store.oldest_increments("d", "a", limit=9)] == [3, 4]
    assert store.forget_increments("d", "s.out", below=99) == 0
    assert store.forget_increments("d", "nothing", below=99) == 0
    assert store.next_index("d", "a") == 5
    assert arrive(store).index == 5


def test_runs_under_way_stay(store: Store) -> None:
    """Ended ones below the epoch go."""
    filled(store)
    assert store.forget_runs("d", "s", below=2) == 2
    assert store.forget_runs("d", "s", below=99) == 1
    assert [(run.id, run.status) for run in store.runs("d").items] == [("r3", RunStatus.INTENDED)]


def test_the_newest_stays_though_nobody_waits_for_it(store: Store) -> None:
    """The next number of its flow is still known."""
    store.register(a_dataflow(), {"s": {"i": "a"}})
    for epoch in range(3):
        arrive(store)
        made = a_run(f"r{epoch}", epoch=epoch)
        store.intend(made)
        store.commit(an_intention(made, an_increment("s.out", epoch)), finished_at=at(1))
    assert store.forget_increments("d", "s.out", below=99) == 2
    assert store.next_index("d", "s.out") == 3
