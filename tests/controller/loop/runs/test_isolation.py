"""What goes wrong in one dataflow stays in it: an exception at any of its entry points.

The error is named, its dataflow rests (1 s to 5 min) and is tried again; the others go on, and a
service always starts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import OperatingError
from controller.loop.runs.isolation import MOST_SECONDS
from tests.controller.world import FUSED, ONE, World


class UnforeseenError(Exception):
    """Nobody has ever heard of it."""


def document(name: str) -> dict[str, Any]:
    actual = copy.deepcopy(ONE)
    actual["name"] = name
    return actual


@pytest.fixture
def two(tmp_path: Path) -> Any:
    """Give a service with two dataflows: `bad`, in which something fails, and `good`."""
    made = World(tmp_path)
    for name in ("bad", "good"):
        made.controller.register(document(name))
    yield made
    made.close()


def break_calls(
    monkeypatch: pytest.MonkeyPatch,
    part: Any,
    method: str,
    told: Callable[[Any], str | None],
    error: Exception | None = None,
) -> list[str]:
    """Let a method raise whenever it is called for `bad`; return the list of these calls."""
    works, calls = getattr(part, method), []

    def broken(*arguments: Any, **named: Any) -> Any:
        about = [told(one) for one in (*arguments, *named.values())]
        if any(one == "bad" or str(one).endswith("/bad") for one in about):
            calls.append(method)
            raise error or UnforeseenError(method)
        return works(*arguments, **named)

    monkeypatch.setattr(part, method, broken)
    return calls


def named(value: Any) -> str | None:
    """Return which dataflow an argument is about, if it is about one."""
    if isinstance(value, str):
        return value
    for attribute in ("dataflow", "name"):
        actual = getattr(value, attribute, None)
        if isinstance(actual, str):
            return actual
    if isinstance(value, tuple | list) and value:
        return named(value[0])
    inner = getattr(value, "record", None)
    return None if inner is None else named(inner)


ENTRIES = [
    ("store", "stages"),
    ("store", "connectors"),
    ("store", "intend"),
    ("store", "position"),
    ("engine", "forget"),
    ("engine", "collect"),
    ("catalog", "compiled"),
    ("catalog", "units"),
    ("catalog", "drifted"),
    ("views", "_view"),
    ("starts", "start"),
    ("runner", "start"),
    ("failures", "gave_way"),
    ("framing", "_to_frame"),
    ("recovery", "recover_dataflow"),
    ("recovery", "read"),
    ("punctuations", "forget"),
    ("punctuations", "recover"),
    ("changes", "cut_short"),
    ("changes", "finish"),
    ("housekeeping", "_keep"),
    ("housekeeping", "_past"),
    ("publisher", "due"),
    ("publisher", "before"),
]


def part_of(world: World, name: str) -> Any:
    outside = {
        "store": world.store,
        "engine": world.engine,
        "changes": world.parts.versions.changes,
        "views": world.parts.views,
        "starts": world.parts.starts,
        "framing": world.parts.framing,
    }
    return outside[name] if name in outside else getattr(world.parts, name)


@pytest.mark.part(every=8)
@pytest.mark.parametrize(("part", "method"), ENTRIES)
def test_the_other_dataflow_goes_on_whatever_fails_in_one(
    part: str, method: str, two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery, ticks and housekeeping serve one dataflow while any call for another raises.

    Once it works again the dataflow continues automatically, with nothing lost.
    """
    two._more["collect_every"] = 1
    two.restart()
    for name in ("bad", "good"):
        two.arrive(name, "a", ("x", 1))
    calls = break_calls(monkeypatch, part_of(two, part), method, named)
    two.controller.lead(0)
    for _ in range(3):
        two.controller.tick()
    assert two.flow("good", "sum.totals") == [{"word": "x", "n": 1}]
    two.arrive("good", "a", ("y", 2))
    two.ticks()
    assert len(two.flow("good", "sum.totals")) == 2
    monkeypatch.undo()
    two.clock.advance(seconds=MOST_SECONDS)
    two.ticks()
    assert two.flow("bad", "sum.totals") == [{"word": "x", "n": 1}]
    assert calls, "the entry point is one"


def test_a_publication_that_cannot_be_begun_stops_no_other_dataflow(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick asks for those that have something to publish; it goes on once that works again."""
    two.controller.delete("bad", purge=True)
    policy = {"epochs": 8, "seconds": 60}
    two.controller.register({**ONE, "name": "bad", "publish": policy})
    two.arrive("bad", "a", ("x", 1))
    two.ticks()
    assert two.parts.publisher.unpublished("bad") == {"sum": 1}
    calls = break_calls(monkeypatch, part_of(two, "run_commit"), "start_publishing", named)
    two.clock.advance(seconds=60)
    two.arrive("good", "a", ("x", 1))
    two.ticks()
    assert two.flow("good", "sum.totals") == [{"word": "x", "n": 1}]
    assert calls
    assert [one.dataflow for one in two.controller.troubles()] == ["bad"]
    monkeypatch.undo()
    two.clock.advance(seconds=MOST_SECONDS)
    two.ticks()
    assert two.flow("bad", "sum.totals") == [{"word": "x", "n": 1}]


def test_what_failed_is_named_and_rests_longer_each_time(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trouble names the dataflow, the step, the error and its place; pauses double, bounded."""
    two.arrive("bad", "a", ("x", 1))
    break_calls(monkeypatch, part_of(two, "views"), "_view", named)
    pauses = []
    for _ in range(12):
        two.controller.tick()
        (trouble,) = two.controller.troubles()
        assert (trouble.dataflow, trouble.error.code) == ("bad", "dataflow_failed")
        assert "test_isolation.py" in trouble.error.details["place"]
        pauses.append((trouble.retry_at - two.clock()).total_seconds())
        two.controller.tick()
        assert two.controller.troubles() == [trouble], "it rests"
        two.clock.advance(pauses[-1])
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == MOST_SECONDS
    wait = two.controller.waits("bad")["sum"]
    assert wait.kind == "retry"
    assert wait.error is not None


@pytest.mark.parametrize(("part", "method"), [("store", "intend"), ("catalog", "units")])
def test_a_database_that_is_away_for_a_moment_stops_no_stage(
    part: str, method: str, two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can succeed later is shown as tried again, in the middle of a tick too.

    No operator has to act: the stage continues automatically.
    """
    two.arrive("bad", "a", ("x", 1))
    break_calls(monkeypatch, part_of(two, part), method, named, OperatingError("away"))
    two.controller.tick()
    wait = two.controller.waits("bad")["sum"]
    assert wait.kind == "retry", wait
    assert "away" in wait.words
    monkeypatch.undo()
    two.clock.advance(seconds=MOST_SECONDS)
    two.ticks()
    assert two.flow("bad", "sum.totals") == [{"word": "x", "n": 1}]


def test_a_clock_that_is_set_back_keeps_no_dataflow_resting(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause ends after its longest time at the latest, by either clock."""
    two.arrive("bad", "a", ("x", 1))
    break_calls(monkeypatch, part_of(two, "views"), "_view", named)
    two.controller.tick()
    assert len(two.controller.troubles()) == 1
    monkeypatch.undo()
    two.clock.advance(-3600)
    two.controller.tick()
    assert two.controller.troubles() == []


def test_a_decision_that_fails_costs_only_its_own_dataflow(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages are decided about at once; the dataflow at fault is found and left out."""
    for name in ("bad", "good"):
        two.arrive(name, "a", ("x", 1))
    answers = two.parts.answers

    def given(views: Any) -> Any:
        actual = list(views)
        if any(view.dataflow == "bad" for view, _ in actual):
            raise UnforeseenError
        return works(actual)

    works = answers.given
    monkeypatch.setattr(answers, "given", given)
    two.ticks()
    assert two.store.stages("good")[0].epoch == 1
    assert [trouble.dataflow for trouble in two.controller.troubles()] == ["bad"]


def test_a_start_holds_a_dataflow_that_cannot_be_recovered(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs nothing, shows why, can be resumed at once, and can be deleted."""
    for name in ("bad", "good"):
        two.arrive(name, "a", ("x", 1))
    two.restart()
    break_calls(monkeypatch, part_of(two, "recovery"), "recover_dataflow", named)
    two.controller.lead(0)
    two.ticks()
    assert [two.store.stages(name)[0].epoch for name in ("bad", "good")] == [0, 1]
    assert "recovered" in two.controller.waits("bad")["sum"].words
    assert "bad" in two.controller.held
    monkeypatch.undo()
    two.controller.resume("bad")
    two.ticks()
    assert two.store.stages("bad")[0].epoch == 1
    assert not two.controller.troubles()


def test_a_dataflow_that_cannot_be_recovered_can_be_deleted(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken dataflow goes when the operator says so, and leaves no trouble behind."""
    two.restart()
    break_calls(monkeypatch, part_of(two, "recovery"), "recover_dataflow", named)
    two.controller.lead(0)
    two.controller.delete("bad")
    two.ticks()
    assert not two.controller.troubles()
    assert not two.controller.held
    assert [record.name for record in two.store.dataflows()] == ["good"]


def test_a_stop_goes_on_though_publishing_one_dataflow_fails(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is finished of the others is published before a stop."""
    asked: list[str] = []

    def publish(record: Any, **_more: Any) -> None:
        asked.append(record.name)
        if record.name == "bad":
            raise UnforeseenError

    monkeypatch.setattr(two.parts.run_commit, "publish", publish)
    assert two.controller.drain(1.0)
    assert asked == ["bad", "good"]


def test_a_stage_is_free_again_when_no_thread_is_to_be_had(tmp_path: Path) -> None:
    """A run that cannot be handed to a thread is tried again; its stage is not busy for ever."""

    class NoThreads(World):
        pass

    world = NoThreads(tmp_path)
    world.controller.register(FUSED)
    world.arrive("fused", "a", ("x", 1))
    executor = world.executor
    submit, left = executor.submit, [1]

    def refuse(*arguments: Any, **more: Any) -> Any:
        if left[0]:
            left[0] -= 1
            message = "can't start new thread"
            raise RuntimeError(message)
        return submit(*arguments, **more)

    executor.submit = refuse  # type: ignore[method-assign]
    world.controller.tick()
    assert not world.parts.in_flight.busy()
    world.clock.advance(seconds=MOST_SECONDS)
    world.ticks()
    assert world.store.stages("fused")[0].epoch == 1
    world.close()
