"""What to start next: serial epochs, limits, fairness, and a reason for what waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import OperatingError
from cbp.model.dataflow.runnable import CountWindow, Rule, RunAll, RunAny
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.schedule.parallel_runs import ActiveRun, Places
from cbp.model.schedule.scheduler import TURNS_MAX, Answer, StageView, decide

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
READY = {"items": Connector("items").append(Increment("flow", 4, 4))}
EMPTY = {"items": Connector("items")}


def view(stage: str, *, waited: int = 0, running: bool = False, ready: bool = True) -> StageView:
    since = NOW - timedelta(seconds=waited)
    return StageView("flow", stage, 0, READY if ready else EMPTY, since, running)


def started(*views: StageView, parallel_max: int = 9) -> list[str]:
    return [s.stage for s in decide(views, now=NOW, places=Places(parallel_max)).starts]


def reason(one: StageView, *others: StageView, parallel_max: int = 9) -> str:
    schedule = decide([one, *others], now=NOW, places=Places(parallel_max))
    return schedule.waiting["flow", one.stage]


def test_a_runnable_stage_starts_with_what_it_reads() -> None:
    """A start carries the epoch and the decision of the stage's Runnable."""
    (start,) = decide([replace(view("a"), epoch=3)], now=NOW, places=Places(1)).starts
    assert (start.dataflow, start.stage, start.epoch) == ("flow", "a", 3)
    assert start.decision.read == {"items": (4,)}


def test_a_runnable_that_was_asked_elsewhere_is_not_asked_again() -> None:
    """Its answer is taken as it is; without one, the stage says what it waits for."""

    def ask(connectors: Any, memo: Any) -> Decision:
        raise AssertionError

    asked = replace(view("a"), runnable=RunnableSpec(ask, "a.py:7"))
    decision = Decision({"items": (4,)})
    (start,) = decide([replace(asked, answer=Answer(decision))], now=NOW, places=Places(1)).starts
    assert start.decision == decision
    assert reason(replace(asked, answer=Answer())) == "waits for the answer of ask (a.py:7)"
    failed = replace(asked, answer=Answer(error=OperatingError("no")))
    schedule = decide([failed], now=NOW, places=Places(1))
    assert (schedule.starts, [e.message for e in schedule.failed.values()]) == ((), ["no"])


def test_epochs_of_one_stage_are_serial() -> None:
    """A stage that runs does not start again."""
    assert started(view("a", running=True)) == []
    assert reason(replace(view("a", running=True), epoch=7)) == "runs epoch 7"


def test_whoever_waited_longest_starts_first() -> None:
    """Starts are ordered by waiting time, then by name."""
    assert started(view("a", waited=1), view("c", waited=5), view("b", waited=5)) == ["b", "c", "a"]


def sized(dataflow: str, *sizes: int, running: bool = False) -> StageView:
    """Return a stage whose increments have these sizes in bytes; it reads all of them."""
    connector = Connector("items")
    for index, size in enumerate(sizes):
        connector = connector.append(Increment("f", index, index, (DataFile("p", 1, size),)))
    rule = RunnableSpec(RunAll(batch=9))
    one = StageView(dataflow, "s", 0, {"items": connector}, NOW, running)
    return replace(one, runnable=rule)


def test_a_run_that_reads_little_starts_beside_long_ones() -> None:
    """What it reads counts, not what waits; one of its own dataflow waits for them a little."""
    long = [replace(view(stage, running=True), dataflow="long") for stage in ("a", "b")]
    places = Places(2, express_bytes=10)

    def starts(*views: StageView, places: Places = places) -> list[str]:
        return [start.dataflow for start in decide([*long, *views], now=NOW, places=places).starts]

    assert starts(sized("x", 5, 5)) == ["x"]
    assert starts(sized("x", 5, 6)) == []
    assert starts(sized("x", 5, 6), sized("y", 1)) == ["y"]
    assert starts(sized("x", 1), sized("y", 1)) == ["x"]
    assert starts(sized("x", 1, running=True), sized("y", 1)) == ["y"]
    assert starts(sized("x", 1, running=True), sized("z", 1, running=True), sized("y", 1)) == []
    assert starts(sized("long", 1)) == []
    begun = NOW - timedelta(seconds=1)
    long = [replace(one, work=ActiveRun("long", one.stage, begun)) for one in long]
    assert starts(sized("long", 1)) == ["long"]
    assert starts(sized("long", 11)) == []
    long = [replace(one, work=ActiveRun("long", one.stage, NOW, read_bytes=11)) for one in long]
    assert starts(sized("long", 1)) == ["long"]
    assert starts(sized("x", 1), places=Places(2)) == []
    assert starts(sized("x", 5, 6), sized("y", 1), places=Places(3, express_bytes=10)) == ["x", "y"]


def test_running_stages_count_against_the_limit() -> None:
    """At most so many runs at a time; the rest says what it waits for."""
    views = [view("a", running=True), view("b", waited=2), view("c", waited=1)]
    assert started(*views, parallel_max=2) == ["b"]
    assert reason(views[2], *views[:2], parallel_max=2) == "waits for a free slot (2 in all)"
    more = replace(view("d"), waiting_since=NOW)
    assert reason(more, *views, parallel_max=2).endswith("(2 in all), behind 1 other")
    assert started(*views, parallel_max=1) == []


def test_the_last_place_is_not_for_a_dataflow_that_has_the_others() -> None:
    """It goes to another dataflow that waits, though that waited less; who is slow says so."""
    busy = replace(view("a", running=True), work=ActiveRun("flow", "a", NOW))
    views = [busy, view("b", waited=9), replace(view("c"), dataflow="other")]
    assert started(*views, parallel_max=2) == ["c"]
    since = NOW - timedelta(seconds=300)
    slow = replace(busy, work=ActiveRun("flow", "a", since))
    assert started(slow, *views[1:], parallel_max=2) == ["b", "c"]
    assert reason(slow) == "runs epoch 0, for more than 120 s; another dataflow can use its slot"
    both = [replace(slow, stage=name, work=ActiveRun("flow", name, since)) for name in ("d", "e")]
    waits = reason(views[1], *both, parallel_max=2)
    assert waits == "waits for one of the 2 runs of its dataflow to end"


def test_who_gave_way_takes_turns_in_the_narrow_place() -> None:
    """The stage that gave way first goes first, however long it waited; words say what for."""

    def gave_way(stage: str, times: int, ago: int, waited: int) -> StageView:
        one = replace(view(stage, waited=waited), dataflow=stage, gave_way=times)
        return replace(one, retry_at=NOW - timedelta(seconds=ago))

    first, second = gave_way("a", 2, 9, 1), gave_way("b", 1, 5, 99)
    assert started(second, first) == ["a"]
    schedule = decide([first, second], now=NOW, places=Places(1))
    assert schedule.waits["b", "b"].kind == "place"
    work = ActiveRun("a", "a", NOW - timedelta(seconds=500), run="r", gave_way=2)
    assert (
        schedule.waiting["b", "b"]
        == "gave way to other dataflows once and waits for its turn: only one run that gave way is "
        "allowed at a time"
    )
    runs = replace(first, running=True, work=work)
    schedule = decide([runs, second, view("c")], now=NOW, places=Places(1))
    assert [start.stage for start in schedule.starts] == ["c"], "it holds no other place"
    assert schedule.waiting["a", "a"] == (
        "runs epoch 0; the run gave way to other dataflows 2 times, so it now uses at most half of "
        "the engine's slots"
    )
    assert schedule.gives_way == (work, "b")


def test_a_paused_stage_says_why() -> None:
    """A stage that is not wanted to run gives the reason, in words."""
    assert reason(replace(view("a"), active=False, paused_because="3 failures")) == "3 failures"
    assert reason(replace(view("a"), active=False)) == "is paused"


def test_a_failed_stage_waits_until_its_time() -> None:
    """Not before `retry_at`; then it starts."""
    later = replace(view("a"), retry_at=NOW + timedelta(seconds=30))
    assert reason(later) == "next attempt at 2026-11-21 06:00:30 UTC"
    assert reason(replace(later, failed_because="the disk is full")) == (
        "next attempt at 2026-11-21 06:00:30 UTC: the disk is full"
    )
    assert started(replace(view("a"), retry_at=NOW)) == ["a"]


def test_a_stage_without_input_says_what_is_missing() -> None:
    """The reason comes from the Runnable; a place is not taken."""
    assert reason(view("a", ready=False)) == "waits for an increment on items"
    assert started(view("a", ready=False, waited=9), view("b"), parallel_max=1) == ["b"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=8),
    st.integers(0, 4),
)
def test_everybody_starts_runs_or_has_a_reason(
    stages: list[tuple[int, bool, bool]], parallel_max: int
) -> None:
    """No stage is forgotten, none is both, and the limit holds."""
    views = [
        view(f"s{i}", waited=waited, running=running, ready=ready)
        for i, (waited, running, ready) in enumerate(stages)
    ]
    schedule = decide(views, now=NOW, places=Places(parallel_max))
    starting = {(start.dataflow, start.stage) for start in schedule.starts}
    assert starting.isdisjoint(schedule.waiting)
    assert starting | schedule.waiting.keys() == {(v.dataflow, v.stage) for v in views}
    assert all(schedule.waiting.values())
    already = sum(v.running for v in views)
    assert len(starting) <= max(0, parallel_max - already)


@given(st.integers(1, 3), st.integers(1, 6))
def test_nobody_starves(parallel_max: int, count: int) -> None:
    """With input always waiting, every stage starts within as many ticks as there are stages."""
    waiting = {f"s{i}": 0 for i in range(count)}
    seen = set()
    for tick in range(1, count + 1):
        views = [
            replace(view(s), waiting_since=NOW + timedelta(seconds=t)) for s, t in waiting.items()
        ]
        for stage in started(*views, parallel_max=parallel_max):
            seen.add(stage)
            waiting[stage] = tick
    assert seen == waiting.keys()


def linked(stage: str, waiting: dict[str, int], rule: Rule | None = None, **more: Any) -> StageView:
    """Return a stage whose inputs are named like the flows that they read, `.` as `_`."""
    wiring = {flow.replace(".", "_"): flow for flow in waiting}
    queues = {}
    for (input_, flow), count in zip(wiring.items(), waiting.values(), strict=True):
        queues[input_] = Connector(input_)
        for index in range(count):
            increment = Increment(flow, index, index, (DataFile(f"{flow}{index}", 2, 30),))
            queues[input_] = queues[input_].append(increment)
    spec = RunnableSpec(rule or RunAll())
    view_ = StageView("flow", stage, 0, queues, NOW, wiring=wiring, runnable=spec)
    return replace(view_, **more)


def limited(stage: str, waiting: dict[str, int], **numbers: int) -> StageView:
    return linked(stage, waiting, limits={f"{stage}.out": FlowLimit(**numbers)})


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"increments": 3}, "3 increments (limit 3)"),
        ({"records": 5}, "6 records (limit 5)"),
        ({"bytes": 90}, "90 bytes (limit 90)"),
        ({"increments": 9, "records": 6}, "6 records (limit 6)"),
    ],
)
def test_a_stage_is_held_while_its_readers_are_full(numbers: dict[str, int], words: str) -> None:
    """Increments, records or bytes, whichever comes first; the reason names who is full."""
    reader = linked("b", {"a.out": 3}, running=True)
    held = reason(limited("a", {"source": 1}, **numbers), reader)
    waits = "waits until readers of its outputs catch up"
    assert held == f"{waits}: `b.a_out` has {words} in its queue"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"increments": 3}, "3 increments (limit 3)"),
        ({"records": 6}, "6 records (limit 6)"),
        ({"bytes": 90}, "90 bytes (limit 90)"),
    ],
)
def test_what_waits_to_be_framed_counts_and_an_open_frame_does_not(
    numbers: dict[str, int], words: str
) -> None:
    """A writer faster than framing is held; one whose reader waits for a frame's end is not."""
    reader = linked("b", {"a.out": 3}, running=True)
    queue = reader.connectors["a_out"].queue
    arrived = tuple(queued.increment for queued in queue)
    for eligible in (0, 1):
        framed = Connector("a_out", queue[:eligible], Framing(), arrived[eligible:])
        held = reason(
            limited("a", {"source": 1}, **numbers), replace(reader, connectors={"a_out": framed})
        )
        waits = "waits until readers of its outputs catch up"
        assert held == f"{waits}: `b.a_out` has {words} in its queue"
    open_ = Connector(
        "a_out", framing=Framing(open=replace(arrived[0], files=arrived[0].files * 9))
    )
    framing = replace(reader, running=False, connectors={"a_out": open_})
    assert "a" in started(limited("a", {"source": 1}, **numbers), framing)


def test_one_reader_with_room_is_enough() -> None:
    """Only when *all* its readers are full a stage waits; else two inputs could starve."""
    full, empty = linked("b", {"a.out": 3}, running=True), linked("c", {"a.out": 0})
    assert "a" in started(limited("a", {"source": 1}, increments=3), full, empty)


def test_readers_inside_the_cycle_hold_nobody() -> None:
    """A cycle must be able to drain itself, whatever waits in it."""
    back = linked("b", {"a.out": 9}, running=True)
    assert "a" in started(limited("a", {"b.out": 1}, increments=1), back)
    assert "a" in started(limited("a", {"a.out": 9}, increments=1))


def test_a_hungry_reader_gets_more_than_the_limit() -> None:
    """Who needs five increments before it runs is not kept at a limit of three."""
    writer, window = limited("a", {"source": 1}, increments=3), CountWindow(5)
    assert "a" in started(writer, linked("b", {"a.out": 3}, window))
    other = linked("b", {"a.out": 3, "source": 0}, window)
    assert "b.a_out" in reason(writer, other)  # it waits for the source, not for more of `a`
    assert "b.a_out" in reason(writer, linked("b", {"a.out": 3}, window, active=False))


def test_an_idle_stage_names_who_keeps_it_waiting() -> None:
    """The stopped or held stage before it is found, over any number of idle stages."""
    views = [
        linked("a", {"source": 1}, active=False, paused_because="3 failures"),
        linked("b", {"a.out": 0}),
        linked("c", {"b.out": 0}),
    ]
    because = "waits for an increment on b_out; upstream stage `a`: 3 failures"
    assert reason(views[2], *views[:2]) == because
    assert reason(linked("c", {"b.out": 0}), linked("b", {"source": 0})).endswith("on b_out")


def test_equals_start_upstream_first() -> None:
    """Among stages that waited equally long, an increment passes the graph in one phase."""
    views = [linked("c", {"s": 1}), linked("a", {"b.out": 1, "s": 1}), linked("b", {"c.out": 1})]
    assert started(*views) == ["c", "b", "a"]


def test_a_cycle_that_does_not_drain_is_shown() -> None:
    """After many epochs without new input; not before, and not without a cycle."""
    views = [
        linked("a", {"b.out": 1, "s": 0}, RunAny(), turns=TURNS_MAX, place="code.py:3"),
        linked("b", {"a.out": 1}, turns=TURNS_MAX - 1),
    ]
    circling = decide(views, now=NOW, places=Places(2)).circling
    assert circling.keys() == {("flow", "a")}
    error = circling["flow", "a"]
    assert error.message.startswith("the cycle a -> b -> a does not drain: it ran 1000 epochs")
    assert error.details["place"] == "code.py:3"


@pytest.mark.parametrize("numbers", [{"increments": 0}, {"records": "x"}, {"bytes": True}])
def test_a_limit_is_a_number_from_one(numbers: dict[str, Any]) -> None:
    """A limit of nothing would hold a stage for ever."""
    with pytest.raises(ValueError, match="at least 1"):
        FlowLimit(**numbers)


def test_a_fused_stage_is_its_leaders() -> None:
    """What a member writes counts as the leader's: order, readers and limits."""
    leader = linked("z", {"source": 1}, members=("z", "m"), limits={"m.out": FlowLimit(1)})
    assert started(leader, linked("a", {"m.out": 0, "s": 1}, RunAny())) == ["z", "a"]
    assert "`a.m_out` has 2" in reason(leader, linked("a", {"m.out": 2}, running=True))
