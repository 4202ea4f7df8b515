"""Where a new version begins: epochs, leaders and queues, from plain values.

A memo goes with its rule, and a flow is cut otherwise only where nothing waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from cbp import (
    Align,
    DataflowBuilder,
    Input,
    Output,
    State,
    Translate,
    TranslateRecords,
    framed,
)
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.plan.fusion import choose_leaders, physical_stages
from cbp.model.version.dataflow_shape import shape_of
from cbp.model.version.succession import Succession, succeed
from cbp.model.version.version_change import NO_CHOICE, Choice, compare_versions


class Count(Translate):
    """Counts."""

    words = Input("word STRING", route_by="word")
    counts = State("word STRING, n BIGINT")
    totals = Output("word STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


class Upper(TranslateRecords):
    """Runs with whatever reads it."""

    words = Input("word STRING")
    totals = Output("word STRING")

    def translate(self, record: Any, out: Any) -> None:
        """Never called here."""


class Framed(Count):
    """Counts by frames."""

    words = Input("word STRING", route_by="word", frame_by="word")


class FramedByCase(Count):
    """Counts by frames of a function."""

    words = Input("word STRING", route_by="word", frame_by=framed(lambda r: r.word.lower()))


class FramedByLength(Count):
    """Counts by frames of another function, which remembers."""

    words = Input(
        "word STRING",
        route_by="word",
        frame_by=framed(lambda r, memo: (len(r.word), memo), memo=True),
    )


class Aligned(Count):
    """Reads by another rule."""

    runnable = Align()


KEEP = Choice(keep=frozenset(["one"]))


def flow_of(**stages: Any) -> Dataflow:
    """Return a dataflow; a stage is a translator, or one with the flow that it reads."""
    builder = DataflowBuilder("d")
    builder.source("a", "word STRING")
    builder.source("b", "word STRING")
    for name, given in stages.items():
        translator, flow = given if isinstance(given, tuple) else (given, "a")
        builder.stage(name, translator(), words=flow)
    return builder.build()


def increment(flow: str, index: int) -> Increment:
    return Increment(flow, index, index, (DataFile(f"{flow}{index}", 3, 30),))


def queue(flow: str, *indexes: int, read: Sequence[int] = ()) -> Connector:
    return Connector("words", tuple(Queued(increment(flow, i), i in read) for i in indexes))


def position_of(dataflow: Dataflow, **queues: Connector) -> Position:
    """Return a position in which every stage has run seven epochs."""
    stages = {
        name: StagePosition(7, {"m": name}, {"words": queues.get(name, Connector("words"))}, 3)
        for name in dataflow.stages
    }
    newest = (increment("a", 9), *(increment(f"{name}.totals", 6) for name in dataflow.stages))
    return Position("d", stages, newest)


def succession(
    before: Dataflow,
    after: Dataflow,
    position: Position,
    choice: Choice = NO_CHOICE,
    *,
    kept: Mapping[str, Sequence[int]] = MappingProxyType({}),
    records: Mapping[str, int] = MappingProxyType({}),
    led: Mapping[str, str] = MappingProxyType({}),
    dropped: Mapping[str, Sequence[range]] = MappingProxyType({}),
) -> Succession:
    return succeed(
        compare_versions(shape_of(before), shape_of(after), choice),
        choice,
        before=position,
        version=2,
        units={name: led.get(name, name) for name in before.stages},
        after=after,
        next_epochs=records,
        retained=lambda flow: [increment(flow, index) for index in kept.get(flow, ())],
        dropped=dropped,
    )


def indexes(found: Succession, stage: str) -> list[int]:
    return [i.index for i in found.position.stages[stage].connectors["words"].held]


def test_a_plan_that_keeps_everything_gives_the_position_that_there_was() -> None:
    """Except for the number of the version; no queue is mentioned."""
    flow = flow_of(one=Count, two=(Count, "one.totals"))
    position = position_of(flow, one=queue("a", 8, 9, read=[8]), two=queue("one.totals", 6))
    actual = succession(flow, flow, position)
    assert (actual.position.stages, actual.position.newest) == (position.stages, position.newest)
    assert (actual.position.version, actual.queues, actual.refused) == (2, (), ())
    assert set(actual.leaders) == {"one", "two"}


def test_stages_that_come_and_go_lose_and_gain_what_is_told() -> None:
    """A removed one loses its queue; an added one begins with the next increment."""
    before, after = flow_of(one=Count, two=Count), flow_of(two=Count, three=Count)
    actual = succession(before, after, position_of(before, one=queue("a", 8), two=queue("a", 9)))
    assert actual.position.stages.keys() == {"two", "three"}
    assert (indexes(actual, "two"), indexes(actual, "three")) == ([9], [])
    assert actual.position.stages["three"] == StagePosition(0, None, {"words": Connector("words")})
    told, begins = actual.queues
    assert (begins.stage, begins.skipped, begins.queued) == ("three", 10, ())
    assert (told.stage, [i.index for i in told.dropped]) == ("one", [8])


def test_a_stage_that_comes_back_goes_on_behind_what_it_wrote() -> None:
    """By its newest record, or its newest increment, whichever is later."""
    before, after = flow_of(two=Count), flow_of(one=Count, two=Count)
    position = position_of(before)
    assert succession(before, after, position).position.stages["one"].epoch == 0
    actual = succession(before, after, position, records={"one": 4})
    assert actual.position.stages["one"].epoch == 4
    old = Position("d", position.stages, (*position.newest, increment("one.totals", 11)))
    assert succession(before, after, old, records={"one": 4}).position.stages["one"].epoch == 12


@pytest.mark.parametrize("chosen", ["rebuild", "retained"])
def test_who_begins_with_the_retained_input_gets_all_of_it_or_none(chosen: str) -> None:
    """From a part of it the state would be another one."""
    after = flow_of(one=Count)
    before = after if chosen == "rebuild" else flow_of(other=Count)
    position = position_of(before)
    choice = Choice(**{chosen: frozenset(["one"])})
    actual = succession(before, after, position, choice, kept={"a": range(10)})
    assert (indexes(actual, "one"), actual.refused) == (list(range(10)), ())
    assert actual.position.stages["one"].memo is None
    for left, words in ((range(2, 10), "only those from 2 on"), ((), "none of them")):
        lost = succession(before, after, position, choice, kept={"a": left})
        (mistake,) = lost.refused
        assert (mistake.code, mistake.where) == ("input_not_retained", "stages.one.inputs.words")
        assert f"10 increments of 'a' arrived, but {words} can still be read" in mistake.message
    nothing = Position("d", position.stages, ())
    assert succession(before, after, nothing, choice).refused == ()


def test_an_input_that_begins_with_the_next_increment_says_how_many_came_before() -> None:
    """Without those that a roll-back dropped; none where all is read, or nothing came."""
    before, after = flow_of(two=Count), flow_of(one=Count, two=Count)
    (queueing,) = succession(before, after, position_of(before)).queues
    assert (queueing.stage, queueing.input, queueing.skipped) == ("one", "words", 10)
    dropped = {"a": (range(2, 4), range(3, 5))}
    (queueing,) = succession(before, after, position_of(before), dropped=dropped).queues
    assert queueing.skipped == 7
    retained = Choice(retained=frozenset(["one"]))
    (queueing,) = succession(
        before, after, position_of(before), retained, kept={"a": range(10)}
    ).queues
    assert (len(queueing.queued), queueing.skipped) == (10, 0)
    nothing = Position("d", position_of(before).stages, ())
    assert succession(before, after, nothing).queues == ()
    behind = flow_of(two=Count, one=(Count, "two.totals"))
    rebuilt = Choice(rebuild=frozenset(["two"]))
    actual = succession(before, behind, position_of(before), rebuilt, kept={"a": range(10)})
    assert [(q.stage, q.skipped) for q in actual.queues] == [("two", 0)]


def test_what_a_rebuilt_stage_writes_again_is_not_read_twice() -> None:
    """Behind it the old increments of its flow are not queued: they come anew."""
    flow = flow_of(one=Count, two=(Count, "one.totals"))
    kept = {"a": range(10), "one.totals": range(7)}
    choice = Choice(rebuild=frozenset(["one", "two"]))
    actual = succession(flow, flow, position_of(flow), choice, kept=kept)
    assert (indexes(actual, "one"), indexes(actual, "two")) == (list(range(10)), [])


def test_a_stage_that_is_rebuilt_behind_one_that_is_not_leads_itself() -> None:
    """It ran with the stage before it, which wrote what is read again long ago."""
    flow = flow_of(one=Upper, two=(Count, "one.totals"))
    actual = physical_stages(flow, choose_leaders(flow))
    assert [unit.names for unit in actual.values()] == [("one", "two")]
    position = position_of(flow)
    together = Position("d", {"one": position.stages["one"]}, position.newest)
    kept = {"a": range(10), "one.totals": range(7)}
    for names, leaders in ((["two"], ("one", "two")), (["one", "two"], ("one",))):
        choice = Choice(rebuild=frozenset(names))
        led = {"one": "one", "two": "one"}
        made = succession(flow, flow, together, choice, kept=kept, led=led)
        assert made.leaders == leaders
        assert {s: p.epoch for s, p in made.position.stages.items()} == dict.fromkeys(leaders, 7)
        first, last = leaders[0], leaders[-1]
        assert indexes(made, first) == ([] if first != last else list(range(10)))
        assert first == last or indexes(made, last) == list(range(7))


def test_a_rewired_input_begins_with_the_next_increment_of_its_flow() -> None:
    """What waited of the other flow is dropped, and the plan says so."""
    before, after = flow_of(one=Count), flow_of(one=(Count, "b"))
    actual = succession(before, after, position_of(before, one=queue("a", 8, 9)), KEEP)
    assert indexes(actual, "one") == []
    assert [i.name for i in actual.queues[0].dropped] == ["a/8", "a/9"]


@pytest.mark.parametrize("way", ["framed now", "no longer framed"])
def test_framing_begins_and_ends_only_where_nothing_waits(way: str) -> None:
    """What was cut one way is not read the other way; an empty queue is a beginning."""
    flows = [flow_of(one=Count), flow_of(one=Framed)]
    before, after = flows if way == "framed now" else reversed(flows)
    plain = queue("a", 8)
    open_frame = Connector("words", (), Framing(open=increment("a", 8)))
    closed = Connector("words", (), Framing())
    full, empty = (plain, queue("a")) if way == "framed now" else (open_frame, closed)
    actual = succession(before, after, position_of(before, one=full), KEEP)
    assert [mistake.code for mistake in actual.refused] == ["framing_changed"]
    assert (
        f"is {way}, but 1 increment or frame of the earlier version waits"
        in actual.refused[0].message
    )
    actual = succession(before, after, position_of(before, one=empty), KEEP)
    assert actual.refused == ()
    framing = actual.position.stages["one"].connectors["words"].framing
    assert framing == (Framing() if way == "framed now" else None)


@pytest.mark.parametrize("held", ["open", "eligible"])
def test_a_flow_is_cut_otherwise_only_where_no_frame_waits(held: str) -> None:
    """Frames of the old keys are not read by the new ones; what a function remembers, neither."""
    waits = {
        "open": Connector("words", (), Framing({"m": 1}, 5, increment("a", 4))),
        "eligible": Connector("words", (Queued(increment("a", 4)),), Framing({"m": 1}, 5)),
    }
    for one, other in ((Framed, FramedByCase), (FramedByCase, FramedByLength)):
        before, after = flow_of(one=one), flow_of(one=other)
        actual = succession(before, after, position_of(before, one=waits[held]), KEEP)
        assert [mistake.code for mistake in actual.refused] == ["framing_changed"]
        assert "is framed differently now" in actual.refused[0].message
        same = succession(before, flow_of(one=one), position_of(before, one=waits[held]), KEEP)
        assert same.refused == ()
        assert same.position.stages["one"].connectors["words"] == waits[held]


def test_a_flow_that_is_cut_otherwise_goes_on_with_the_next_number() -> None:
    """Nothing is remembered of the old function; no frame is named a second time."""
    before, after = flow_of(one=FramedByLength), flow_of(one=FramedByCase)
    was = Connector("words", (), Framing({"m": 1}, 5, None, 8))
    actual = succession(before, after, position_of(before, one=was), KEEP)
    assert actual.refused == ()
    assert actual.position.stages["one"].connectors["words"].framing == Framing(None, 5, None, 8)


@pytest.mark.parametrize("closes", [(), (9,)])
def test_what_is_not_framed_yet_is_framed_by_the_new_function(closes: tuple[int, ...]) -> None:
    """Mending a function that fails keeps what arrived meanwhile, and its closes."""
    before, after = flow_of(one=FramedByLength), flow_of(one=FramedByCase)
    was = Connector("words", (), Framing({"m": 1}, 5, None, 8), (increment("a", 9),), closes)
    actual = succession(before, after, position_of(before, one=was), KEEP)
    assert (actual.refused, actual.queues) == ((), ())
    now = actual.position.stages["one"].connectors["words"]
    assert now == replace(was, framing=Framing(None, 5, None, 8))


def test_a_memo_goes_with_its_rule() -> None:
    """Another rule would take it for its own; the same one goes on with it."""
    before = flow_of(one=Count)
    for after, memo in ((flow_of(one=Aligned), None), (flow_of(one=Framed), {"m": "one"})):
        actual = succession(before, after, position_of(before), KEEP)
        assert actual.position.stages["one"].memo == memo
        assert actual.position.stages["one"].turns == 3
