"""A new version takes over on live data: what is kept, what begins, what is refused."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import (
    ChangeRefusedError,
    CodeDriftedError,
    DataflowBusyError,
    FileDamagedError,
    NotFoundError,
)
from cbp.model.verification import Request
from controller.loop.records.version_log import path_of
from controller.store.base import RunRecord
from tests.controller.changing import KEEPING_HOUSE, ONE, Changing, Double, Upgraded, document
from tests.controller.damaging import flip
from tests.controller.world import SCHEMA, Deferred, Sum

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path)
    yield made
    made.close()


def test_stages_come_and_go_while_others_keep_state_and_queues(world: Changing) -> None:
    """An added stage begins with the next increment; a kept one misses and repeats none."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    world.arrive("d", "a", ("x", 2), ("y", 5))
    changed = world.change(document(sum="sum", more="sum"))
    assert (changed.version, changed.done) == (2, True)
    assert world.store.dataflow("d").version == 2
    assert (world.waiting("sum"), world.waiting("more")) == ([1], [])
    world.arrive("d", "a", ("y", 10))
    world.ticks()
    assert world.sums() == {"x": 3, "y": 15}
    assert world.sums("more") == {"y": 10}
    world.arrive("d", "a", ("z", 1))
    dropped = world.change(document(more="sum")).succession.queues
    assert [(q.stage, [i.index for i in q.dropped]) for q in dropped] == [("sum", [3])]
    assert set(world.store.connectors("d")) == {"more"}
    world.ticks()
    assert world.sums("more") == {"y": 10, "z": 1}
    world.restart()
    world.controller.recover()
    world.arrive("d", "a", ("z", 1))
    world.ticks()
    assert world.sums("more") == {"y": 10, "z": 2}


def test_a_stage_that_comes_back_begins_empty_and_repeats_no_name(world: Changing) -> None:
    """Its epochs and increments go on by number, so no record is ever put twice."""
    world.controller.register(document(sum="sum", more="sum"))
    for n in range(3):
        world.arrive("d", "a", ("x", n))
        world.ticks()
    world.change(ONE)
    world.arrive("d", "a", ("x", 10))
    world.ticks()
    world.change(document(sum="sum", more="sum"))
    assert world.epochs() == {"sum": 4, "more": 3}
    assert world.sums("more") == {}
    world.arrive("d", "a", ("x", 7))
    world.ticks()
    assert world.sums("more") == {"x": 7}
    assert world.sums() == {"x": 20}
    newest = world.store.increments("d", "more.totals", limit=1).items[0].increment
    assert newest.index == 3


def test_a_description_that_was_damaged_since_it_was_read_is_no_basis_of_a_version(
    world: Changing,
) -> None:
    """The file is read again, although this process knows what it said."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    record = world.store.dataflow("d")
    path = Path(path_of(record.folder, 1))
    whole = path.read_bytes()
    flip(path)
    with pytest.raises(FileDamagedError):
        world.change(document(sum="sum", more="sum"))
    assert world.store.dataflow("d").version == 1
    path.write_bytes(whole)
    world.ticks()
    assert world.change(document(sum="sum", more="sum")).version == 2


def test_an_added_stage_may_begin_with_the_retained_input(world: Changing) -> None:
    """Chosen: it reads everything from the first increment on, also of a stage's flow."""
    world.controller.register(ONE)
    for n in (1, 2):
        world.arrive("d", "a", ("x", n))
        world.ticks()
    after = document(
        sum="sum", all="sum", behind={"translator": "sum", "inputs": {"items": "sum.totals"}}
    )
    plan = world.change(after, dry_run=True, retained=["all", "behind"])
    assert {q.stage: len(q.queued) for q in plan.succession.queues} == {"all": 2, "behind": 2}
    assert world.store.dataflow("d").version == 1
    world.change(after, retained=["all", "behind"])
    world.arrive("d", "a", ("x", 4))
    world.ticks()
    assert world.sums("all") == {"x": 7}
    assert world.sums("behind") == {"x": 1 + 3 + 7}


def test_a_replaced_stage_keeps_its_state_or_makes_it_again(world: Changing) -> None:
    """Kept: old records go on, null in what is new. Rebuilt: as if it had always been so."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1), ("y", 1))
    world.ticks()
    with pytest.raises(ChangeRefusedError) as refused:
        world.change(document(sum="double"))
    assert [m.code for m in refused.value.mistakes] == ["state_undecided"]
    world.change(document(sum="double"), keep=["sum"])
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    assert world.sums() == {"x": 3, "y": 1}
    world.change(document(sum="double"), rebuild=["sum"])
    assert world.sums() == {}
    world.ticks()
    assert world.sums() == {"x": 4, "y": 2}


def test_a_stage_without_an_epoch_takes_new_code_without_a_question(world: Changing) -> None:
    """It has no state to decide about; what waits for it is read once, by the new code."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1), ("y", 1))
    world.change(document(sum="double"))
    world.ticks()
    assert world.sums() == {"x": 2, "y": 2}
    with pytest.raises(ChangeRefusedError) as refused:
        world.change(ONE)
    assert "state_undecided" in [m.code for m in refused.value.mistakes]


def test_a_state_is_rebuilt_only_from_all_of_its_input(world: Changing) -> None:
    """From what is left of its input the state would be another one: refused, by name."""
    world.controller.register(ONE)
    for n in (1, 2):
        world.arrive("d", "a", ("x", n))
        world.ticks()
    folder = world.store.dataflow("d").folder
    os.remove(f"{folder}/{world.store.increment('d', 'a', 0).increment.files[0].path}")
    before = world.picture()
    with pytest.raises(ChangeRefusedError) as refused:
        world.change(ONE, rebuild=["sum"])
    assert [m.code for m in refused.value.mistakes] == ["input_not_retained"]
    assert world.picture() == before


@pytest.mark.soak
def test_a_state_is_rebuilt_from_input_that_compaction_took_up(tmp_path: Path) -> None:
    """Old increments of a stage are found in its table, also by a store that was lost."""
    often = EngineLimits(checkpoint_entries=4)
    world = Changing(tmp_path, retention=Retention(1, 1, 0, 0), engine_limits=often)
    behind = {"translator": "sum", "inputs": {"items": "sum.totals"}}
    both = document(sum="sum", behind=behind)
    world.controller.register(both)
    for n in range(24):
        world.clock.advance(1)
        world.arrive("d", "a", (f"w{n % 3}", n))
        world.ticks()
    before, folder = world.sums("behind"), world.store.dataflow("d").folder
    first = world.store.increment("d", "sum.totals", 0).increment
    assert not Path(folder, first.files[0].path).exists(), "it is in a larger file"
    world.change(both, rebuild=["behind"])
    assert world.sums("behind") == {}
    world.store.delete("d")
    world.restart()
    world.controller.register(both)
    assert world.waiting("behind") == list(range(24))
    world.ticks()
    assert world.sums("behind") == before
    shown, _ = world.controller.reading.read_flow("d", "sum.totals", cursor=None, limit=5)
    assert [row["n"] for row in shown] == [0, 1, 2, 3, 5]
    world.close()


def test_what_would_lose_values_is_refused_and_leaves_no_trace(world: Changing) -> None:
    """The difference is shown by its column, and no file, version or queue is another one."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    folder = Path(world.store.dataflow("d").folder)
    before, files = world.picture(), sorted(folder.rglob("*"))
    with pytest.raises(ChangeRefusedError) as refused:
        world.change(document(sum="fewer"), keep=["sum"])
    assert "n BIGINT -> SMALLINT (narrowed)" in refused.value.message
    assert (world.picture(), sorted(folder.rglob("*"))) == (before, files)
    assert world.store.dataflow("d").version == 1


def test_an_output_that_comes_back_never_hides_columns(world: Changing) -> None:
    """A stage of an old name may not write other columns behind its old increments."""
    world.controller.register(document(sum="sum", more="double"))
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    world.change(ONE)
    world.change(document(sum="sum", between="sum"))
    other = document(sum="sum", more="sum")
    with pytest.raises(ChangeRefusedError) as refused:
        world.change(other)
    (mistake,) = refused.value.mistakes
    assert (mistake.code, mistake.where) == ("schema_incompatible", "stages.more.outputs.totals")
    assert "- twice BOOLEAN" in mistake.message
    assert world.change(other, dry_run=True).plan.refused == (mistake,)
    assert world.store.dataflow("d").version == 3
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    assert world.sums() == {"x": 2}


def test_the_same_document_again_changes_nothing(world: Changing) -> None:
    """A repeated request finds its version there."""
    world.controller.register(ONE)
    actual = world.change(ONE)
    assert (actual.version, actual.changed, actual.done) == (1, False, True)
    assert world.change(document(sum="sum", b="sum")).version == 2
    assert world.change(document(sum="sum", b="sum")).version == 2
    with pytest.raises(NotFoundError):
        world.change({**ONE, "name": "other"})


def test_buckets_columns_and_sources_change_on_live_data(world: Changing) -> None:
    """A source's new column is null in what arrived before and still waits."""
    first = document(up={"translator": "upper", "inputs": {"words": "a"}}, sum="sum")
    world.controller.register(first)
    world.arrive("d", "a", ("x", 1), ("y", 1))
    world.ticks()
    world.controller.pause_stage("d", "up")
    world.arrive("d", "a", ("old", 2))
    world.ticks()
    after = copy.deepcopy(first)
    after["sources"]["a"]["schema"] = f"{SCHEMA}, mark STRING"
    after["stages"]["up"]["translator"] = "marked"
    after["stages"]["sum"]["buckets"] = 16
    world.change(after, keep=["up"])
    world.arrive("d", "a", ("new", 3, "!"))
    world.ticks()
    assert world.sums() == {"x": 1, "y": 1, "old": 2, "new": 3}
    assert {row["word"] for row in world.flow("d", "up.capitals")} == {"X", "Y"}  # still paused
    world.controller.resume_stage("d", "up")
    world.ticks()
    words = Counter(row["word"] for row in world.flow("d", "up.capitals"))
    assert words == Counter(["X", "Y", "old", "new!"])


def test_a_package_upgraded_under_a_document_runs_once_it_is_registered_again(
    world: Changing,
) -> None:
    """One version is one code: any other stops with the difference, and nothing is written."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    total = 1
    for translator, told in ((Upgraded, ".Upgraded"), (Double, "sum.sums: + twice BOOLEAN")):
        world.translators["sum"] = translator
        world.restart()
        world.controller.recover()
        world.arrive("d", "a", ("x", 2))
        files = sorted(Path(world.store.dataflow("d").folder).rglob("*.parquet"))
        world.ticks()
        words = world.controller.waiting("d")["sum"]
        assert told in words
        assert "Register the document again" in words
        assert sorted(Path(world.store.dataflow("d").folder).rglob("*.parquet")) == files
        with pytest.raises(CodeDriftedError):
            world.controller.verifications.start("d", Request())
        if translator is Upgraded:  # it has the same tables, so what they hold is read
            world.controller.reading.look_up("d", "sum", "sums", {"word": "x"})
        else:
            with pytest.raises(CodeDriftedError):
                world.controller.reading.look_up("d", "sum", "sums", {"word": "x"})
        with pytest.raises(ChangeRefusedError):
            world.change(ONE)
        world.change(ONE, keep=["sum"])
        world.ticks()
        total += 2 if translator is Upgraded else 4
        assert world.sums() == {"x": total}
    actual = [world.controller.explaining.run(r.id) for r in world.store.runs("d").items]
    assert sorted(one.version for one in actual) == [1, 2, 3]
    assert len({one.codes["sum"] for one in actual}) == 3


def test_a_run_whose_stage_is_removed_meanwhile_is_not_found(
    world: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version removes the stage and its runs while one of these is explained."""
    world.controller.register(document(sum="sum", more="sum"))
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    read, (run,) = world.store.run, world.store.runs("d", stage="more").items

    def changed_meanwhile(id_: str) -> RunRecord:
        found = read(id_)
        world.change(document(sum="sum"))
        return found

    monkeypatch.setattr(world.store, "run", changed_meanwhile)
    with pytest.raises(NotFoundError, match=run.id):
        world.controller.explaining.run(run.id)


def test_code_that_drifted_stops_the_stages_that_run_it_alone(world: Changing) -> None:
    """What others run is what it was; where tables are others, all stop."""
    stages = {
        "up": {"translator": "upper", "inputs": {"words": "a"}, "fuse": False},
        "sum": {"translator": "sum", "inputs": {"items": "up.capitals"}, "fuse": False},
        "beside": {"translator": "upper", "inputs": {"words": "a"}, "fuse": False},
        "down": {"translator": "upper", "inputs": {"words": "sum.totals"}, "fuse": False},
    }
    document = {**ONE, "stages": stages}
    world.controller.register(document)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    world.translators["sum"] = Upgraded
    world.restart()
    world.controller.recover()
    world.arrive("d", "a", ("x", 2))
    world.ticks()
    epochs = {stage.stage: stage.epoch for stage in world.store.stages("d")}
    assert epochs == {"up": 2, "sum": 1, "beside": 2, "down": 1}
    stopped = {n: wait.error for n, wait in world.controller.waits("d").items() if wait.error}
    assert stopped.keys() == {"sum"}
    assert isinstance(stopped["sum"], CodeDriftedError)
    assert "Register the document again" in world.controller.waiting("d")["sum"]
    world.change(document, keep=["sum"])
    world.ticks()
    assert {stage.epoch for stage in world.store.stages("d")} == {2}
    world.translators["sum"] = Double
    world.restart()
    world.controller.recover()
    world.arrive("d", "a", ("x", 3))
    world.ticks()
    assert {stage.epoch for stage in world.store.stages("d")} == {2}
    stopped = {n: wait.error for n, wait in world.controller.waits("d").items() if wait.error}
    assert stopped.keys() == stages.keys()


def test_the_code_of_a_version_of_an_earlier_release_is_adopted_once(world: Changing) -> None:
    """Its fingerprints are of another scheme: it goes on, and from then on it is compared."""
    world.controller.register(ONE)
    path = path_of(world.store.dataflow("d").folder, 1)
    value = json.loads(Path(path).read_text())
    value["shape"]["stages"]["sum"]["code"] = "0123456789abcdef"
    Path(path).write_text(json.dumps(value))
    for translator, sums in ((Upgraded, 1), (Upgraded, 2), (Sum, 2)):
        world.translators["sum"] = translator
        world.restart()
        world.controller.recover()
        world.arrive("d", "a", ("x", 1))
        world.ticks()
        assert world.sums() == {"x": sums}
    assert "the loaded code differs from version 1" in world.controller.waiting("d")["sum"]


def test_who_leads_may_change_and_no_flow_has_a_gap(world: Changing) -> None:
    """Fused stages part, go on by their own epochs, and what was apart stays apart."""
    up = {"translator": "upper", "inputs": {"words": "a"}}
    behind = {"translator": "sum", "inputs": {"items": "up.capitals"}}
    fused = document(up=up, sum=behind)
    apart = document(up={**up, "fuse": False}, sum=behind)
    world.controller.register(fused)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    assert world.epochs() == {"up": 1}
    world.change(apart)
    assert world.epochs() == {"up": 1, "sum": 1}
    world.arrive("d", "a", ("x", 2))
    world.ticks()
    world.restart()
    world.controller.recover()
    world.arrive("d", "a", ("y", 4))
    world.ticks()
    assert world.epochs() == {"up": 3, "sum": 3}
    assert world.sums() == {"X": 3, "Y": 4}
    world.change(fused)
    assert world.epochs() == {"up": 3, "sum": 3}
    world.arrive("d", "a", ("x", 8))
    world.ticks()
    assert world.sums() == {"X": 11, "Y": 4}
    world.change(document(sum={"translator": "sum"}))
    world.arrive("d", "a", ("X", 16))
    world.ticks()
    assert world.sums() == {"X": 27, "Y": 4}
    assert world.epochs() == {"sum": 5}


def test_a_stage_is_rebuilt_behind_one_that_it_ran_with(world: Changing) -> None:
    """All that the other one ever wrote is read again, and each record counts once."""
    up = {"translator": "upper", "inputs": {"words": "a"}}
    fused = document(up=up, sum={"translator": "sum", "inputs": {"items": "up.capitals"}})
    world.controller.register(fused)
    for n in (1, 2):
        world.arrive("d", "a", ("x", n))
        world.ticks()
    world.change(fused, rebuild=["sum"])
    world.ticks()
    assert world.sums() == {"X": 3}
    world.arrive("d", "a", ("x", 4))
    world.ticks()
    assert world.sums() == {"X": 7}


def test_a_change_waits_for_runs_and_starts_none(tmp_path: Path) -> None:
    """What is under way ends under the version that began it; a slow run refuses the change."""
    deferred = Deferred()
    hasty = replace(KEEPING_HOUSE, change_seconds=0.01)
    world = Changing(tmp_path, executor=deferred, limits=hasty)
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.controller.tick()
    with pytest.raises(DataflowBusyError):
        world.change(document(sum="sum", b="sum"))
    assert world.store.dataflow("d").version == 1
    deferred.run_next()
    world.change(document(sum="sum", b="sum"))
    assert world.sums() == {"x": 1}
    world.close()
