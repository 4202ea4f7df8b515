"""Runs that fail: tried again, paused, or settled from their record.

Operating failures are tried again for as long as they last. An author's error stops its stage after
`failures_max` tries.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from cbp.errors import (
    AuthorCodeError,
    CbpError,
    DiskFullError,
    ForeignWriterError,
    InvariantError,
    OperatingError,
    SparkJobError,
    SparkLostError,
)
from cbp.model.run.intention import Intention
from controller.loop.runs.retry_policy import DEATHS_MAX
from tests.controller.world import DIAMOND, ONE, Crash, Stopped, World, only_stage, statuses

Failing = Callable[..., None]


def failing(error: BaseException, times: int = 1000, stage: str = "sum") -> Failing:
    """Return a hook that raises so often, for one stage."""
    left = [times]

    def hook(subject: Any) -> None:
        name = getattr(subject, "stage", None) or subject.node.name
        if name == stage and left[0] > 0:
            left[0] -= 1
            raise error

    return hook


def author_error() -> AuthorCodeError:
    return AuthorCodeError(stage="sum", function="f", place="x.py:1", cause="ValueError: no")


def test_a_failed_run_is_tried_again_after_a_pause(world: World) -> None:
    """The increment stays queued; the next try comes after the first delay, not before."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(author_error(), times=1)
    world.ticks()
    assert statuses(world) == [("FAILED", 0, 1)]
    waiting = world.controller.waiting("one")["sum"]
    assert waiting.startswith("next attempt at 2026-01-01 00:00:01 UTC: ")
    assert "ValueError: no" in waiting
    world.clock.advance(0.9)
    assert world.ticks().starts == ()
    world.clock.advance(0.1)
    world.ticks()
    assert statuses(world) == [("FAILED", 0, 1), ("COMMITTED", 0, 2)]
    assert only_stage(world).failures == 0


@pytest.mark.parametrize(
    "error", [author_error(), SparkJobError("r", "a worker died"), KeyError("bug"), SystemExit(3)]
)
def test_a_stage_is_paused_after_three_tries_and_the_others_go_on(
    world: World, error: BaseException
) -> None:
    """Three tries with rising pauses, then the stage waits for a person, with the reason."""
    world.controller.register(DIAMOND)
    world.arrive("diamond", "a", ("x", 1))
    world.arrive("diamond", "b", ("x", 2))
    world.engine.on_prepare = failing(error, stage="left")
    for delay in (0.0, 1.0, 5.0, 100.0):
        world.clock.advance(delay)
        world.ticks()
    tries = [run for run in world.store.runs().items if run.stage == "left"]
    assert [run.attempt for run in tries] == [3, 2, 1]
    assert [(b.started_at - a.started_at).seconds for b, a in pairwise(tries)] == [5, 1]
    stages = {stage.stage: stage for stage in world.store.stages("diamond")}
    assert stages["left"].failures == 3
    assert [name for name, stage in stages.items() if stage.paused_because] == ["left"]
    epochs = {stage.stage: stage.epoch for stage in world.store.stages("diamond")}
    assert epochs == {"left": 0, "right": 1, "join": 0}
    assert len(world.store.connectors("diamond")["left"]["items"].queue) == 1
    assert tries[0].error is not None
    code = error.code if isinstance(error, CbpError) else "unexpected"
    assert tries[0].error["error_code"] == code


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    "error",
    [
        DiskFullError("/x"),
        OperatingError("no net"),
        SparkLostError("gone"),
        OSError(errno.ENOSPC, "No space left on device"),
        TimeoutError("too slow"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_operating_failure_is_tried_for_as_long_as_it_lasts(
    world: World, error: Exception
) -> None:
    """Pauses double up to the longest, nothing stops the stage, and it continues automatically."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(error, times=12)
    pauses = []
    for _ in range(12):
        world.ticks()
        stage = only_stage(world)
        assert stage.paused_because == ""
        assert world.controller.waits("one")["sum"].kind == "retry"
        pauses.append((stage.retry_at - world.clock()).total_seconds())
        world.clock.advance(pauses[-1])
    assert pauses == [1, 5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]
    world.ticks()
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}]
    assert only_stage(world).failures == 0


def test_operating_failures_do_not_count_as_the_authors_tries(world: World) -> None:
    """Two errors of an author's, a full disk for long, then one more: that is the third."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    disk = [DiskFullError("/x")] * 5
    coming = [author_error(), author_error(), *disk, author_error()]

    def fail(plan: Any) -> None:
        raise coming.pop(0)

    world.engine.on_prepare = fail
    while coming:
        assert only_stage(world).paused_because == ""
        world.ticks()
        world.clock.advance(400)
    assert only_stage(world).paused_because


def test_a_run_that_kills_the_service_is_tried_a_bounded_number_of_times(world: World) -> None:
    """At once at first, then after pauses; at last its stage stops and says so."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))

    def die(plan: Any) -> None:
        raise Crash

    pauses = []
    for _ in range(DEATHS_MAX):
        assert only_stage(world).paused_because == ""
        world.engine.on_prepare = die
        with pytest.raises(Crash):
            world.ticks()
        world.restart()
        world.controller.recover()
        again = only_stage(world).retry_at
        pauses.append((again - world.clock()).total_seconds() if again else 0.0)
        world.clock.advance(pauses[-1])
    assert pauses == [0] * 12 + [1, 5, 10, 20, 40, 80, 160, 0]
    assert only_stage(world).paused_because
    world.controller.resume("one")
    world.ticks()
    assert only_stage(world).epoch == 1


def test_resume_gives_three_new_tries(world: World) -> None:
    """After the operator has mended the cause, the same read set runs."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(author_error(), times=3)
    for delay in (0, 1, 5):
        world.clock.advance(delay)
        world.ticks()
    stage = only_stage(world)
    assert stage.failures == 3
    assert stage.paused_because in world.controller.waiting("one")["sum"]
    assert stage.paused_because
    world.controller.resume("one")
    world.ticks()
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}]
    assert only_stage(world).paused_because == ""


def test_retry_gives_one_more_try(world: World) -> None:
    """A stage that is retried by hand is paused again by its next failure."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(author_error(), times=4)
    for delay in (0, 1, 5):
        world.clock.advance(delay)
        world.ticks()
    world.controller.retry("one", "sum")
    world.ticks()
    assert only_stage(world).failures == 4
    assert only_stage(world).paused_because
    world.controller.retry("one", "sum")
    world.ticks()
    assert only_stage(world).epoch == 1


@pytest.mark.parametrize(
    "error",
    [
        InvariantError("state is torn"),
        ForeignWriterError("/t", version=3, operation="OPTIMIZE", engine="x"),
    ],
)
def test_what_trying_again_cannot_mend_pauses_at_once(world: World, error: CbpError) -> None:
    """A broken invariant or a foreign writer stops the stage at the first try."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(error)
    world.ticks()
    assert error.message in only_stage(world).paused_because
    assert statuses(world) == [("FAILED", 0, 1)]


def test_after_the_record_nothing_fails(world: World) -> None:
    """A publication that fails is repeated with pauses; the run never becomes FAILED."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.arrive("one", "a", ("x", 2))
    world.engine.on_publish = failing(DiskFullError("/t"), times=5)
    world.ticks()
    because = world.controller.waiting("one")["sum"]
    assert "could not finish epoch 0 (next attempt at 00:00:01" in because
    world.clock.advance(0.9)
    world.ticks()
    assert "next attempt at 00:00:01" in world.controller.waiting("one")["sum"]
    for _ in range(5):
        world.clock.advance(50)
        world.ticks()
    assert statuses(world) == [("COMMITTED", 0, 1), ("COMMITTED", 1, 1)]
    assert world.engine.prepared == [("sum", 0), ("sum", 1)]


def test_a_foreign_writer_stops_the_publication_until_resumed(world: World) -> None:
    """The stage says who wrote; after resume the same record is published, not run again."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    error = ForeignWriterError("/t", version=3, operation="OPTIMIZE", engine="Someone")
    world.engine.on_publish = failing(error, times=1)
    world.ticks()
    assert "Someone" in only_stage(world).paused_because
    world.clock.advance(1000)
    assert world.ticks().starts == ()
    assert only_stage(world).epoch == 0
    world.controller.resume("one")
    world.ticks()
    assert statuses(world) == [("COMMITTED", 0, 1)]
    assert world.engine.prepared == [("sum", 0)]


def test_a_paused_dataflow_still_finishes_what_is_recorded(world: World) -> None:
    """Pausing starts no runs; it does not leave a recorded run unpublished."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_publish = failing(DiskFullError("/t"), times=1)
    world.ticks()
    world.controller.pause("one")
    world.clock.advance(1)
    world.ticks()
    assert only_stage(world).epoch == 1


def test_a_second_controller_stops_this_one(world: World) -> None:
    """A controller that finds another's record under its number starts nothing any more."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    log = world.parts.open_log(f"{world.tables}/one")

    def other_writes_first(plan: Any) -> None:
        log.put(Intention("one", "sum", 0, "other", 0, {}, {}, {}, ()))

    world.engine.on_prepare = other_writes_first
    world.ticks()
    assert "another controller" in world.controller.problem
    assert statuses(world) == [("INTENDED", 0, 1)]
    world.arrive("one", "a", ("x", 2))
    assert world.controller.tick().starts == ()
    assert "another controller" in world.controller.waiting("one")["sum"]


def test_a_run_that_the_store_forgot_to_fail_is_settled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the store fails while a failure is recorded, the next tick clears up."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(author_error(), times=1)

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise OperatingError("the database is away")

    monkeypatch.setattr(world.store, "fail", unreachable)
    world.controller.tick()
    assert statuses(world) == [("INTENDED", 0, 1)]
    monkeypatch.undo()
    world.ticks()
    assert statuses(world) == [("FAILED", 0, 1), ("COMMITTED", 0, 2)]


def test_a_run_without_a_thread_is_no_death_of_the_service(world: World) -> None:
    """It never began, so its stage does not stop, however often no thread can be started."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    in_flight = world.parts.in_flight
    executor, in_flight._executor = in_flight._executor, Stopped()
    for _ in range(DEATHS_MAX + 1):
        world.controller.tick()
        world.clock.advance(1000)
    assert world.store.intended_runs() == []
    error = world.store.runs("one", limit=1).items[0].error
    assert error is not None
    assert (error["error_code"], error["details"]) == ("run_interrupted", {})
    in_flight._executor = executor
    world.ticks()
    assert only_stage(world).epoch == 1
