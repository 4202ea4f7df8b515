"""Frames and punctuations as the store keeps them, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cbp.errors import InvariantError, NotFoundError
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.punctuation import Punctuation
from controller.store.base import Store
from tests.conformance.records import (
    CHAIN,
    a_dataflow,
    a_run,
    an_intention,
    arrive,
    at,
    waiting,
)


def test_frames_replace_what_arrived(store: Store) -> None:
    """At a framed input only: in one step, each output increment once; runs consume frames."""
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    first, second = arrive(store), arrive(store)
    connector = store.connectors("d")["s"]["i"]
    assert (connector.queue, connector.arrived) == ((), (first, second))
    assert connector.framing == Framing()
    assert waiting(store)["t"] == {"j": [], "k": ["a/0", "a/1"]}
    frames = [Increment("a", n, "A", (first.files[0].slice(0, 1),)) for n in range(2)]
    state = Framing({"n": 1}, 3, Increment("a", 2, "B", second.files))
    store.frame("d", "s", "i", index=0, framing=state, frames=frames)
    connector = store.connectors("d")["s"]["i"]
    assert [queued.increment for queued in connector.queue] == frames
    assert (connector.framing, connector.arrived) == (state, (second,))
    assert connector.held == (*frames, second, state.open)
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=0, framing=state, frames=frames)
    with pytest.raises(InvariantError):
        store.frame("d", "t", "k", index=0, framing=state, frames=())
    run = a_run(read={"i": (0, 1)}, remove={"i": (0,)})
    store.intend(run)
    store.commit(an_intention(run), finished_at=at(1))
    queue = store.connectors("d")["s"]["i"].queue
    assert [(queued.increment.index, queued.read) for queued in queue] == [(1, True)]
    run = a_run("r1", epoch=1, read={"i": (0,)})
    store.intend(run)
    with pytest.raises(InvariantError):
        store.commit(an_intention(run), finished_at=at(2))


def test_a_punctuation_waits_until_all_before_it_is_framed(store: Store) -> None:
    """Recorded once, in order; applied once, after what came before it and before the rest."""
    store.register(a_dataflow(), CHAIN, framed={("s", "i"), ("t", "k")})
    first = arrive(store)
    made = Punctuation(0, "a", 1, "request", "monday", 5)
    for _ in range(2):
        store.punctuate("d", made)
    with pytest.raises(InvariantError):
        store.punctuate("d", replace(made, number=2, key="x"))
    only = Punctuation(1, "a", 1, "idle", "tuesday", 6, "t.k")
    store.punctuate("d", only)
    assert (store.next_punctuation("d"), store.punctuation("d", "monday")) == (2, made)
    assert store.punctuation("d", "sunday") is None
    assert list(store.punctuations("d").items) == [only, made]
    begin, moment = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=6)
    assert list(store.punctuations("d", since=begin + moment).items) == [only]
    assert list(store.punctuations("d", until=begin + moment).items) == [made]
    second = arrive(store)
    actual = store.connectors("d")
    assert (actual["s"]["i"].closes, actual["t"]["k"].closes) == ((1,), (1, 1))
    state = Framing(None, 1, None, 0)
    step: dict[str, Any] = {"framing": state, "frames": ()}
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=None, **step)  # the first increment is before it
    store.frame("d", "s", "i", index=0, framing=state, frames=[first])
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=1, **step)  # the punctuation is before it
    store.frame("d", "s", "i", index=None, **step)
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=None, **step)
    store.frame("d", "s", "i", index=1, framing=state, frames=[replace(second, index=1)])
    connector = store.connectors("d")["s"]["i"]
    assert (connector.closes, connector.arrived, len(connector.queue)) == ((), (), 2)
    with pytest.raises(NotFoundError):
        store.next_punctuation("nobody")
    with pytest.raises(NotFoundError):
        store.punctuate("nobody", made)
