"""A roll-back in the store: one transaction to where a generation began, on both databases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbp.errors import InvariantError
from cbp.model.generation import Generation
from controller.store import SqlStore
from tests.conformance.records import (
    a_dataflow,
    a_run,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)

CHAIN = {"s": {"i": "a"}, "t": {"j": "s.out"}}


def run(store: SqlStore, epoch: int, **more: Any) -> None:
    made = a_run(f"r{epoch}x{len(store.runs('d').items)}", epoch=epoch)
    store.intend(made)
    output = an_increment("s.out", epoch)
    store.commit(an_intention(made, output, memo=[epoch], **more), finished_at=at(1))


@pytest.fixture
def chain(store: SqlStore) -> SqlStore:
    """Give a store whose stage `s` ran twice; three increments have arrived."""
    store.register(a_dataflow(), CHAIN)
    for _ in range(3):
        arrive(store)
    for epoch in range(2):
        run(store, epoch)
    return store


def begin(store: SqlStore, **more: Any) -> Generation:
    """Return a generation that begins where the store stands now."""
    return Generation(1, store.position("d"), {"s": 2, "t": 0}, 0, "me", "why", **more)


def test_a_dataflow_goes_back_to_where_a_generation_began(chain: SqlStore) -> None:
    """Epochs, memos and queues of then; later arrivals behind them, later outputs forgotten."""
    before, stages, generation = waiting(chain), chain.stages("d"), begin(chain)
    run(chain, 2)
    arrive(chain)
    chain.pause_stage("d", "s", "something")
    chain.rewind(generation, at=at(5))
    assert waiting(chain) == {**before, "s": {"i": [*before["s"]["i"], "a/3"]}}
    assert [(s.epoch, s.memo, s.paused_because) for s in chain.stages("d")] == [
        (s.epoch, s.memo, "") for s in stages
    ]
    assert chain.next_index("d", "s.out") == 2
    assert chain.next_index("d", "a") == 4
    assert chain.dataflow("d").generation == 1


def test_it_is_done_once(chain: SqlStore) -> None:
    """Repeated after runs of the new generation, it takes nothing back."""
    generation = begin(chain)
    chain.rewind(generation, at=at(5))
    run(chain, 2, generation=1)
    chain.rewind(generation, at=at(6))
    assert chain.stages("d")[0].epoch == 3


def test_a_run_of_another_generation_is_refused(chain: SqlStore) -> None:
    """Whoever slept through the roll-back commits nothing."""
    chain.rewind(begin(chain), at=at(5))
    with pytest.raises(InvariantError):
        run(chain, 2)
    assert chain.stages("d")[0].epoch == 2


def test_an_empty_store_goes_forward_to_it(chain: SqlStore) -> None:
    """A store that lost everything gets the position, and the increments in its queues."""
    generation, before = begin(chain), waiting(chain)
    chain.delete("d")
    chain.register(a_dataflow(), CHAIN)
    chain.rewind(generation, at=at(5))
    assert waiting(chain) == before
    assert chain.next_index("d", "s.out") == 2


def test_a_generation_of_other_stages_is_refused(chain: SqlStore) -> None:
    """Nothing is changed when stages or inputs differ."""
    generation = begin(chain)
    stages = {"s": generation.position.stages["s"]}
    other = replace(generation, position=replace(generation.position, stages=stages))
    before = waiting(chain)
    with pytest.raises(InvariantError):
        chain.rewind(other, at=at(5))
    assert (waiting(chain), chain.dataflow("d").generation) == (before, 0)
