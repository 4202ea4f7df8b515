"""A store that is brought to a new version of a dataflow, on every database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cbp.errors import NotFoundError
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile
from cbp.model.flow.position import Position, StagePosition
from cbp.model.flow.punctuation import Punctuation
from controller.store.base import PAUSED_BY_HAND, Store
from tests.conformance.records import START, a_dataflow, an_increment, arrive

WIRING = {"keep": {"items": "a"}, "gone": {"items": "a"}}
NEW = {"keep": {"items": "a"}, "new": {"items": "a", "framed": "a"}}


def position_of(store: Store) -> Position:
    """Return where the new version begins: one queue as it was, one fuller, one framed."""
    before = store.position("d")
    framed = Connector(
        "framed", (Queued(replace(an_increment("a", 0), framing_key="k"), True),), Framing(next=1),
        (an_increment("a", 0),),
    )  # fmt: skip
    both = {
        "items": Connector("items", (Queued(an_increment("a", 0)), Queued(an_increment("a", 1)))),
        "framed": framed,
    }
    stages = {"keep": before.stages["keep"], "new": StagePosition(4, {"m": 1}, both, 2)}
    return replace(before, stages=stages, version=2)


@pytest.fixture
def changed(store: Store) -> Store:
    """A store with a dataflow of two increments, changed, and one that came in between."""
    store.register(a_dataflow(), WIRING)
    for _ in range(2):
        arrive(store)
    store.pause_stage("d", "keep", "by hand")
    store.set_priorities("d", {"keep": "low"})
    position = position_of(store)
    arrive(store)
    record = replace(store.dataflow("d"), version=2, document={"name": "d", "v": 2})
    for _ in range(2):  # redo changes nothing
        store.change(record, NEW, {("new", "framed")}, position=position, fresh=["new"], at=START)
    return store


def test_stages_and_queues_are_those_of_the_new_version(changed: Store) -> None:
    """Every queue is the position's, and behind it what arrived since."""
    assert (changed.dataflow("d").version, changed.dataflow("d").document["v"]) == (2, 2)
    actual = changed.connectors("d")
    assert {stage: set(inputs) for stage, inputs in actual.items()} == {
        "keep": {"items"}, "new": {"items", "framed"},
    }  # fmt: skip
    for stage in actual:
        assert [i.index for i in actual[stage]["items"].waiting] == [0, 1, 2]
    framed = actual["new"]["framed"]
    assert framed.framing == Framing(next=1)
    assert [(q.increment.framing_key, q.read) for q in framed.queue] == [("k", True)]
    assert [i.index for i in framed.arrived] == [0, 2]


def test_a_kept_stage_keeps_pause_and_priority_and_a_new_one_its_epoch(changed: Store) -> None:
    """What the operator paused stays so; numbers go on where the position says."""
    keep, new = changed.stages("d")
    assert (keep.stage, keep.paused_because, keep.priority) == ("keep", "by hand", "low")
    assert (new.stage, new.epoch, new.memo, new.turns) == ("new", 4, {"m": 1}, 2)
    assert new.priority == "normal"


@pytest.mark.parametrize(
    ("because", "error", "afterwards"),
    [
        ("it", None, "it"),
        ("it", {"error_code": "stage_failed", "message": "m"}, ""),
        (PAUSED_BY_HAND, {"error_code": "stage_failed", "message": "m"}, PAUSED_BY_HAND),
    ],
)
def test_a_changed_stage_goes_on_unless_an_operator_paused_it(
    store: Store, because: str, error: dict[str, str] | None, afterwards: str
) -> None:
    """New code may mend an error; it is no answer to somebody who paused the stage."""
    store.register(a_dataflow(), WIRING)
    for _ in range(2):
        arrive(store)
    store.pause_stage("d", "keep", because, error)
    record, position = replace(store.dataflow("d"), version=2), position_of(store)
    changed = ["keep", "new"]
    store.change(record, NEW, {("new", "framed")}, position=position, fresh=changed, at=START)
    keep = store.stages("d")[0]
    assert (keep.stage, keep.paused_because, keep.error is None) == ("keep", afterwards, True)


def test_increments_stay_known_and_others_follow(changed: Store) -> None:
    """The next increment reaches the new readers; nothing is stored twice."""
    assert [r.increment.index for r in changed.increments("d", "a").items] == [2, 1, 0]
    arrive(changed)
    assert [i.index for i in changed.connectors("d")["new"]["items"].waiting] == [0, 1, 2, 3]


def test_an_increment_that_was_found_elsewhere_is_read_there(changed: Store) -> None:
    """Its records are the same, in files of other names: every queue sees those, others do not."""
    position = changed.position("d")
    moved = replace(an_increment("a", 0), files=(DataFile("flows/b/merged.parquet", 9, 90, 2, 3),))
    items = {"items": Connector("items", (Queued(moved),))}
    stages = {"keep": StagePosition(0, None, items)}
    record = replace(changed.dataflow("d"), version=3)
    position = replace(position, stages=stages, version=3)
    changed.change(record, {"keep": {"items": "a"}}, position=position, at=START)
    assert changed.connectors("d")["keep"]["items"].find(0) == moved
    assert changed.increment("d", "a", 0).increment == moved
    assert changed.increment("d", "a", 1).increment == an_increment("a", 1)


def test_a_close_in_between_counts_for_the_new_version(store: Store) -> None:
    """It was made once the version had begun, and before the store knew of that."""
    store.register(a_dataflow(), WIRING)
    for _ in range(2):
        arrive(store)
    position = position_of(store)
    close = Punctuation(number=0, flow="a", at=2, reason="request", key="k", closed_ms=1)
    store.punctuate("d", close)
    record = replace(store.dataflow("d"), version=2)
    for _ in range(2):  # redo changes nothing
        store.change(record, NEW, {("new", "framed")}, position=position, at=START)
    assert store.connectors("d")["new"]["framed"].closes == (2,)
    store.punctuate("d", close)  # recovery repeats it
    assert store.connectors("d")["new"]["framed"].closes == (2,)
    assert store.next_punctuation("d") == 1


def test_a_dataflow_that_is_not_there_cannot_be_changed(store: Store) -> None:
    """It is registered first."""
    with pytest.raises(NotFoundError):
        store.change(a_dataflow(), {}, position=Position("d", {}, ()), at=START)
