"""The loop, stepped by hand: what starts, what waits and why, what an operator can do."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import (
    AlreadyExistsError,
    AuthorCodeError,
    CbpError,
    DataflowInvalidError,
    DefinitionError,
    DiskFullError,
    ForeignWriterError,
    InvariantError,
    Mistake,
    NotFoundError,
    OperatingError,
    TableForeignError,
)
from cbp.model.increment import Increment
from cbp.model.intention import RunStatus
from tests.controller.world import DIAMOND, ONE, Deferred, World

Failing = Callable[..., None]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def deferred(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, executor=Deferred())
    yield made
    made.close()


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


def only_stage(world: World, name: str = "one") -> Any:
    return world.store.stages(name)[0]


def statuses(world: World) -> list[tuple[str, int, int]]:
    """Return (status, epoch, attempt) of every run, oldest first."""
    runs = reversed(world.store.runs(limit=500).items)
    return [(run.status.value, run.epoch, run.attempt) for run in runs]


# runs


def test_an_arrival_is_applied_and_comes_out(world: World) -> None:
    """One increment through one stage: committed, published, readable, dequeued."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("y", 2))
    world.ticks()
    assert statuses(world) == [("COMMITTED", 0, 1)]
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}, {"word": "y", "n": 2}]
    key = {"word": "y"}
    assert world.controller.look_up("one", "sum", "sums", key) == [{"word": "y", "n": 2}]
    assert world.store.connectors("one")["sum"]["items"].queue == ()
    assert world.controller.waiting("one") == {"sum": "waits for an increment on items"}


def test_independent_stages_run_at_the_same_time(deferred: World) -> None:
    """Both sides are under way before either ends; the join runs when both have ended."""
    deferred.controller.register(DIAMOND)
    deferred.arrive("diamond", "a", ("x", 1))
    deferred.arrive("diamond", "b", ("x", 2))
    assert {start.stage for start in deferred.controller.tick().starts} == {"left", "right"}
    assert deferred.controller.tick().starts == ()
    executor: Any = deferred.executor
    executor.run_next()
    assert deferred.controller.tick().starts == ()
    executor.run_next()
    assert [start.stage for start in deferred.controller.tick().starts] == ["join"]


def test_no_more_runs_than_places(tmp_path: Path) -> None:
    """The limit holds over all dataflows, and the one that waits says so."""
    world = World(tmp_path, executor=Deferred(), parallel_max=1)
    world.controller.register(DIAMOND)
    world.arrive("diamond", "a", ("x", 1))
    world.arrive("diamond", "b", ("x", 2))
    assert len(world.controller.tick().starts) == 1
    assert len(world.controller._runs.busy()) == 1
    assert "waits for one of 1 places for runs" in world.controller.waiting("diamond").values()
    world.close()


def test_a_stage_never_runs_beside_itself(deferred: World) -> None:
    """Epochs of one stage are serial, however often the loop looks."""
    deferred.controller.register(ONE)
    deferred.arrive("one", "a", ("x", 1))
    deferred.arrive("one", "a", ("x", 2))
    started = [len(deferred.controller.tick().starts) for _ in range(3)]
    assert started == [1, 0, 0]
    assert deferred.controller.waiting("one") == {"sum": "runs epoch 0"}


def test_a_run_that_ends_during_a_tick_is_not_started_again(
    deferred: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue loaded before a run ended is never taken for the queue after it.

    (1) the tick notes who runs (2) the tick loads the queue (3) the run commits
    (4) the tick decides: the stage must still count as running.
    """
    deferred.controller.register(ONE)
    deferred.arrive("one", "a", ("x", 1))
    deferred.controller.tick()
    executor: Any = deferred.executor
    load = deferred.store.connectors

    def ends_after_loading(name: str) -> Any:
        loaded = load(name)
        while executor.waiting:
            executor.run_next()
        return loaded

    monkeypatch.setattr(deferred.store, "connectors", ends_after_loading)
    assert deferred.controller.tick().starts == ()
    monkeypatch.undo()
    assert deferred.controller.tick().starts == ()
    assert statuses(deferred) == [("COMMITTED", 0, 1)]


def test_several_dataflows_do_not_mix(world: World) -> None:
    """The same names in two dataflows are two things."""
    other = copy.deepcopy(ONE) | {"name": "two"}
    world.controller.register(ONE)
    world.controller.register(other)
    world.arrive("one", "a", ("x", 1))
    world.arrive("two", "a", ("y", 2))
    world.ticks()
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}]
    assert world.flow("two", "sum.totals") == [{"word": "y", "n": 2}]


def test_prepared_times_rise_even_if_the_clock_goes_back(world: World) -> None:
    """In-commit timestamps of a table must rise, whatever the clock does, restarts too."""
    world.controller.register(ONE)
    log = world.controller._runs.log(f"{world.tables}/one")
    for step in range(3):
        world.arrive("one", "a", ("x", step))
        world.ticks()
        world.clock.advance(-3600)
        world.restart()
    times = [intention.prepared_ms for intention in log.since("sum", 0)]
    assert times == sorted(set(times))
    assert len(times) == 3


def test_run_ids_sort_by_time_of_decision(world: World) -> None:
    """The newest run has the greatest id, also within one millisecond."""
    world.controller.register(ONE)
    for step in range(4):
        world.arrive("one", "a", ("x", step))
    world.ticks()
    runs = world.store.runs().items
    assert [run.epoch for run in sorted(runs, key=lambda run: run.id)] == [0, 1, 2, 3]


def test_an_end_wakes_the_next_tick(world: World) -> None:
    """What waits for a run does not wait for the next poll."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.wait(0)
    world.controller.tick()
    assert world.controller._woken.is_set()


# failures


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


# what an operator asks for


def test_a_paused_dataflow_starts_nothing_and_takes_arrivals(world: World) -> None:
    """Pause is persistent; resume works off what has arrived."""
    world.controller.register(ONE)
    world.controller.pause("one")
    world.arrive("one", "a", ("x", 1))
    world.restart()
    assert world.ticks().starts == ()
    assert world.controller.waiting("one") == {"sum": "the dataflow is paused"}
    world.controller.resume("one")
    world.ticks()
    assert only_stage(world).epoch == 1


def test_cancel_stops_a_run_and_pauses_its_stage(deferred: World) -> None:
    """A cancelled run is no fault: nothing is counted, the increment stays, a person resumes."""
    deferred.controller.register(ONE)
    deferred.arrive("one", "a", ("x", 1))
    deferred.controller.tick()
    (run,) = deferred.store.intended_runs()
    deferred.controller.cancel(run.id)
    executor: Any = deferred.executor
    executor.run_next()
    assert deferred.store.run(run.id).status is RunStatus.FAILED
    assert "was cancelled" in only_stage(deferred).paused_because
    deferred.controller.resume("one")
    deferred.controller.tick()
    executor.run_next()
    assert only_stage(deferred).epoch == 1


def test_cancelling_a_run_that_has_ended_changes_nothing(world: World) -> None:
    """Cancel is safe at any time; only an unknown run is an error."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    (run,) = world.store.runs().items
    world.controller.cancel(run.id)
    assert world.store.run(run.id) == run
    assert world.engine.cancelled == []
    with pytest.raises(NotFoundError):
        world.controller.cancel("nothing")


@pytest.mark.timeout(30)
def test_delete_cancels_and_awaits_the_runs_under_way(tmp_path: Path) -> None:
    """A dataflow is deleted while it runs; nothing of it is left in the store."""
    threads = ThreadPoolExecutor(1)
    world = World(tmp_path, executor=threads)
    begun, cancelled = threading.Event(), threading.Event()
    cancel = world.engine.cancel

    def blocks(plan: Any) -> None:
        begun.set()
        cancelled.wait()

    def cancel_and_tell(run: str) -> None:
        cancel(run)
        cancelled.set()

    world.engine.on_prepare, world.engine.cancel = blocks, cancel_and_tell
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.tick()
    begun.wait()
    world.controller.delete("one", purge=True)
    assert world.store.dataflows() == []
    assert world.store.runs().items == []
    assert world.controller.tick().starts == ()
    assert list(Path(world.tables).iterdir()) == []
    threads.shutdown()
    world.close()


def test_a_dataflow_that_is_being_deleted_starts_nothing(
    deferred: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the request and the end of its runs a dataflow starts no other."""
    deferred.controller.register(DIAMOND)
    deferred.arrive("diamond", "a", ("x", 1))
    deferred.controller.tick()
    seen: list[object] = []

    def meanwhile(name: str | None = None, *, timeout: float | None = None) -> bool:
        deferred.arrive("diamond", "b", ("x", 1))
        seen.append(deferred.controller.tick().starts)
        seen.append(deferred.controller.waiting("diamond")["right"])
        return False

    monkeypatch.setattr(deferred.controller._runs, "wait", meanwhile)
    with pytest.raises(OperatingError):
        deferred.controller.delete("diamond")
    assert seen == [(), "is being deleted"]
    assert [start.stage for start in deferred.controller.tick().starts] == ["right"]


def test_what_the_engine_refuses_leaves_no_trace(world: World, tmp_path: Path) -> None:
    """Neither validated nor registered, and no folder that a recovery would bring back."""
    error = DataflowInvalidError("one", [Mistake("engine_unsupported", "stages.sum", "cannot")])

    def refuse(dataflow: str) -> None:
        raise error

    before = sorted(tmp_path.rglob("*"))
    world.engine.on_check = refuse
    for call in (world.controller.validate, world.controller.register):
        with pytest.raises(DataflowInvalidError):
            call(ONE)
    assert world.store.dataflows() == []
    assert sorted(tmp_path.rglob("*")) == before


def test_what_was_deleted_can_be_registered_again(world: World) -> None:
    """Without purge the tables stay, and the same document takes them over with its queues."""
    world.controller.register(DIAMOND)
    world.arrive("diamond", "a", ("x", 1))
    world.arrive("diamond", "b", ("x", 2))
    world.ticks()
    increments = [world.store.increment("diamond", source, 0).increment for source in "ab"]
    before = world.picture()
    world.controller.delete("diamond")

    class Log:
        def prepare(self, record: Any, dataflow: Any) -> None:
            pass

        def recover(self, record: Any, dataflow: Any) -> None:
            for increment in increments:
                world.enqueue("diamond", increment)

    world.controller.arrivals = Log()
    world.controller.register(DIAMOND)
    assert world.picture() == before
    assert world.engine.prepared == [("left", 0), ("right", 0), ("join", 0)] or (
        world.engine.prepared == [("right", 0), ("left", 0), ("join", 0)]
    )


def test_after_a_purge_the_name_is_free(world: World) -> None:
    """Purge removes the folder, so that another dataflow may use the name."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    world.controller.delete("one", purge=True)
    world.controller.register(DIAMOND | {"name": "one"})
    assert world.flow("one", "left.totals") == []


def test_a_purged_dataflow_starts_anew_on_real_tables(tmp_path: Path) -> None:
    """No engine remembers tables that were purged: the same name begins at nothing."""
    world = World(tmp_path, engine=LocalEngine)
    for number in (1, 2):
        world.controller.register(ONE)
        world.arrive("one", "a", ("x", number))
        world.ticks()
        found = world.controller.look_up("one", "sum", "sums", {"word": "x"})
        assert found == [{"word": "x", "n": number}]
        world.controller.delete("one", purge=True)
    world.close()


# registration


def test_a_name_is_taken_once(world: World) -> None:
    """A second registration of a name is refused and changes nothing."""
    world.controller.register(ONE)
    with pytest.raises(AlreadyExistsError):
        world.controller.register(DIAMOND | {"name": "one"})
    assert world.store.dataflow("one").document == ONE


def test_validation_changes_nothing(world: World) -> None:
    """Validate answers like register and leaves no trace."""
    assert world.controller.validate(ONE).name == "one"
    with pytest.raises(DataflowInvalidError):
        world.controller.validate({"name": "one"})
    assert world.store.dataflows() == []
    assert world.files.list_names(world.tables) == []


@pytest.mark.parametrize("what", ["file", "other dataflow"])
def test_a_folder_that_holds_something_else_is_left_alone(world: World, what: str) -> None:
    """Nothing is written into a folder that is not this dataflow's."""
    folder = Path(world.tables) / "one"
    if what == "file":
        folder.mkdir(parents=True)
        (folder / "thesis.txt").write_text("precious")
    else:
        world.controller.register(DIAMOND | {"name": "one"})
        world.controller.delete("one")
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(TableForeignError):
        world.controller.register(ONE)
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert world.store.dataflows() == []


def test_an_empty_folder_may_be_used(world: World) -> None:
    """A folder that an operator has made beforehand is no obstacle."""
    (Path(world.tables) / "one").mkdir(parents=True)
    assert world.controller.register(ONE).name == "one"


def test_a_document_that_json_cannot_hold_is_refused(world: World) -> None:
    """What is registered must be what the description says."""
    document = copy.deepcopy(ONE) | {"description": {1, 2}}
    with pytest.raises(DataflowInvalidError) as caught:
        world.controller.register(document)
    assert caught.value.mistakes[0].code == "document_invalid"
    assert world.store.dataflows() == []


def test_a_dataflow_whose_translator_is_gone_stops_only_itself(world: World) -> None:
    """An uninstalled package is a reason to wait, not the end of the loop."""
    world.controller.register(ONE)
    world.controller.register(DIAMOND)
    del world.translators["join"]
    world.restart()
    world.controller.recover()
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert only_stage(world).epoch == 1
    assert "there is no translator 'join'" in world.controller.waiting("diamond")["left"]


# reading


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_put_together_are_the_flow(world: World, limit: int) -> None:
    """Pages of any size give every record once, in order, empty increments included."""
    world.controller.register(ONE)
    numbers = iter(range(100))
    for size in (3, 1, 0, 2):
        if size:
            world.arrive("one", "a", *[("x", next(numbers)) for _ in range(size)])
        else:
            world.enqueue("one", Increment("a", 2, 2))
    pages, cursor = [], None
    for _ in range(10):
        page, cursor = world.controller.read_flow("one", "a", cursor, limit)
        pages.append([row["n"] for row in page])
        if cursor is None:
            break
    assert list(chain(*pages)) == [0, 1, 2, 3, 4, 5]
    assert all(len(page) == limit for page in pages[:-1])


def test_what_does_not_exist_is_not_found(world: World) -> None:
    """Unknown names are errors that say what there is not."""
    world.controller.register(ONE)
    calls: list[Callable[[], object]] = [
        lambda: world.controller.dataflow("two"),
        lambda: world.controller.read_flow("one", "b", None, 1),
        lambda: world.controller.look_up("one", "sum", "no", {"word": "x"}),
        lambda: world.controller.look_up("one", "no", "sums", {"word": "x"}),
        lambda: world.controller.retry("one", "no"),
        lambda: world.controller.delete("two"),
        lambda: world.controller.pause("two"),
    ]
    for call in calls:
        with pytest.raises(NotFoundError):
            call()


@pytest.mark.parametrize("cursor", ["", "1", "a.b", "-1.0", "1.0.0", "1.0\n"])
def test_a_cursor_that_nobody_gave_is_refused(world: World, cursor: str) -> None:
    """Cursors are checked like any input."""
    world.controller.register(ONE)
    with pytest.raises(DefinitionError) as caught:
        world.controller.read_flow("one", "a", cursor, 1)
    assert caught.value.mistake.code == "cursor_invalid"


@pytest.mark.parametrize("key", [{}, {"wrd": "x"}, {"word": "x", "n": 1}])
def test_a_look_up_needs_exactly_the_key(world: World, key: dict[str, Any]) -> None:
    """A key with missing or foreign columns is refused, naming the key."""
    world.controller.register(ONE)
    with pytest.raises(DefinitionError) as caught:
        world.controller.look_up("one", "sum", "sums", key)
    assert caught.value.mistake.code == "key_invalid"
    assert "word STRING" in caught.value.message


# stopping


def test_a_drained_controller_starts_nothing(world: World) -> None:
    """After drain nothing runs, and nothing starts."""
    world.controller.register(ONE)
    world.ticks()
    assert world.controller.drain(timeout=0)
    world.arrive("one", "a", ("x", 1))
    assert world.controller.tick().starts == ()
    assert world.controller.waiting("one") == {"sum": "the service stops"}


@pytest.mark.timeout(30)
def test_a_run_that_outlasts_the_drain_is_interrupted(tmp_path: Path) -> None:
    """A stop cancels what takes too long; that is no failure, and it runs again."""
    threads = ThreadPoolExecutor(1)
    world = World(tmp_path, executor=threads)
    begun, cancelled = threading.Event(), threading.Event()
    cancel = world.engine.cancel

    def blocks(plan: Any) -> None:
        begun.set()
        cancelled.wait()

    def cancel_and_tell(run: str) -> None:
        cancel(run)
        cancelled.set()

    world.engine.on_prepare, world.engine.cancel = blocks, cancel_and_tell
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.tick()
    begun.wait()
    assert not world.controller.drain(timeout=0.01)
    threads.shutdown()
    assert only_stage(world).paused_because == ""
    (run,) = world.store.runs().items
    assert run.error is not None
    assert run.error["error_code"] == "run_interrupted"
    world.close()
