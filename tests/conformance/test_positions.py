"""Positions of a dataflow that a store is brought to, on every database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cbp.errors import InvariantError, NotFoundError
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from cbp.model.flow.punctuation import Punctuation
from controller.store.base import Store
from tests.conformance.records import (
    CHAIN,
    a_dataflow,
    a_run,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)


def test_a_position_is_brought_back_into_an_empty_store(chain: Store) -> None:
    """Epochs, memos, read marks, queues and the next indexes of flows are what they were."""
    for _ in range(3):
        arrive(chain)
    for epoch in range(2):
        run = a_run(f"r{epoch}", epoch=epoch)
        chain.intend(run)
        chain.commit(
            an_intention(run, an_increment("s.out", epoch), memo=[epoch]), finished_at=at(1)
        )
    run = a_run("t0", stage="t", read={"j": (0,)}, remove={})
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(2))
    position = chain.position("d")
    before, stages = waiting(chain), chain.stages("d")
    chain.delete("d")
    chain.register(a_dataflow(), CHAIN)
    for _ in range(4):  # the source's log knows one more by now
        arrive(chain)
    chain.restore(position, at=at(3))
    actual = waiting(chain)
    assert actual == {
        "s": {"i": [*before["s"]["i"], "a/3"]},
        "t": {"j": before["t"]["j"], "k": [*before["t"]["k"], "a/3"]},
    }
    assert before["t"]["j"][0].endswith("*")
    assert [(s.epoch, s.memo) for s in chain.stages("d")] == [(s.epoch, s.memo) for s in stages]
    assert chain.next_index("d", "s.out") == 2
    assert chain.position("d").stages["t"].connectors["j"] == position.stages["t"].connectors["j"]
    chain.restore(position, at=at(4))
    assert waiting(chain) == actual


def test_a_position_never_moves_a_stage_back(chain: Store) -> None:
    """Ahead of it: nothing happens. Partly ahead, or other stages: refused."""
    arrive(chain)
    early = chain.position("d")
    run = a_run("r0")
    chain.intend(run)
    chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    before = waiting(chain)
    chain.restore(early, at=at(2))
    assert waiting(chain) == before
    torn = {**early.stages, "t": replace(early.stages["t"], epoch=1)}
    with pytest.raises(InvariantError):
        chain.restore(replace(early, stages=torn), at=at(2))
    with pytest.raises(InvariantError):
        chain.restore(replace(early, stages={"s": early.stages["s"]}), at=at(2))
    with pytest.raises(NotFoundError):
        chain.restore(replace(early, dataflow="nobody"), at=at(2))
    with pytest.raises(NotFoundError):
        chain.position("nobody")


def test_a_position_holds_where_framing_stands(store: Store) -> None:
    """Frames, the open one, what is not framed, closes: brought back into an empty store."""
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    first, second = arrive(store), arrive(store)
    open_ = Increment("a", 1, "B", second.files)
    frame = Increment("a", 0, "A", (first.files[0].slice(0, 1),))
    store.frame("d", "s", "i", index=0, framing=Framing([1], 2, open_, 0), frames=[frame])
    store.punctuate("d", Punctuation(0, "a", 2, "request", "monday", 5))
    position, before = store.position("d"), store.connectors("d")
    assert Position.from_json(position.to_json()) == position
    run = a_run(read={"i": (0,)})
    store.intend(run)
    store.commit(an_intention(run), finished_at=at(1))
    later, kept = store.position("d"), store.connectors("d")
    store.delete("d")
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    for _ in range(3):  # the source's log knows one more by now
        arrive(store)
    store.restore(later, at=at(2))
    actual = store.connectors("d")["s"]["i"]
    assert actual == replace(kept["s"]["i"], arrived=(*kept["s"]["i"].arrived, actual.arrived[-1]))
    assert (actual.closes, actual.arrived[-1].index, store.next_punctuation("d")) == ((2,), 2, 1)
    assert before["s"]["i"].queue != actual.queue
    store.delete("d")
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    for _ in range(3):
        arrive(store)
    tuesday = Punctuation(1, "a", 3, "request", "tuesday", 6)
    store.punctuate("d", Punctuation(0, "a", 2, "request", "monday", 5))
    store.punctuate("d", tuesday)  # stored before the position was
    store.restore(later, at=at(2))
    assert store.connectors("d")["s"]["i"].closes == (2, 3)
    store.punctuate("d", tuesday)
    assert (store.connectors("d")["s"]["i"].closes, store.next_punctuation("d")) == ((2, 3), 2)
    store.delete("d")
    store.register(a_dataflow(), CHAIN)
    with pytest.raises(InvariantError):
        store.restore(later, at=at(3))  # here the input is not framed
