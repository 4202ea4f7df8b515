"""A roll-back in the store: one transaction to where a generation began, on both databases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbp.errors import InvariantError
from cbp.model.flow.framing import Framing
from cbp.model.flow.generation import Generation
from cbp.model.flow.punctuation import Punctuation
from controller.store.base import Store
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


def run(store: Store, epoch: int, **more: Any) -> None:
    made = a_run(f"r{epoch}x{len(store.runs('d').items)}", epoch=epoch)
    store.intend(made)
    output = an_increment("s.out", epoch)
    store.commit(an_intention(made, output, memo=[epoch], **more), finished_at=at(1))


@pytest.fixture
def chain(store: Store) -> Store:
    """Give a store whose stage `s` ran twice; three increments have arrived."""
    store.register(a_dataflow(), CHAIN)
    for _ in range(3):
        arrive(store)
    for epoch in range(2):
        run(store, epoch)
    return store


def begin(store: Store, **more: Any) -> Generation:
    """Return a generation that begins where the store is now."""
    return Generation(1, store.position("d"), {"s": 2, "t": 0}, 0, "me", "why", **more)


def test_a_dataflow_goes_back_to_where_a_generation_began(chain: Store) -> None:
    """Epochs, memos and queues of then; later arrivals behind them, later outputs forgotten."""
    before, stages, generation = waiting(chain), chain.stages("d"), begin(chain)
    run(chain, 2)
    arrive(chain)
    chain.pause_stage("d", "s", "something")
    chain.set_priorities("d", {"s": "high"})
    chain.rewind(generation, at=at(5))
    assert [s.priority for s in chain.stages("d")] == ["high", "normal"]
    assert waiting(chain) == {**before, "s": {"i": [*before["s"]["i"], "a/3"]}}
    assert [(s.epoch, s.memo, s.paused_because) for s in chain.stages("d")] == [
        (s.epoch, s.memo, "") for s in stages
    ]
    assert chain.next_index("d", "s.out") == 2
    assert chain.next_index("d", "a") == 4
    assert chain.dataflow("d").generation == 1


def test_it_is_done_once(chain: Store) -> None:
    """Repeated after runs of the new generation, it takes nothing back."""
    generation = begin(chain)
    chain.rewind(generation, at=at(5))
    run(chain, 2, generation=1)
    chain.rewind(generation, at=at(6))
    assert chain.stages("d")[0].epoch == 3


def test_a_run_of_another_generation_is_refused(chain: Store) -> None:
    """A leader that slept through the roll-back commits nothing."""
    chain.rewind(begin(chain), at=at(5))
    with pytest.raises(InvariantError):
        run(chain, 2)
    assert chain.stages("d")[0].epoch == 2


def test_an_empty_store_goes_forward_to_it(chain: Store) -> None:
    """A store that lost everything gets the position, and the increments in its queues."""
    generation, before = begin(chain), waiting(chain)
    chain.delete("d")
    chain.register(a_dataflow(), CHAIN)
    chain.rewind(generation, at=at(5))
    assert waiting(chain) == before
    assert chain.next_index("d", "s.out") == 2


def test_framings_and_closes_go_back_too(store: Store) -> None:
    """Those of its position wait there, and what came since; not what was dropped."""
    store.register(a_dataflow(), CHAIN, {("t", "j")})
    for _ in range(2):
        arrive(store)
    run(store, 0)
    first, second, third = (
        Punctuation(number, "s.out", at_, "request", f"k{number}", number)
        for number, at_ in enumerate((1, 3, 2))
    )
    store.punctuate("d", first)
    generation = begin(store)
    run(store, 1)
    store.punctuate("d", second)
    store.frame("d", "t", "j", index=0, framing=Framing(None, 1, None, 0), frames=())
    dropped = replace(generation.position, punctuations=2)
    store.rewind(replace(generation, position=dropped, closes_dropped=(1,)), at=at(5))
    connector = store.connectors("d")["t"]["j"]
    assert (connector.closes, connector.framing) == ((1,), Framing())
    assert [increment.index for increment in connector.arrived] == [0]
    assert (store.punctuation("d", "k1"), store.next_punctuation("d")) == (second, 2)
    assert store.increment("d", "s.out", 0).created_at == at(5), "idle time counts anew"
    assert store.increment("d", "a", 0).created_at != at(5)
    # One that is further on than another made later, and one made beside the roll-back.
    store.punctuate("d", replace(second, number=2, key="again"))
    again = replace(begin(store), number=2)
    store.punctuate("d", replace(third, number=3))
    assert store.connectors("d")["t"]["j"].closes == (1, 2, 3)
    store.rewind(again, at=at(6))
    assert store.connectors("d")["t"]["j"].closes == (1, 2, 3)
    assert store.next_punctuation("d") == 4


def test_a_generation_of_other_stages_is_refused(chain: Store) -> None:
    """Nothing is changed when stages or inputs differ."""
    generation = begin(chain)
    stages = {"s": generation.position.stages["s"]}
    other = replace(generation, position=replace(generation.position, stages=stages))
    before = waiting(chain)
    with pytest.raises(InvariantError):
        chain.rewind(other, at=at(5))
    assert (waiting(chain), chain.dataflow("d").generation) == (before, 0)
