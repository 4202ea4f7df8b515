"""Sinks that are webhooks: sent every increment at least once, by a stable id, signed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DataflowInvalidError
from controller.sinks.sink_standing import standing_of
from tests.controller.http_sink import HttpSink
from tests.controller.sinks import sunk
from tests.controller.world import Crash, World
from tests.planned_faults import PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

SECRET = b"a canary of the tests"


@pytest.fixture
def receiver() -> Iterator[HttpSink]:
    """Give a receiver over a real socket."""
    sink = HttpSink()
    yield sink
    sink.close()


def hook(receiver: HttpSink, **more: Any) -> dict[str, Any]:
    return {"told": {"flow": sunk.FLOW, "to": "webhook", "url": f"{receiver.url}/s3cret", **more}}


def put_secret(root: Path, mode: int = 0o600) -> None:
    (root / "secrets").mkdir(exist_ok=True)
    (root / "secrets/key").write_bytes(SECRET + b"\n")
    (root / "secrets/key").chmod(mode)


def bring(world: World, *records: tuple[str, int]) -> None:
    world.arrive("one", "a", *records)
    world.ticks()


def told(receiver: HttpSink) -> list[tuple[int, int]]:
    return [(one["increment"], one["records"]) for one in receiver.bodies]


def test_each_increment_is_told_once_in_order_and_signed(
    tmp_path: Path, receiver: HttpSink
) -> None:
    """With what it is and where it can be read; without a record of it."""
    put_secret(tmp_path)
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document(hook(receiver, secret="key")))
    assert told(receiver) == [(0, 2), (1, 1), (2, 2), (3, 1), (4, 1)]
    assert len(set(receiver.paths)) == 1
    for body, content, headers in zip(
        receiver.bodies, receiver.contents, receiver.headers, strict=True
    ):
        assert headers["Idempotency-Key"] == body["delivery"]
        expected = hmac.new(SECRET, content, hashlib.sha256).hexdigest()
        assert headers["X-CBP-Signature"] == f"sha256={expected}"
        assert body.keys() == {
            "delivery", "dataflow", "sink", "flow", "increment", "generation", "epoch", "records",
            "time", "links",
        }  # fmt: skip
        assert body["time"] is not None
        assert body["links"]["records"].endswith(
            f"/api/v1/dataflows/one/increments/sum.totals/{body['increment']}"
        )
        assert SECRET not in content
    assert len({body["delivery"] for body in receiver.bodies}) == 5
    world.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("point", ["sink_request.after", "sink_note.before", "sink_note.after"])
def test_a_crash_repeats_a_delivery_with_its_id_and_body(
    tmp_path: Path, receiver: HttpSink, point: str
) -> None:
    """At least once: none is left out, and a receiver knows the repeated one."""
    world = sunk.sink_world(tmp_path)
    faults = PlannedFaults(point, passage=3), PlannedFaults(point, passage=2)
    assert sunk.play(world, sunk.document(hook(receiver)), *faults) == 2
    contents = dict.fromkeys(receiver.contents)
    assert len({body["delivery"] for body in receiver.bodies}) == len(contents) == 5
    assert [one for one, _ in told(receiver)] == sorted(one for one, _ in told(receiver))
    world.close()


def test_what_fails_is_tried_again_and_later_ones_wait(tmp_path: Path, receiver: HttpSink) -> None:
    """With growing pauses; the address is in no error."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    receiver.status = 503
    for number in range(3):
        bring(world, ("a", number))
        sunk.publish(world)
    assert [one for one, _ in told(receiver)] == [0]  # it rests
    first = standing_of(sunk.row(world, "told"))
    for _ in range(2):
        world.clock.advance(1)
        sunk.publish(world)
        assert [one for one, _ in told(receiver)] == [0, 0]  # the second pause is longer
    second = standing_of(sunk.row(world, "told"))
    assert (first.failures, second.failures) == (1, 2)
    assert first.since_ms == second.since_ms
    assert sunk.state(world, "told") == "retrying"
    assert "s3cret" not in str(sunk.row(world, "told").standing)
    receiver.status = 302
    world.clock.advance(60)
    sunk.publish(world)
    assert sunk.code(world, "told") == "sink_delivery_failed"  # it is not followed
    receiver.status = 204
    world.clock.advance(600)
    sunk.publish(world)
    assert [one for one, _ in told(receiver)] == [0, 0, 0, 0, 1, 2]
    assert len({body["delivery"] for body in receiver.bodies}) == 3
    assert (sunk.code(world, "told"), sunk.state(world, "told")) == ("", "current")
    world.close()


def test_what_is_refused_for_good_waits_for_an_operator(tmp_path: Path, receiver: HttpSink) -> None:
    """A dead letter is let go by a choice, and counted; the others are delivered."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    receiver.status = 410
    for number in range(2):
        bring(world, ("a", number))
    sunk.publish(world)
    assert (sunk.code(world, "told"), sunk.state(world, "told")) == (
        "sink_delivery_refused",
        "stopped",
    )
    receiver.status = 503
    world.store.want_sink("one", "told", choice="keep")
    sunk.publish(world)
    assert sunk.code(world, "told") == "sink_delivery_failed"
    assert standing_of(sunk.row(world, "told")).failures == 1  # the error that was let go is over
    receiver.status = 200
    world.clock.advance(60)
    sunk.publish(world)
    assert [one for one, _ in told(receiver)] == [0, 1, 1]
    standing = sunk.row(world, "told").standing
    assert (standing["dead"], standing["increments"]) == (1, 1)
    assert sunk.state(world, "told") == "current"
    world.close()


def test_a_choice_skips_what_was_refused_behind_an_empty_increment(
    tmp_path: Path, receiver: HttpSink
) -> None:
    """An increment without records is not announced, so it cannot be what the choice is about."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    receiver.status = 410
    bring(world)
    bring(world, ("a", 1))
    sunk.publish(world)
    assert sunk.code(world, "told") == "sink_delivery_refused"
    receiver.status = 200
    world.store.want_sink("one", "told", choice="keep")
    sunk.publish(world)
    assert sunk.state(world, "told") == "current"
    assert told(receiver) == [(1, 1)]
    assert sunk.row(world, "told").standing["dead"] == 1
    world.close()


def test_a_crash_after_a_choice_skips_no_other_delivery(tmp_path: Path, receiver: HttpSink) -> None:
    """The note is past the refused one already, and the choice is carried out again."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    receiver.status = 410
    bring(world, ("a", 1))
    sunk.publish(world)
    receiver.status = 200
    world.store.want_sink("one", "told", choice="keep")
    world.faults.to = PlannedFaults("sink_note.after")
    with pytest.raises(Crash):
        sunk.publish(world)
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    bring(world, ("a", 2))
    sunk.publish(world)
    assert [one for one, _ in told(receiver)] == [0, 1]
    assert sunk.state(world, "told") == "current"
    assert sunk.row(world, "told").standing["dead"] == 1
    world.close()


def test_a_choice_skips_nothing_once_a_roll_back_undid_what_was_refused(
    tmp_path: Path, receiver: HttpSink
) -> None:
    """The new increment of that number is another one, which no receiver has refused."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    bring(world, ("a", 1))
    sunk.publish(world)
    receiver.status = 410
    bring(world, ("a", 2))
    sunk.publish(world)
    assert sunk.code(world, "told") == "sink_delivery_refused"
    world.controller.amendments.roll_back("one", "sum:0", who="me", why="a test", drop_later=True)
    receiver.status = 200
    world.store.want_sink("one", "told", choice="keep")
    bring(world, ("a", 3))
    sunk.publish(world)
    sent = [(one["increment"], one["generation"]) for one in receiver.bodies]
    assert sent[:3] == [(0, 0), (1, 0), (1, 1)]
    assert sunk.row(world, "told").standing["dead"] == 0
    world.close()


def test_a_roll_back_is_told_by_the_generation(tmp_path: Path, receiver: HttpSink) -> None:
    """What was sent cannot be taken back: it is sent anew, under another id."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    for number in range(3):
        bring(world, ("a", number))
    sunk.publish(world)
    world.controller.amendments.roll_back("one", "sum:0", who="me", why="a test")
    world.ticks()
    sunk.publish(world)
    pairs = [(body["generation"], body["increment"]) for body in receiver.bodies]
    assert pairs[:3] == [(0, 0), (0, 1), (0, 2)]
    assert pairs[3:]
    assert all(generation == 1 and index >= 1 for generation, index in pairs[3:])
    assert len({body["delivery"] for body in receiver.bodies}) == len(pairs)
    world.close()


def test_addresses_of_this_machine_are_refused(tmp_path: Path, receiver: HttpSink) -> None:
    """Unless the operator named them; a secret that others may read is refused too."""
    put_secret(tmp_path, 0o644)
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document(hook(receiver)))
    bring(world, ("a", 1))
    sunk.publish(world, sunk.sinks_of(world, outbound=()))
    assert sunk.code(world, "told") == "sink_place_refused"
    assert receiver.contents == []
    world.controller.change(sunk.document(hook(receiver, secret="key")))
    world.clock.advance(60)
    sunk.publish(world)
    assert sunk.code(world, "told") == "sink_secret_missing"
    assert receiver.contents == []
    (tmp_path / "secrets/key").chmod(0o600)
    world.clock.advance(600)
    sunk.publish(world)
    assert len(receiver.contents) == 1
    world.close()


def test_mistakes_of_addresses_have_their_places(tmp_path: Path) -> None:
    """A secret is named, never written."""
    world = sunk.sink_world(tmp_path)
    base = {"flow": sunk.FLOW, "to": "webhook"}
    wrong: dict[str, Any] = {
        "a": base,
        "b": {**base, "url": "ftp://x"},
        "c": {**base, "url": "https://user:hunter2@x"},
        "d": {**base, "url": "https://x", "path": "d"},
        "e": {**base, "url": "https://x", "secret": "Not A Name"},
        "f": {"flow": sunk.FLOW, "to": "csv", "path": "f", "secret": "key"},
    }
    with pytest.raises(DataflowInvalidError) as raised:
        world.controller.validate(sunk.document(wrong))
    assert {(one.where, one.code) for one in raised.value.mistakes} == {
        ("sinks.a.url", "sink_field_missing"),
        ("sinks.b.url", "sink_url_invalid"),
        ("sinks.c.url", "sink_url_invalid"),
        ("sinks.d.path", "sink_field_unfit"),
        ("sinks.e.secret", "sink_secret_invalid"),
        ("sinks.f.secret", "sink_field_unfit"),
    }
    assert "hunter2" not in str(raised.value)
    world.close()
