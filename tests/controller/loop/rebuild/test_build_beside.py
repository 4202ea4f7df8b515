"""A rebuild beside: readers see the old tables or the new ones, whole; no increment is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import (
    ChangeRefusedError,
    DataflowBusyError,
    NotFoundError,
    RollbackImpossibleError,
)
from cbp.model.flow.retention import FlowRetention
from cbp.model.run.correction import Correction
from cbp.model.verification import Request, Verification
from controller.cli import main
from controller.cli.session import Session
from controller.loop import LoopLimits
from controller.loop.housekeeping.input_retention import Keep
from controller.loop.rebuild.build_beside import Build, TableDifference
from controller.loop.rebuild.build_in_progress import Job
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.changing import POINTS
from tests.controller.changing import document as document_of
from tests.controller.loop.rebuild.beside_world import (
    Beside,
    Tripled,
    arrive,
    document,
    from_scratch,
)
from tests.controller.lost import SourceLogs
from tests.controller.rest import api_of_world
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.close()


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[Beside]:
    """Give a world that keeps all records."""
    made = Beside(tmp_path, limits=LoopLimits(), collect_every=10**6)
    yield made
    made.close()


def test_readers_see_the_old_tables_until_all_new_ones_are_shown(
    world: Beside, tmp_path: Path
) -> None:
    """The old version is read and goes on; the swap shows the new one, with what came since."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    old = world.seen()
    job = world.build(document("double"))
    assert world.seen() == old
    assert world.store.dataflow("d").version == 1
    arrive(world, 4, 6)
    world.ticks()
    assert world.sums()["x"] == sum(range(6)), "the old version goes on"
    arrive(world, 6, 7)  # neither has it
    assert world.swap(job).status == "swapped"
    assert world.store.dataflow("d").version == 2
    assert world.sums()["x"] == 2 * sum(range(7))
    assert world.seen() == from_scratch(tmp_path / "scratch", document("double"), 7)
    arrive(world, 7, 9)
    world.ticks()
    assert world.sums()["x"] == 2 * sum(range(9))
    assert not list((tmp_path / "tables").glob(".scratch*"))


def test_the_difference_is_counted_before_the_swap(world: Beside) -> None:
    """Per table: records added, gone and changed; other columns are not compared."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    job = world.build(document())
    assert job.exact
    assert all((one.added, one.gone, one.changed) == (0, 0, 0) for one in job.tables)
    assert {one.table for one in job.tables} == {
        "state/sum.sums", "flows/sum.totals", "state/best.best", "flows/best.seen",
    }  # fmt: skip
    world.controller.rebuild_jobs.cancel("d", job.id)
    tables = {one.table: one for one in world.build(document("tripled")).tables}
    assert tables["state/sum.sums"] == TableDifference("state/sum.sums", 4, 4, 0, 0, 4)
    assert tables["flows/best.seen"].before == 8


def played(world: Beside, *faults: PlannedFaults) -> int:
    """Build, swap, go back, build and swap again, with arrivals between; return the crashes."""
    crashes, left = 0, list(faults)
    world.faults.to = left.pop(0) if left else NO_FAULTS

    def attempt(step: Any) -> None:
        nonlocal crashes
        recover = False
        while True:
            try:
                if recover:
                    world.controller.recover()
                step()
                return
            except Crash:
                crashes, recover = crashes + 1, True
                world.faults.to = left.pop(0) if left else NO_FAULTS
                world.restart()

    def register() -> None:
        if not world.store.dataflows():
            world.controller.register(document())

    def swap(version: int) -> None:
        world.controller.tick()  # what a crash interrupted goes on by itself
        if world.store.dataflow("d").version < version:
            begun = [job for job in world.controller.rebuild_jobs.all("d") if not job.ended]
            world.swap(begun[0] if begun else world.build(document("tripled")))
            assert world.store.dataflow("d").version == version

    def back() -> None:
        if world.store.dataflow("d").version < 3:
            world.controller.rebuild_jobs.swaps.back("d")

    def ticks() -> None:
        world.clock.advance(10)
        world.ticks()

    steps = [lambda: swap(2), back, lambda: swap(4), lambda: None]
    attempt(register)
    for number, step in enumerate(steps):
        for arrived in (2 * number, 2 * number + 1):
            attempt(lambda n=arrived: arrive(world, n, n + 1))
            if arrived % 2 == 0:
                attempt(ticks)
        attempt(step)
        attempt(ticks)
    world.faults.to = NO_FAULTS
    return crashes


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = Beside(tmp_path_factory.mktemp("unbroken"))
    played(world)
    assert world.sums()["x"] == 3 * sum(range(8))
    seen, epochs = world.seen(), world.picture()
    world.close()
    return {**epochs, **seen}


@pytest.mark.part(every=28, first=4)
@pytest.mark.parametrize("passages", [(2, 9), (2, 9, 3, 17, 5, 30, 4, 8)], ids=["few", "many"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_a_restart_leads_to_the_same(
    point: str, passages: tuple[int, ...], tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """At early and late passages of every durable effect: the tables of no crash, nothing left."""
    world = Beside(tmp_path / "world")
    assert played(world, *[PlannedFaults(point, passage=n) for n in passages]), f"{point}: never"
    assert world.seen() == {name: rows for name, rows in unbroken.items() if name in world.seen()}
    world.close()


@pytest.mark.part(every=4)
@pytest.mark.parametrize("passage", range(1, 9))
def test_killed_while_it_is_swapped_readers_see_one_of_both(passage: int, tmp_path: Path) -> None:
    """Before the description the old version is left, and the swap is made anew; then the new."""
    for point in ("description", "log_entry", "sql_commit", "data_sync"):
        world = Beside(tmp_path / point)
        world.controller.register(document())
        arrive(world, 0, 4)
        world.ticks()
        old = world.seen()
        job = world.build(document("tripled"))
        world.faults.to = PlannedFaults(f"{point}.before", passage=passage)
        try:
            world.swap(job)
        except Crash:
            world.faults.to = NO_FAULTS
            world.restart()
            world.controller.recover()
        world.faults.to = NO_FAULTS
        version = world.store.dataflow("d").version
        assert world.seen() == old if version == 1 else world.sums()["x"] == 18
        arrive(world, 4, 5)
        world.ticks()
        assert world.sums()["x"] == 30
        assert not list(Path(world.tables).glob(".scratch*"))
        world.close()


def test_a_cancelled_rebuild_has_changed_nothing(world: Beside, tmp_path: Path) -> None:
    """Its folder is gone, another one may begin, and what was cancelled cannot be swapped in."""
    world.controller.register(document())
    arrive(world, 0, 3)
    world.ticks()
    old = world.seen()
    job = world.build(document("tripled"))
    with pytest.raises(DataflowBusyError, match="under way"):
        world.start(document())
    assert world.controller.rebuild_jobs.cancel("d", job.id).status == "cancelled"
    assert world.seen() == old
    assert not list((tmp_path / "tables").glob(".scratch*"))
    with pytest.raises(DataflowBusyError, match="not ready"):
        world.swap(job)
    assert world.build(document()).status == "ready"
    with pytest.raises(NotFoundError):
        world.controller.rebuild_jobs.show("d", "n0")


def test_a_rebuild_that_is_shown_as_ready_can_be_swapped_in_at_once(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing holds a rebuild once it is shown as ready."""
    show, held = Job.show, list[bool]()

    def noted(job: Job, **changed: Any) -> None:
        show(job, **changed)
        if changed.get("status") == "ready":
            held.append(job.busy.locked())

    monkeypatch.setattr(Job, "show", noted)
    world.controller.register(document())
    arrive(world, 0, 3)
    world.ticks()
    world.swap(world.build(document("tripled")))
    assert held == [False]
    assert world.store.dataflow("d").version == 2


def test_the_old_tables_can_be_shown_again(world: Beside, tmp_path: Path) -> None:
    """Going back gives them as they were, and the old code applies what came since."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    old = world.seen()
    world.swap(world.build(document("tripled")))
    jobs = world.controller.rebuild_jobs
    until = jobs.swaps.back_until(world.store.dataflow("d"))
    assert until is not None
    assert (until - world.clock()).total_seconds() > 86_000
    assert world.seen() != old
    jobs.swaps.back("d")
    assert world.store.dataflow("d").version == 3
    assert world.seen() == old
    world.swap(world.build(document("tripled")))
    arrive(world, 4, 6)
    world.ticks()
    jobs.swaps.back("d")
    world.ticks()
    assert world.seen() == from_scratch(tmp_path / "scratch", document(), 6)
    assert not world.controller.rebuilding("d", world.store.connectors("d"))


def test_going_back_needs_the_old_code(world: Beside) -> None:
    """It is refused while other code is loaded, and says what to do first."""
    world.controller.register(document())
    arrive(world, 0, 2)
    world.ticks()
    world.swap(world.build(document("tripled")))
    world.translators["sum"] = Tripled
    world.restart()
    world.controller.recover()
    with pytest.raises(ChangeRefusedError, match="not that of version 1: save the code"):
        world.controller.rebuild_jobs.swaps.back("d")
    assert world.store.dataflow("d").version == 2


def test_only_a_swap_can_be_taken_back(world: Beside) -> None:
    """A dataflow that was never swapped has nothing to go back to."""
    world.controller.register(document())
    with pytest.raises(ChangeRefusedError, match="did not begin with a swap"):
        world.controller.rebuild_jobs.swaps.back("d")
    assert world.controller.rebuild_jobs.swaps.back_until(world.store.dataflow("d")) is None


def test_a_rebuild_without_all_of_its_input_is_refused_before_it_begins(world: Beside) -> None:
    """It says from which increment on they can be read."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    first = world.store.increment("d", "a", 0).increment.files[0].path
    Path(world.store.dataflow("d").folder, first).unlink()
    kept_since = "from 1 on can still be read.*Input of 'a' is kept from 2026-01-01 00:00 UTC on"
    with pytest.raises(ChangeRefusedError, match=kept_since):
        world.start(document())
    assert world.controller.rebuild_jobs.all("d") == []


def test_a_roll_back_meanwhile_ends_a_rebuild(calm: Beside) -> None:
    """What was built may have been undone: nothing is swapped in."""
    calm.controller.register(document())
    arrive(calm, 0, 3)
    calm.ticks()
    job = calm.build(document("tripled"))
    calm.controller.amendments.roll_back("d", "0", who="me", why="a try")
    with pytest.raises(ChangeRefusedError, match="rolled back"):
        calm.swap(job)
    assert calm.shown(job).status == "failed"
    calm.ticks()
    assert calm.sums()["x"] == 3


def test_a_lost_store_comes_back_behind_a_swap(world: Beside) -> None:
    """The description tells what the tables show, and where the version began."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    world.swap(world.build(document("tripled")))
    arrive(world, 4, 5)
    world.ticks()
    late = world.picture()
    increments = [item.increment for item in world.store.increments("d", "a", limit=500).items]
    world.store.delete("d")
    world.restart()
    world.arrivals = SourceLogs(world, "d", reversed(increments))
    assert world.controller.rebuild() == ["d"]
    assert world.picture() == late


def verified(world: Beside) -> Verification:
    begun = world.controller.verifications.start("d", Request())
    return world.controller.verifications.show(begun.id)


def test_a_swapped_dataflow_verifies_and_rolls_back(calm: Beside) -> None:
    """All that was built is recomputed, with what came since; none before it can be reached."""
    calm.controller.register(document())
    arrive(calm, 0, 4)
    calm.ticks()
    calm.swap(calm.build(document("tripled")))
    swapped = calm.seen()
    number = calm.store.position("d").number
    assert verified(calm).status == "equal"
    for last in (5, 6, 7):
        arrive(calm, last - 1, last)
        calm.ticks()
    late = calm.seen()
    result = verified(calm)
    assert result.status == "equal", result
    records = {one.table: one.records for one in result.tables}
    assert records["flows/best.seen"] == 2 * 2 * 7, "those that were built, too"
    calm.controller.amendments.roll_back("d", str(number), who="me", why="a try", pause=True)
    assert calm.seen() == swapped
    calm.controller.resume("d")
    calm.ticks()
    assert calm.seen() == late
    with pytest.raises(RollbackImpossibleError):
        calm.controller.amendments.roll_back("d", str(number - 1), who="me", why="a try")


def test_a_verification_finds_what_a_swap_brought(
    calm: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correction from before it does not count; a record that the build left out is missed."""
    calm.controller.register(document())
    arrive(calm, 0, 4)
    calm.ticks()
    right = [Correction({"word": "x"}, "set", ({"n": 100},))]
    calm.controller.amendments.correct("d", "sum", "sums", right, who="me", why="wrong")
    calm.ticks()
    assert verified(calm).status == "undecided"
    calm.swap(calm.build(document()))
    assert verified(calm).status == "equal"
    monkeypatch.setattr(Build, "_dropped", lambda build: {"a": [range(1)]})
    calm.swap(calm.build(document("tripled")))
    assert verified(calm).status == "differs"


def test_a_stage_behind_cannot_be_rebuilt_alone_afterwards(world: Beside) -> None:
    """What was built beside is in no increment: a stage that read them would lack it."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    world.swap(world.build(document("tripled")))
    with pytest.raises(ChangeRefusedError, match="rebuild stage 'sum'"):
        world.change(document("tripled"), rebuild=["best"])
    world.change(document("tripled"), rebuild=["sum", "best"])
    world.ticks()
    assert world.sums()["x"] == 18


def test_operators_rebuild_by_one_command(
    world: Beside, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows what differs, swaps, lists, and goes back."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    wanted = tmp_path / "d.json"
    wanted.write_text(json.dumps(document("tripled")))
    settings = Settings(root=world.root, token=TOKEN)
    session = Session(settings, AppTransport(api_of_world(world, settings)))

    def cbp(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=session)
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == status, printed.err + printed.out
        return printed.out

    told = [line.split() for line in cbp("rebuild", "d", str(wanted), "--yes").splitlines()]
    assert ["state/sum.sums", "4", "4", "0", "0", "4"] in told
    assert ["d", "shows", "the", "new", "tables,", "at", "version", "2"] in told
    assert world.sums()["x"] == 18
    assert "the tables from before the swap are kept until" in cbp("status", "d")
    listed = cbp("rebuild", "d", "--list")
    assert "swapped" in listed
    assert "can be undone until" in listed
    assert "at version 3" in cbp("rebuild", "d", "--back")
    assert world.sums()["x"] == 6
    cbp("rebuild", "d", "--back", status=1)
    assert json.loads(cbp("rebuild", "d", "--json"))["status"] == "ready"
    assert "new tables are ready: cbp rebuild d --swap" in cbp("status", "d")
    assert "was cancelled; nothing has changed" in cbp("rebuild", "d", "--cancel")


def test_register_rebuilds_beside_unless_in_place_is_asked_for(
    world: Beside, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All tables are swapped at once; a plan changes nothing; a kept stage is refused."""
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    wanted = tmp_path / "d.json"
    wanted.write_text(json.dumps(document("tripled")))
    settings = Settings(root=world.root, token=TOKEN)
    session = Session(settings, AppTransport(api_of_world(world, settings)))

    def register(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["register", str(wanted), *arguments], session=session)
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == status, printed.err + printed.out
        return " ".join((printed.out + printed.err).split())

    assert "built beside the present ones" in register("--rebuild", "sum", "--plan")
    assert world.store.dataflow("d").version == 1
    in_place = register("--rebuild", "sum", "--rebuild", "best", "--in-place", "--plan")
    assert "readers see sum.sums" in in_place
    kept = register("--rebuild", "sum", "--keep", "best", status=1)
    assert "stages.best: the stage cannot keep its state" in kept
    assert "To rebuild in place, use --in-place" in kept
    assert "nobody" in register("--rebuild", "nobody", status=1), "it is no stage"
    assert "stages.sum: the translator of this stage" in register("--rebuild", "best", status=1), (
        "it differs too"
    )
    register("--rebuild", "sum", "--expect-version", "7", status=1)
    assert world.store.dataflow("d").version == 1
    assert "d is at version 2" in register("--rebuild", "sum")
    assert world.sums()["x"] == 18, "no tick was needed"
    assert not world.controller.rebuilding("d", world.store.connectors("d"))
    (job,) = world.controller.rebuild_jobs.all("d")
    assert job.status == "swapped"


def test_inputs_stay_while_a_rebuild_needs_them(tmp_path: Path) -> None:
    """However old they become; once it has ended, a collection decides about them again."""
    world = Beside(tmp_path, keep=Keep(FlowRetention(100.0), 100))
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    job = world.build(document("tripled"))
    world.clock.advance(1000)
    assert not world.controller.housekeeping.collect("d").inputs
    assert world.store.oldest_increments("d", "a", limit=1)[0].increment.index == 0
    world.controller.rebuild_jobs.cancel("d", job.id)
    world.controller.housekeeping.collect("d")
    assert world.store.oldest_increments("d", "a", limit=1)[0].increment.index > 0
    world.close()


@pytest.mark.soak
def test_the_old_tables_stay_however_many_versions_came_since(tmp_path: Path) -> None:
    """Up to their time; then a collection takes them, and no swap can be taken back."""
    brief = Retention(versions_min=1, versions_max=2, seconds=100, attempt_seconds=0)
    often = EngineLimits(checkpoint_entries=2)
    world = Beside(tmp_path, retention=brief, engine_limits=often, collect_every=10**6)
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()
    world.swap(world.build(document("tripled")))

    def run_on(first: int, last: int) -> None:
        for number in range(first, last):
            arrive(world, number, number + 1)
            world.ticks()
            world.clock.advance(1)
            world.controller.housekeeping.collect("d")

    run_on(4, 12)
    world.controller.rebuild_jobs.swaps.back("d")
    world.ticks()
    assert world.sums()["x"] == sum(range(12))
    world.swap(world.build(document("tripled")))
    world.clock.advance(200)
    run_on(12, 20)
    with pytest.raises(NotFoundError):
        world.controller.rebuild_jobs.swaps.back("d")
    world.close()


def test_files_can_be_replaced_behind_a_swap_and_its_return(world: Beside) -> None:
    """Tables that were built beside have all input, and so have those from before."""
    stage = {"translator": "viewed", "any_order": True}
    before, after = document_of(sum=stage), document_of(sum={**stage, "buckets": 4})
    world.controller.register(before)
    arrive(world, 0, 4)
    world.ticks()
    world.controller.retained.check("d", "a")
    world.swap(world.build(after))
    world.controller.retained.check("d", "a")
    world.controller.rebuild_jobs.swaps.back("d")
    world.controller.retained.check("d", "a")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give a list that has each run of a build."""
    began, seen = Job.began, list[str]()

    def noted(job: Job, run: str) -> None:
        began(job, run)
        seen.extend([run] if run else ())

    monkeypatch.setattr(Job, "began", noted)
    return seen


VIEWED: Any = {"translator": "viewed", "any_order": True}


def test_small_updates_of_views_are_read_by_few_runs(calm: Beside, runs: list[str]) -> None:
    """A build catches up with many increments in one run, unless an output is no view."""
    calm.controller.register(document_of(sum=VIEWED))
    arrive(calm, 0, 30)
    calm.ticks()
    job = calm.build(document_of(sum={**VIEWED, "buckets": 4}))
    assert len(runs) == 1
    assert all((one.added, one.gone, one.changed) == (0, 0, 0) for one in job.tables)
    arrive(calm, 30, 50)
    calm.swap(job)
    assert len(runs) == 2
    assert calm.sums() == {"x": sum(range(50)), "w0": 17, "w1": 17, "w2": 16}
    runs.clear()
    calm.build(document(sum="sum"))  # its outputs are no views
    assert len(runs) >= 50


def test_a_build_without_a_promise_reads_increment_after_increment(
    calm: Beside, runs: list[str]
) -> None:
    """A view may count its runs, or signs, so only `any_order` says that they can be fewer."""
    calm.controller.register(document_of(sum={"translator": "viewed"}))
    arrive(calm, 0, 6)
    calm.ticks()
    calm.build(document_of(sum={"translator": "viewed", "buckets": 4}))
    assert len(runs) == 6


def test_files_that_stay_apart_do_so_in_a_build(calm: Beside, runs: list[str]) -> None:
    """A source that says `batch: {files: 1}` has a run for each file, here as there."""
    wanted = document_of(sum=VIEWED)
    wanted["sources"]["a"]["batch"] = {"files": 1}
    calm.controller.register(wanted)
    arrive(calm, 0, 6)
    calm.ticks()
    wanted["stages"]["sum"]["buckets"] = 4
    calm.build(wanted)
    assert len(runs) == 6
