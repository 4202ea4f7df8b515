"""Verification: what differs is found and shown, and runs are left alone.

A difference of one record is found; every table is compared or left out with a reason.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import LeaseLostError, NotFoundError, OperatingError
from cbp.model.verification import Request, Verification
from controller.loop import LoopLimits
from controller.loop.runs.threads import Threads
from controller.loop.verification import verifications as verifications_module
from controller.loop.verification.errors import VerificationBusyError
from stages.translators.set_diff import SetDiff
from tests.controller.verified import EACH_WAY, WAYS, fed, verified, world_of
from tests.controller.wavering import STEPS, Framed, Wavering, wavering
from tests.controller.world import (
    DIAMOND,
    FUSED,
    ONE,
    SCHEMA,
    Deferred,
    Inline,
    World,
    until,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = world_of(tmp_path, wavering=Wavering, set_diff=SetDiff, framed=Framed)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    yield
    STEPS.steps, STEPS.asked = itertools.repeat(0), None


@pytest.mark.part(every=4)
@EACH_WAY
@pytest.mark.parametrize("document", [DIAMOND, FUSED], ids=["diamond", "fused"])
def test_what_ran_equals_its_recomputation(world: World, document: Any, request_: Request):
    """Every table is compared, as it arrived and at once, with either engine."""
    fed(world, document)
    verification = verified(world, document["name"], request_)
    left = {v.table for v in verification.tables if v.status != "equal"}
    assert left <= ({"flows/again.capitals"} if request_.split == "at_once" else set())
    status = "undecided" if left else "equal"
    assert (verification.status, verification.error) == (status, None)
    assert verification.tables
    assert all(v.records for v in verification.tables if v.status == "equal")
    assert verification.epochs is not None
    assert set(verification.epochs.values()) == {3}


@pytest.mark.part(every=2)
@EACH_WAY
def test_a_difference_is_told_with_its_group(world: World, request_: Request):
    """As after a change of the code: the first keys, what is expected, what the table has."""
    wavering(world)
    STEPS.steps = itertools.repeat(1)
    verification = verified(world, "one", request_)
    assert (verification.status, verification.suspect) == ("differs", "sum")
    state = next(v for v in verification.tables if v.table == "state/sum.sums")
    added = 4 if request_.split == "increments" else 1
    (one,) = state.differing
    assert (one.key, one.found) == ("'a'", ("'a', 6",))
    assert one.expected == (f"'a', {6 + added}",)
    assert (state.columns, state.key) == (("word", "n"), ("word",))
    assert (one.key_cells, one.found_cells) == (("'a'",), (("'a'", "6"),))
    assert one.expected_cells == (("'a'", str(6 + added)),)


@pytest.mark.parametrize("request_", WAYS[::2], ids=["direct", "reference"])
def test_a_translator_that_wavers_is_told_from_tables_that_are_wrong(
    world: World, request_: Request
):
    """Two recomputations of one input differ."""
    wavering(world)
    STEPS.steps = itertools.count()
    verification = verified(world, "one", request_)
    assert (verification.status, verification.suspect) == ("not_deterministic", "sum")


def test_one_that_wavers_only_sometimes_is_found_by_asking_twice(world: World):
    """The tables agree with the first recomputation, the second one differs."""
    wavering(world)
    once = [*itertools.repeat(0, 4), *itertools.repeat(5, 4)]
    STEPS.steps = iter(once)
    assert verified(world, "one", Request(twice=True)).status == "not_deterministic"
    STEPS.steps = iter(once)
    assert verified(world, "one").status == "equal"


def test_runs_under_way_do_not_matter_where_time_does_not(tmp_path: Path):
    """With input queued and a run under way, the last whole epochs are compared."""
    world = World(tmp_path, engine=LocalEngine, executor=Deferred(), verifier=Inline())
    world.controller.register(DIAMOND)
    seen, unrun = [], list[bool]()
    for number in range(5):
        world.arrive("diamond", "a", ("a", number))
        world.arrive("diamond", "b", ("a", 1), ("b", number))
        world.clock.advance(1)
        world.controller.tick()
        world.executor.run_next()  # type: ignore[attr-defined]
        before = world.store.position("diamond")
        verification = verified(world, "diamond")
        not_run = {one.table for one in verification.tables if "has not run" in one.because}
        assert verification.error is None
        assert verification.status == ("undecided" if not_run else "equal")
        unrun.append(bool(not_run))
        assert world.store.position("diamond") == before
        seen.append(tuple((verification.epochs or {}).values()))
    assert len(set(seen)) > 2
    assert unrun[0]
    assert not unrun[-1]
    assert unrun == sorted(unrun, reverse=True)
    world.close()


def test_a_dataflow_whose_epochs_depend_on_time_is_compared_at_rest(world: World):
    """While something is left to do: an error that says what, once the time is up."""
    stage = {**ONE["stages"]["sum"], "runnable": "run_any"}
    fed(world, {**ONE, "stages": {"sum": stage}})
    assert verified(world, "one").status == "equal"
    world.controller.pause("one")
    world.arrive("one", "a", ("a", 1))
    verification = verified(world, "one", Request(seconds_max=0.01))
    assert verification.error is not None
    assert (verification.status, verification.error["error_code"]) == (
        "failed",
        "dataflow_unsettled",
    )


def test_frames_and_histories_come_again(world: World):
    """Epoch by epoch, with the frames that punctuations closed."""
    document = {
        "name": "diff",
        "sources": {s: {"schema": "url STRING, time TIMESTAMP"} for s in "ab"},
        "stages": {"diff": {"translator": "set_diff", "inputs": {"a": "a", "b": "b"}}},
    }
    world.controller.register(document)
    for hour in range(3):
        for source, url in (("a", "x"), ("b", f"y{hour}")):
            when = world.clock().replace(hour=hour)
            records: list[Any] = [(url, when), (f"{source}{hour}", when)]
            world.arrive("diff", source, *records)
        world.clock.advance(1)
        world.ticks()
    for way in (Request(), Request(engine="reference")):
        verification = verified(world, "diff", way)
        assert (verification.status, verification.error) == ("equal", None)
        kinds = {v.table: (v.kind, v.status) for v in verification.tables}
        assert kinds["flows/diff.a_diff"] == ("history", "equal")
        assert sum(v.records for v in verification.tables if v.kind == "history") > 0


FRAMED: dict[str, Any] = {
    "name": "framed",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "keys": {"translator": "framed", "inputs": {"items": "a"}, "buckets": 2},
        "again": {"translator": "framed", "inputs": {"items": "keys.totals"}, "buckets": 2},
    },
}


def closed(world: World, flow: str, document: dict[str, Any] = FRAMED) -> World:
    """Frames that only a close of this flow ends, in the middle and at the end."""
    world.controller.register(document)
    for _ in range(2):
        for number in (1, 2, 2):
            world.arrive("framed", "a", ("a", number), ("b", number))
            world.ticks()
        world.controller.close("framed", flow)
        world.ticks()
    return world


@pytest.mark.part(every=2)
@EACH_WAY
def test_a_close_of_a_source_stands_where_it_stood(world: World, request_: Request):
    """In the middle and behind the last increment, also when increments are put together."""
    verification = verified(closed(world, "a"), "framed", request_)
    # All at once, a history has other epochs.
    status = "equal" if request_.split == "increments" else "undecided"
    assert (verification.status, verification.error) == (status, None)
    assert len(world.store.punctuations("framed").items) == 2
    assert world.store.next_index("framed", "keys.totals") == 4


@EACH_WAY
def test_a_close_of_a_stage_s_flow_stands_where_it_stood_or_is_refused(
    world: World, request_: Request
):
    """All at once that flow has other increments; nothing is said then."""
    verification = verified(closed(world, "keys.totals"), "framed", request_)
    if request_.split == "increments":
        assert (verification.status, verification.error) == ("equal", None)
        assert world.store.next_index("framed", "again.totals") > 1
    else:
        assert verification.error is not None
        assert (verification.status, verification.error["error_code"]) == (
            "failed",
            "punctuation_unplaced",
        )
        assert "--split increments" in str(verification.error["message"])
        assert {v.status for v in verification.tables} <= {"open", "undecided"}


def test_a_close_of_a_flow_that_depends_on_time_cannot_be_verified(world: World):
    """The refusal does not advise the split that was asked for."""
    keys = {**FRAMED["stages"]["keys"], "runnable": {"run_all": {"batch": 2}}}
    timed = {**FRAMED, "stages": {**FRAMED["stages"], "keys": keys}}
    verification = verified(closed(world, "keys.totals", timed), "framed")
    assert verification.error is not None
    assert verification.error["error_code"] == "punctuation_unplaced"
    assert "`cbp close framed SOURCE`" in str(verification.error["message"])


def test_time_that_is_up_ends_it_and_tells_how_far_it_came(world: World):
    """At the next run; nothing is said of tables that were not compared."""
    wavering(world)

    def wait() -> None:
        job = world.controller.verifications._job
        assert job is not None
        assert job.stop.wait(120)

    STEPS.asked = wait
    verification = verified(world, "one", Request(seconds_max=0.05))
    assert verification.status == "timed_out"
    assert {v.status for v in verification.tables} == {"open"}
    assert verification.total == 4
    assert verification.done < 4


def test_one_at_a_time_and_it_can_be_cancelled(tmp_path: Path):
    """A second one is refused by the first one's name, until that has ended."""
    verifier = Deferred()
    world = World(tmp_path, engine=LocalEngine, verifier=verifier)
    fed(world, ONE)
    first = world.controller.verifications.start("one", Request())
    with pytest.raises(VerificationBusyError) as busy:
        world.controller.verifications.start("one", Request())
    assert busy.value.details["verification"] == first.id
    world.controller.verifications.cancel(first.id)
    verifier.run_next()
    assert world.controller.verifications.show(first.id).status == "cancelled"
    second = world.controller.verifications.start("one", Request())
    verifier.run_next()
    assert [v.id for v in world.controller.verifications.all("one")] == [second.id, first.id]
    assert world.controller.verifications.show(second.id).status == "equal"
    for call in (world.controller.verifications.show, world.controller.verifications.cancel):
        with pytest.raises(NotFoundError):
            call("nobody")
    world.close()


def test_the_cancellation_of_an_ended_verification_does_nothing(world: World):
    """Nor does it leave a thread that waits for the end."""
    fed(world, ONE)
    ended, before = verified(world, "one"), set(threading.enumerate())
    assert world.controller.verifications.cancel(ended.id) == ended
    assert set(threading.enumerate()) <= before


def test_input_that_is_gone_is_named(world: World):
    """Source and increment, instead of a comparison with less."""
    fed(world, ONE)
    files = sorted((Path(world.store.dataflow("one").folder) / "sources/a").glob("*.parquet"))
    files[2].unlink()
    verification = verified(world, "one")
    assert verification.error is not None
    assert (verification.status, verification.error["error_code"]) == (
        "failed",
        "input_not_retained",
    )
    assert verification.error["details"] == {"dataflow": "one", "source": "a", "index": 2}


def test_the_reference_engine_takes_small_inputs_only(world: World):
    """It holds everything in memory: refused before it does."""
    fed(world, ONE)
    world.limits = LoopLimits(reference_records_max=5)
    world.restart()
    verification = verified(world, "one", Request(engine="reference"))
    assert verification.error is not None
    assert (verification.status, verification.error["error_code"]) == (
        "failed",
        "verification_too_large",
    )


def test_results_outlive_a_restart(world: World):
    """Equal and different ones, with every difference, newest first; they go with the dataflow."""
    wavering(world)
    before = [verified(world, "one")]
    STEPS.steps = itertools.repeat(1)
    before.insert(0, verified(world, "one"))
    assert [one.status for one in before] == ["differs", "equal"]
    world.restart()
    verifications = world.controller.verifications
    assert verifications.all("one") == before
    assert [verifications.show(one.id) for one in before] == before
    assert verifications.cancel(before[0].id) == before[0], "it has ended"
    after = verified(world, "one")
    assert verifications.all("one") == [after, *before]
    world.controller.delete("one")
    world.restart()
    with pytest.raises(NotFoundError):
        world.controller.verifications.show(before[0].id)


def test_one_that_a_restart_cuts_off_is_listed_with_what_to_do(tmp_path: Path):
    """While it is under way it is shown as such; a later result of its own takes the place."""
    verifier = Deferred()
    world = World(tmp_path, engine=LocalEngine, verifier=verifier)
    fed(world, ONE)
    cut_off = world.controller.verifications.start("one", Request())
    assert world.controller.verifications.show(cut_off.id).status == "waiting"
    world.restart()
    verifier.waiting.clear()  # it died with its process
    (shown,) = world.controller.verifications.all("one")
    assert shown.error is not None
    assert (shown.id, shown.status) == (cut_off.id, "failed")
    assert shown.error["error_code"] == "verification_interrupted"
    ended = world.controller.verifications.start("one", Request())
    verifier.run_next()
    world.restart()
    statuses = {one.id: one.status for one in world.controller.verifications.all("one")}
    assert statuses[ended.id] == "equal"
    world.close()


def test_a_result_that_cannot_be_kept_is_remembered(world: World, monkeypatch: pytest.MonkeyPatch):
    """By this process; the verification itself does not fail."""
    fed(world, ONE)

    def fail(*_: Any, **__: Any) -> None:
        raise OperatingError("the database is away")

    monkeypatch.setattr(world.store, "keep_verification", fail)
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("equal", None)
    assert world.controller.verifications.all("one") == [verification]


def test_what_it_wrote_goes_and_nothing_else_is_touched(world: World):
    """The scratch folder at its end, or at the next start; runs go on as before."""
    fed(world, DIAMOND)
    before = sorted(p for p in Path(world.tables).rglob("*") if p.is_file())
    verified(world, "diamond")
    assert sorted(p for p in Path(world.tables).rglob("*") if p.is_file()) == before
    left = Path(world.tables) / ".scratch-v1" / "1"
    left.mkdir(parents=True)
    world.restart()
    world.controller.recover()
    assert not left.parent.exists()
    world.arrive("diamond", "a", ("a", 1))
    world.arrive("diamond", "b", ("a", 1))
    world.ticks()
    assert {s.epoch for s in world.store.stages("diamond")} == {5}


@pytest.mark.timeout(60)
def test_what_hangs_is_left_alone(tmp_path: Path):
    """A translator that does not return holds neither its verdict nor the next verification."""
    let_go, hangs = threading.Event(), threading.Event()
    world = World(tmp_path, engine=LocalEngine, verifier=Threads("verify"))
    world.translators["wavering"] = Wavering
    world.restart()
    wavering(world)
    verifications = world.controller.verifications
    verifications._give_up_seconds = 0.05

    def hang() -> None:
        hangs.set()
        let_go.wait()

    STEPS.asked = hang
    begun = verifications.start("one", Request())
    assert hangs.wait(120)
    verifications.cancel(begun.id)
    hung = ended(world, begun.id)
    assert (hung.status, hung.step.rpartition("; ")[2]) == (
        "cancelled",
        "did not stop when asked to",
    )
    let_go.set()
    STEPS.asked = None
    again = ended(world, verifications.start("one", Request()).id)
    assert again.status == "equal"
    assert verifications.show(begun.id).status == "cancelled"
    world.close()


def ended(world: World, id_: str) -> Verification:
    until(lambda: world.controller.verifications.show(id_).ended)
    return world.controller.verifications.show(id_)


def test_one_that_may_not_clean_up_ends_all_the_same(world: World):
    """The instance that leads by now removes what it left."""
    fed(world, ONE)

    def deposed(point: str) -> None:
        if point == "clean_up.before":
            raise LeaseLostError(1, "another one leads")

    world.faults.to = deposed
    assert verified(world, "one").status == "equal"
    world.faults.to = NO_FAULTS
    assert any(p.name.startswith(".scratch-") for p in Path(world.tables).iterdir())
    assert verified(world, "one").status == "equal"


def test_a_table_file_that_is_collected_meanwhile_is_named(world: World):
    """No comparison with less."""
    fed(world, ONE)
    for file in (Path(world.store.dataflow("one").folder) / "flows/sum.totals").rglob("*.parquet"):
        file.unlink()
    verification = verified(world, "one")
    assert verification.error is not None
    assert (verification.status, verification.error["error_code"]) == ("failed", "file_lost")


def test_a_verification_without_a_timer_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started for its time limit, the next one is not refused for ever."""
    world = World(tmp_path, engine=LocalEngine)
    fed(world, ONE)

    def refuse(*_: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(verifications_module, "_after", refuse)
        assert verified(world, "one").status == "failed"
    assert verified(world, "one").status == "equal"
    world.close()


def test_a_verification_of_a_deleted_dataflow_is_not_that_of_the_next(tmp_path: Path) -> None:
    """Neither one that has ended, nor one that is under way at the deletion."""
    verifier = Deferred()
    world = World(tmp_path, engine=LocalEngine, verifier=verifier)
    fed(world, ONE)
    verifications = world.controller.verifications
    verifications.start("one", Request())
    verifier.run_next()
    verifications.start("one", Request())
    world.controller.delete("one", purge=True)
    world.controller.register(ONE)
    assert verifications.all("one") == []
    verifier.run_next()
    assert verifications.all("one") == []
    world.close()
