"""Retention of inputs: what is needed stays, what is left is without gaps and fits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.flow.retention import FlowRetention, Held, KeptFlow, expire, kept_flow

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    ages = sorted(draw(st.lists(st.integers(0, 9), max_size=8)), reverse=True)
    held = [
        Held(5 + n, draw(st.integers(0, 3)), NOW - timedelta(seconds=age), (f"{n}a", f"{n}b"))
        for n, age in enumerate(ages)
    ]
    names = [path for one in held for path in one.paths]
    needed = draw(st.lists(st.sampled_from(names), max_size=2)) if names else []
    return {
        "held": held,
        "total_bytes": sum(one.bytes for one in held),
        "first_replayed": draw(st.integers(0, 15)),
        "needed": set(needed),
        "retention": FlowRetention(
            draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(0, 9))
        ),
        "now": NOW,
        "next_index": 5 + len(held) + draw(st.integers(0, 2)),
    }


@given(cases())
def test_what_is_needed_stays_and_the_rest_fits(case: dict[str, Any]) -> None:
    """Gone is the longest beginning that nothing needs and that is old or too much."""
    actual = expire(**case)
    keep, held = case["retention"], case["held"]
    assert list(actual.gone) == held[: len(actual.gone)]
    for at, one in enumerate(actual.gone):
        assert not case["needed"] & set(one.paths)
        assert one.index < case["first_replayed"]
        old = NOW - one.arrived >= timedelta(seconds=keep.seconds)
        many = 0 < keep.increments < case["next_index"] - one.index
        assert old or many or 0 < keep.bytes < sum(later.bytes for later in held[at:])
    assert bool(actual.because) == bool(actual.gone)
    left = held[len(actual.gone) :]
    assert bool(actual.stays) == bool(left)
    if left:
        first, size = left[0], sum(one.bytes for one in left)
        young = NOW - first.arrived < timedelta(seconds=keep.seconds)
        fits = not keep.bytes or size <= keep.bytes
        few = not keep.increments or case["next_index"] - first.index <= keep.increments
        needed = case["needed"] & set(first.paths) or first.index >= case["first_replayed"]
        assert needed or (young and fits and few)


def test_what_an_output_must_keep_is_read_off_the_oldest_position() -> None:
    """Behind it all; what waited there, in frames by who wrote their files; without one, all."""

    def files(*epochs: int) -> tuple[DataFile, ...]:
        return tuple(DataFile(f"{epoch}", 1, 1) for epoch in epochs)

    plain = Connector("x", (Queued(Increment("s.o", 6, 6, files(6)), read=True),))
    framed = Connector(
        "x",
        (Queued(Increment("s.o", 1, "k", files(5, 6))),),
        Framing(),
        (Increment("s.o", 9, 9, files(9)),),
    )

    def kept(oldest: Position | None) -> KeptFlow:
        return kept_flow(
            "s.o",
            FlowRetention(0.0),
            readers=[("a", "x"), ("fused", "x")],
            oldest=oldest,
            epoch_of=lambda path: int(path),
        )

    def stood(connector: Connector) -> Position:
        stages = {"a": StagePosition(3, None, {"x": connector})}
        return Position("d", stages, (Increment("s.o", 11, 11),))

    assert kept(None).first_replayed == 0
    actual = kept(stood(Connector("x")))
    assert (actual.first_replayed, actual.first_waiting > 10**9) == (12, True)
    assert kept(stood(plain)).first_waiting == 6
    assert kept(stood(framed)).first_waiting == 5


def test_the_reasons_are_told() -> None:
    """There is one for what goes, and one for the first that stays."""
    old = Held(0, 10, NOW - timedelta(days=8), ("a",))
    young = Held(1, 10, NOW, ("b",))
    week = FlowRetention(7 * 86_400)

    def told(*held: Held, needed: Any = (), first: int = 9, keep: Any = week) -> tuple[str, str]:
        actual = expire(
            held, total_bytes=20, first_replayed=first, needed=needed, retention=keep, now=NOW
        )
        return actual.because, actual.stays

    assert told(old, young) == (
        "is older than the number of hours that its flow keeps",
        "is within the limits of its flow (hours, bytes, number of increments)",
    )
    assert "exceeds" in told(young, keep=FlowRetention(1e9, 15))[0]
    assert "queue" in told(old, needed={"a"})[1]
    assert "roll-back" in told(old, first=0)[1]
