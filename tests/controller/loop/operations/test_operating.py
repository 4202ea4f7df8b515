"""What an operator asks for: pause, cancel, delete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import (
    DataflowInvalidError,
    Mistake,
    NotFoundError,
    OperatingError,
)
from cbp.model.run.intention import RunStatus
from controller.loop import LoopLimits
from tests.controller.lost import SourceLogs
from tests.controller.world import DIAMOND, ONE, Deferred, World, only_stage
from tests.planned_faults import PlannedFaults


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
    begun = world.block_runs()
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


def test_a_deletion_that_is_refused_stops_no_stage(tmp_path: Path) -> None:
    """A run does not end in time; the runs that were cancelled for it run again."""
    threads, at_once = Deferred(), LoopLimits(cancel_seconds=0.0)
    world = World(tmp_path, executor=threads, limits=at_once)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.tick()
    with pytest.raises(OperatingError, match="has not ended"):
        world.controller.delete("one")
    threads.run_next()
    (run,) = world.store.runs(error_code="run_cancelled").items
    assert run.status is RunStatus.FAILED
    assert only_stage(world).paused_because == ""
    world.controller.tick()
    threads.run_next()
    assert only_stage(world).epoch == 1
    world.close()


def test_an_operators_cancel_wins_over_a_deletion_that_is_refused(tmp_path: Path) -> None:
    """Whichever comes first: what an operator cancelled does not run again by itself."""
    for order in (("cancel", "delete"), ("delete", "cancel")):
        threads, at_once = Deferred(), LoopLimits(cancel_seconds=0.0)
        world = World(tmp_path / order[0], executor=threads, limits=at_once)
        world.controller.register(ONE)
        world.arrive("one", "a", ("x", 1))
        world.controller.tick()
        (run,) = world.store.intended_runs()
        for one in order:
            if one == "cancel":
                world.controller.cancel(run.id)
            else:
                with pytest.raises(OperatingError):
                    world.controller.delete("one")
        threads.run_next()
        assert "`cbp resume` runs epoch 0 again" in only_stage(world).paused_because
        world.close()


def test_a_folder_that_cannot_be_removed_leaves_nothing_else(world: World) -> None:
    """The dataflow is deleted; one that takes its folder over has no collection, and no run."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    world.controller.housekeeping.collect("one")
    world.faults.to = PlannedFaults("clean_up.before", error=OSError("busy"))
    with pytest.raises(OperatingError, match="cannot be removed"):
        world.controller.delete("one", purge=True)
    world.faults.to = NO_FAULTS
    assert world.store.dataflows() == []
    assert world.controller.housekeeping.last("one") is None
    assert world.parts.run_counts.all().runs == {}


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

    monkeypatch.setattr(deferred.parts.in_flight, "wait", meanwhile)
    with pytest.raises(OperatingError):
        deferred.controller.delete("diamond")
    assert seen == [(), "the dataflow is being deleted"]
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

    world.arrivals = SourceLogs(world, "diamond", increments)
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
        records = world.controller.reading.look_up("one", "sum", "sums", {"word": "x"})
        assert records == [{"word": "x", "n": number}]
        world.controller.delete("one", purge=True)
    world.close()
