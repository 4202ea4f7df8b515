"""Runs that fail: tried again, paused, or settled from their record."""

from __future__ import annotations

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
)
from tests.controller.world import DIAMOND, ONE, World, only_stage, statuses

Failing = Callable[..., None]


def failing(error: Exception, times: int = 1000, stage: str = "sum") -> Failing:
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
    assert "tries again at 2026-01-01 00:00:01" in world.controller.waiting("one")["sum"]
    world.clock.advance(0.9)
    assert world.ticks().starts == ()
    world.clock.advance(0.1)
    world.ticks()
    assert statuses(world) == [("FAILED", 0, 1), ("COMMITTED", 0, 2)]
    assert only_stage(world).failures == 0


@pytest.mark.parametrize(
    "error", [author_error(), DiskFullError("/x"), OperatingError("no net"), KeyError("bug")]
)
def test_a_stage_is_paused_after_three_tries_and_the_others_go_on(
    world: World, error: Exception
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
    paused = {stage.stage: stage.paused_because for stage in world.store.stages("diamond")}
    assert "failed 3 times" in paused["left"]
    assert paused["right"] == paused["join"] == ""
    epochs = {stage.stage: stage.epoch for stage in world.store.stages("diamond")}
    assert epochs == {"left": 0, "right": 1, "join": 0}
    assert len(world.store.connectors("diamond")["left"]["items"].queue) == 1
    assert tries[0].error is not None
    assert tries[0].error["error_code"] == getattr(error, "code", "unexpected")


def test_resume_gives_three_new_tries(world: World) -> None:
    """After the operator has mended the cause, the same read set runs."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.engine.on_prepare = failing(author_error(), times=3)
    for delay in (0, 1, 5):
        world.clock.advance(delay)
        world.ticks()
    assert "failed 3 times" in world.controller.waiting("one")["sum"]
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
    assert "failed 4 times" in only_stage(world).paused_because
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
    assert "finishes epoch 0, tries again at 00:00:01" in world.controller.waiting("one")["sum"]
    world.clock.advance(0.9)
    world.ticks()
    assert "tries again at 00:00:01" in world.controller.waiting("one")["sum"]
    for _ in range(5):
        world.clock.advance(5)
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
    """Whoever finds another's record under its number starts nothing any more."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    log = world.controller._runs.log(f"{world.tables}/one")

    def other_writes_first(plan: Any) -> None:
        path = log._path("sum", 0)
        world.files.put_if_absent(path, b'{"run": "other", "format": 1}')

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
