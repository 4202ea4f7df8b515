"""Runs that are intended, committed or fail, on every database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbp.errors import AlreadyExistsError, InvariantError
from cbp.model.run.intention import RunStatus
from controller.store.base import PAUSED_BY_HAND, IncrementRecord, Store
from controller.store.errors import StagePausedError
from tests.conformance.records import (
    CHAIN,
    START,
    a_dataflow,
    a_run,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)


def test_an_intended_run_is_found_again(chain: Store) -> None:
    """What was decided is there after a crash, the read set included."""
    run = a_run(read={"i": [3, 1], "k": []}, remove={"i": [1]}, started_at=at(5), attempt=2)
    chain.intend(run)
    (actual,) = chain.intended_runs()
    assert actual == replace(run, read={"i": (3, 1), "k": ()}, remove={"i": (1,)})
    assert chain.run("r0") == actual
    assert {s.stage: s.waiting_since for s in chain.stages("d")} == {"s": at(5), "t": START}


def test_a_stale_decision_is_refused(chain: Store) -> None:
    """A run of an epoch that is not the next one is not recorded."""
    with pytest.raises(InvariantError):
        chain.intend(a_run(epoch=1))
    assert chain.intended_runs() == []


def test_an_id_of_a_run_is_used_once(chain: Store) -> None:
    """A second run of an id is refused."""
    chain.intend(a_run())
    with pytest.raises(AlreadyExistsError):
        chain.intend(a_run(stage="t"))


def test_a_commit_moves_everything_together(chain: Store) -> None:
    """Queues, outputs, epoch, memo and run change in one step."""
    arrive(chain)
    arrive(chain)
    run = a_run(started_at=at(1))
    chain.intend(run)
    out = an_increment("s.out", 0)
    intention = an_intention(run, out, memo={"seen": [1]}, figures={"records_in": 1.0})
    chain.commit(intention, finished_at=at(2))
    assert waiting(chain) == {"s": {"i": ["a/1"]}, "t": {"j": ["s.out/0"], "k": ["a/0", "a/1"]}}
    stage = chain.stages("d")[0]
    assert (stage.epoch, stage.memo, stage.waiting_since) == (1, {"seen": [1]}, at(1))
    committed = chain.run("r0")
    assert (committed.status, committed.finished_at) == (RunStatus.COMMITTED, at(2))
    assert committed.figures == {"records_in": 1.0}
    assert chain.increment("d", "s.out", 0) == IncrementRecord("d", out, at(2), {"run": "r0"})
    assert chain.intended_runs() == []


def test_epochs_are_counted_over_all_stages(chain: Store) -> None:
    """One number per dataflow shows whether anything was committed since it was read."""
    chain.register(a_dataflow("e"), CHAIN)
    for number, stage in enumerate(("s", "t", "s")):
        run = a_run(f"r{number}", stage=stage, epoch=number // 2, read={}, remove={})
        chain.commit(an_intention(run), finished_at=at(1))
    assert chain.epochs() == {"d": 3, "e": 0}


def test_what_is_read_and_not_removed_keeps_a_mark(chain: Store) -> None:
    """A read mark stays with its increment; removal drops it without reading."""
    for _ in range(3):
        arrive(chain)
    run = a_run(read={"i": [0, 1]}, remove={"i": [2]})
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(1))
    assert waiting(chain)["s"] == {"i": ["a/0*", "a/1*"]}
    again = a_run("r1", epoch=1, read={"i": [1]}, remove={"i": [1]})
    chain.commit(an_intention(again), finished_at=at(2))
    assert waiting(chain)["s"] == {"i": ["a/0*"]}
    arrive(chain)
    assert waiting(chain)["s"] == {"i": ["a/0*", "a/3"]}


def test_a_stage_can_feed_itself(store: Store) -> None:
    """An output that is wired to its own stage waits there for the next epoch."""
    store.register(a_dataflow(), {"s": {"i": "a", "back": "s.out"}})
    arrive(store)
    run = a_run()
    store.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    second = a_run("r1", epoch=1, read={"back": [0]})
    store.commit(an_intention(second, an_increment("s.out", 1)), finished_at=at(2))
    assert waiting(store) == {"s": {"i": [], "back": ["s.out/1"]}}


def test_empty_outputs_are_enqueued_too(chain: Store) -> None:
    """Consumers stay aligned: an epoch without records still is an increment."""
    arrive(chain)
    chain.commit(an_intention(a_run(), an_increment("s.out", 0, records=0)), finished_at=at(1))
    assert waiting(chain)["t"]["j"] == ["s.out/0"]
    assert chain.connectors("d")["t"]["j"].queue[0].increment.files == ()


def test_committing_again_changes_nothing(chain: Store) -> None:
    """A redo after a crash is no second effect, even once consumers moved on."""
    arrive(chain)
    run = a_run()
    chain.intend(run)
    intention = an_intention(run, an_increment("s.out", 0))
    chain.commit(intention, finished_at=at(1))
    other = a_run("r1", stage="t", read={"j": [0], "k": [0]})
    chain.commit(an_intention(other), finished_at=at(2))
    before = waiting(chain), chain.stages("d"), chain.runs().items
    chain.commit(intention, finished_at=at(3))
    assert (waiting(chain), chain.stages("d"), chain.runs().items) == before


def test_epochs_are_committed_in_order(chain: Store) -> None:
    """An intention from the future is refused and changes nothing."""
    arrive(chain)
    with pytest.raises(InvariantError):
        chain.commit(an_intention(a_run(epoch=1, read={"i": [0]})), finished_at=at(1))
    assert waiting(chain)["s"] == {"i": ["a/0"]}
    assert chain.stages("d")[0].epoch == 0


@pytest.mark.parametrize(
    "chosen", [{"read": {"i": [1]}}, {"remove": {"i": [0, 1]}}, {"read": {"x": [0]}}]
)
def test_a_run_takes_only_what_waits(chain: Store, chosen: dict[str, Any]) -> None:
    """An intention that names what is not queued is refused as a whole."""
    arrive(chain)
    run = a_run(**{"read": {"i": [0]}, "remove": {}, **chosen})
    with pytest.raises(InvariantError):
        chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    assert waiting(chain)["s"] == {"i": ["a/0"]}
    assert chain.next_index("d", "s.out") == 0


def test_a_commit_restores_a_lost_run(chain: Store) -> None:
    """A store that lost its rows learns the run again from the intention."""
    arrive(chain)
    run = a_run("lost")
    chain.commit(an_intention(run, figures={"groups": 2.0}), finished_at=at(1))
    actual = chain.run("lost")
    assert (actual.status, actual.attempt, actual.started_at) == (RunStatus.COMMITTED, 1, START)
    assert (actual.read, actual.figures) == ({"i": (0,)}, {"groups": 2.0})


def test_a_commit_forgets_failures_and_keeps_a_pause(chain: Store) -> None:
    """Success resets the count of tries; only an operator lifts a pause."""
    arrive(chain)
    chain.intend(a_run("r0"))
    chain.fail("r0", {"error_code": "disk_full"}, finished_at=at(1), retry_at=at(2))
    chain.pause_stage("d", "s", "by hand")
    second = a_run("r1", attempt=2)
    chain.intend(second)
    chain.commit(an_intention(second), finished_at=at(3))
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (0, None, "by hand")


def test_a_failure_is_counted_and_explained(chain: Store) -> None:
    """A failed try is shown with its error; its increments stay queued."""
    arrive(chain)
    error = {"error_code": "author_code_failed", "message": "a\x00\ud800", "details": {"n": 1}}
    for n in range(2):
        chain.intend(a_run(f"r{n}"))
        chain.fail(
            f"r{n}",
            error,
            finished_at=at(n),
            retry_at=at(n + 1),
            pause="gave up" if n else "",
            figures={"begin_00_plan": 0.5},
        )
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (2, at(2), "gave up")
    run = chain.run("r1")
    assert (run.status, run.finished_at, run.error) == (RunStatus.FAILED, at(1), error)
    assert run.figures == {"begin_00_plan": 0.5}
    assert waiting(chain)["s"] == {"i": ["a/0"]}


def test_a_failure_without_a_reason_keeps_a_pause(chain: Store) -> None:
    """A stage that was stopped while it ran stays stopped when its run fails."""
    chain.intend(a_run())
    chain.pause_stage("d", "s", "by hand")
    chain.fail("r0", {}, finished_at=at(1), retry_at=at(2))
    assert chain.stages("d")[0].paused_because == "by hand"


def test_a_try_fails_once(chain: Store) -> None:
    """Failing a failed run again is no second failure."""
    chain.intend(a_run())
    for second in (1, 2):
        chain.fail("r0", {}, finished_at=at(second), retry_at=None)
    assert chain.stages("d")[0].failures == 1
    assert chain.run("r0").finished_at == at(1)


def test_a_committed_run_cannot_fail(chain: Store) -> None:
    """What was published is never shown as failed."""
    arrive(chain)
    run = a_run()
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(1))
    with pytest.raises(InvariantError):
        chain.fail("r0", {}, finished_at=at(2), retry_at=None)
    assert chain.run("r0").status is RunStatus.COMMITTED


def test_a_superseded_try_leaves_the_stage_alone(chain: Store) -> None:
    """The late failure of a try whose epoch another one committed is only recorded."""
    arrive(chain)
    chain.intend(a_run("r0"))
    chain.commit(an_intention(a_run("r1")), finished_at=at(1))
    chain.fail("r0", {}, finished_at=at(2), retry_at=at(9), pause="late")
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (0, None, "")
    assert chain.run("r0").status is RunStatus.FAILED


def test_lifting_a_pause_ends_the_rest_after_a_failure(chain: Store) -> None:
    """A retry does not wait for the time of the next try; failures stay, until a resume."""
    chain.intend(a_run())
    chain.fail("r0", {}, finished_at=at(1), retry_at=at(900))
    chain.pause_stage("d", "s", "it stopped")
    assert chain.stages("d")[0].retry_at == at(900)
    chain.retry_stage("d", "s")
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (1, None, "")
    chain.resume_stage("d", "s")
    assert chain.stages("d")[0].failures == 0


def test_what_an_operator_paused_only_a_resume_lifts(chain: Store) -> None:
    """Neither a retry nor a later failure takes the place of the pause; the error is noted."""
    error = {"error_code": "disk_full", "message": "disk full", "details": {}}
    chain.intend(a_run())
    chain.pause_stage("d", "s", PAUSED_BY_HAND)
    chain.fail("r0", error, finished_at=at(1), retry_at=None, pause="gave up")
    chain.pause_stage("d", "s", "damaged", error)
    with pytest.raises(StagePausedError):
        chain.retry_stage("d", "s")
    stage = chain.stages("d")[0]
    assert (stage.is_paused, stage.has_stopped) == (True, False)
    assert (stage.failures, stage.error) == (1, error)
    chain.resume_stage("d", "s")
    stage = chain.stages("d")[0]
    assert (stage.paused_because, stage.failures, stage.error) == ("", 0, None)


def test_a_pause_is_of_one_stage(chain: Store) -> None:
    """`pause_stage` sets the reason, whatever it is; a retry lifts it."""
    error = {"error_code": "disk_full", "message": "disk full", "details": {"path": "/x"}}
    chain.pause_stage("d", "s", "disk full", error)
    assert [s.paused_because for s in chain.stages("d")] == ["disk full", ""]
    assert [s.error for s in chain.stages("d")] == [error, None]
    chain.retry_stage("d", "s")
    assert [s.paused_because for s in chain.stages("d")] == ["", ""]
    assert [s.error for s in chain.stages("d")] == [None, None]
    chain.pause_stage("d", "s", "disk full", error)
    chain.set_desired("d", "running")
    assert [s.error for s in chain.stages("d")] == [None, None]


LOOP = {"s": {"i": "a", "back": "t.out"}, "t": {"j": "s.out"}, "u": {"k": "s.out"}}


def test_empties_are_not_enqueued_inside_a_cycle(store: Store) -> None:
    """They would go round for ever; readers outside get them, to stay aligned."""
    store.register(a_dataflow(), LOOP)
    arrive(store)
    run = a_run()
    store.intend(run)
    store.commit(an_intention(run, an_increment("s.out", 0, records=0)), finished_at=at(1))
    assert waiting(store) == {"s": {"i": [], "back": []}, "t": {"j": []}, "u": {"k": ["s.out/0"]}}
    arrive(store)
    run = a_run("r1", epoch=1)
    store.intend(run)
    store.commit(an_intention(run, an_increment("s.out", 1)), finished_at=at(2))
    assert waiting(store)["t"] == {"j": ["s.out/1"]}
    assert waiting(store)["u"] == {"k": ["s.out/0", "s.out/1"]}


def test_turns_count_epochs_without_input_from_outside(store: Store) -> None:
    """On a cycle only; one increment from outside begins anew."""
    store.register(a_dataflow(), LOOP)
    seen = []
    arrive(store)
    for epoch, read in enumerate(({"i": (0,)}, {"back": (0,)}, {"back": (1,)}, {"i": (1,)})):
        run = a_run(f"s{epoch}", epoch=epoch, read=read)
        store.intend(run)
        store.commit(an_intention(run, an_increment("s.out", epoch)), finished_at=at(1))
        seen.append({stage.stage: stage.turns for stage in store.stages("d")}["s"])
        run = a_run(f"t{epoch}", stage="t", epoch=epoch, read={"j": (epoch,)})
        store.intend(run)
        store.commit(an_intention(run, an_increment("t.out", epoch)), finished_at=at(1))
        if epoch == 2:
            arrive(store)
    assert seen == [0, 1, 2, 0]
    assert [(stage.stage, stage.turns) for stage in store.stages("d")] == [
        ("s", 0),
        ("t", 4),
        ("u", 0),
    ]
