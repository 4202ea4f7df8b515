"""Positions of sinks: moved by the leader, steered by operators, removed with their dataflow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cbp.errors import NotFoundError
from controller.store.base import Store
from controller.store.records import SinkRecord
from tests.conformance.records import START, arrive


def a_sink(name: str = "out", **more: object) -> SinkRecord:
    values: dict[str, object] = {"generation": 0, "next": 0, "standing": {"retry_ms": 5}, **more}
    return SinkRecord("d", name, "abc", "s.out", **values)  # type: ignore[arg-type]


def test_what_an_operator_wants_and_how_far_a_sink_is_do_not_overwrite_each_other(
    chain: Store,
) -> None:
    """Either may be written between a reading and a writing of the other."""
    chain.put_sink(a_sink())
    seen = chain.sinks("d")[0]
    wanted = chain.want_sink("d", "out", desired="paused", choice="keep")
    assert (wanted.desired, wanted.choice, wanted.standing) == ("paused", "keep", {"retry_ms": 0})
    chain.move_sink(replace(seen, generation=2, next=9, standing={"x": 1}))
    (moved,) = chain.sinks()
    assert (moved.desired, moved.choice, moved.generation, moved.next) == ("paused", "keep", 2, 9)
    assert moved.standing == {"x": 1}
    chain.move_sink(moved, chosen="rewrite")
    assert chain.sinks("d")[0].choice == "keep"
    chain.move_sink(moved, chosen="keep")
    assert chain.sinks("d")[0].choice == ""


def test_a_sink_of_another_identity_is_another_sink(chain: Store) -> None:
    """What is found out about the one does not count for the other."""
    chain.put_sink(a_sink(next=3))
    chain.move_sink(replace(a_sink(next=9), identity="other"))
    assert chain.sinks("d")[0].next == 3
    chain.put_sink(replace(a_sink(next=1), identity="other"))
    assert [(one.identity, one.next) for one in chain.sinks("d")] == [("other", 1)]


def test_the_end_of_the_flow_and_the_oldest_that_waits_are_told(chain: Store) -> None:
    """As of the moment of the question, for each sink."""
    chain.put_sink(a_sink(next=1))
    chain.put_sink(replace(a_sink("other"), flow="nothing"))
    assert [(one.end, one.waits_since) for one in chain.sinks("d")] == [(0, None)] * 2
    for _ in range(3):
        arrive(chain)
    chain.put_sink(replace(a_sink(next=1), flow="a"))
    chain.put_sink(replace(a_sink("other", next=3), flow="a"))
    assert [(one.end, one.waits_since) for one in chain.sinks("d")] == [(3, None), (3, START)]


def test_sinks_go_with_their_dataflow(chain: Store) -> None:
    """And those that a new version has no more; an unknown one is reported."""
    for name in ("x", "y", "z"):
        chain.put_sink(a_sink(name))
    chain.forget_sinks("d", keep=["x", "z"])
    assert [one.sink for one in chain.sinks("d")] == ["x", "z"]
    with pytest.raises(NotFoundError):
        chain.want_sink("d", "y", desired="paused")
    chain.delete("d")
    assert chain.sinks() == []
    with pytest.raises(NotFoundError):
        chain.put_sink(a_sink())
