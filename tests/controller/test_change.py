"""A new version takes over on live data: what is kept, what begins, what a crash leaves."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Translate, TranslateRecords
from cbp.engine.collect import Retention
from cbp.engine.delta import tables
from cbp.engine.direct import LocalEngine
from cbp.engine.faults import NO_FAULTS, Crash, PlannedFaults
from cbp.errors import (
    ChangeRefusedError,
    CodeDriftedError,
    DataflowBusyError,
    DiskFullError,
    LogConflictError,
    NotFoundError,
)
from cbp.model.change import Choice
from controller.loop import housekeeping
from controller.loop.change import Changed
from tests.controller.world import SCHEMA, Deferred, Sum, World

POINTS = [
    f"{effect}.{side}"
    for effect in (
        "description", "log_entry", "data_file", "data_sync", "dead_record", "sql_commit",
    )
    for side in ("before", "after")
]  # fmt: skip


class Double(Translate):
    """Add up twice each number per word, and keep when in more columns."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n BIGINT, twice BOOLEAN")
    totals = Output("word STRING, n BIGINT, twice BOOLEAN", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(2 * r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n, twice=True)
        out.totals(word=key.word, n=n, twice=True)


class Fewer(Translate):
    """Keep numbers in fewer bits."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n SMALLINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Upgraded(Sum):
    """The same tables by other code."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        super().translate(key, group, out)


class Marked(TranslateRecords):
    """Write words as they are, and where they come from."""

    words = Input("word STRING, n BIGINT, mark STRING")
    capitals = Output("word STRING, n BIGINT")

    def translate(self, record: Any, out: Any) -> None:
        out.capitals(word=f"{record.word}{record.mark or ''}", n=record.n)


class Changing(World):
    """A world of the direct engine, with translators to change to."""

    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(root, engine=LocalEngine, collect_every=2, **more)
        self.translators |= {"double": Double, "fewer": Fewer, "marked": Marked}
        self.restart()

    def change(self, document: Any, *, dry_run: bool = False, **choice: Any) -> Changed:
        """Let a version take over; choices are lists of stages."""
        chosen = Choice(**{word: frozenset(names) for word, names in choice.items()})
        return self.controller.change(document, choice=chosen, dry_run=dry_run)

    def sums(self, stage: str = "sum") -> dict[str, int]:
        """Return the sums that a stage keeps."""
        record = self.store.dataflow("d")
        node = self.controller.dataflow("d").stages[stage]
        return {r["word"]: r["n"] for r in self.engine.read_state(record.folder, node, "sums")}

    def waiting(self, stage: str, input_: str = "items") -> list[int]:
        queue = self.store.connectors("d")[stage][input_].queue
        return [queued.increment.index for queued in queue]

    def epochs(self) -> dict[str, int]:
        return {stage.stage: stage.epoch for stage in self.store.stages("d")}


@pytest.fixture(scope="module", autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs: a crash inside a process loses nothing that was written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        # Positions are put and records removed all the time.
        patch.setattr(housekeeping, "RECORDS_KEPT", 1)
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path)
    yield made
    made.close()


def document(**stages: Any) -> dict[str, Any]:
    """Return a dataflow; a stage is a translator's name, or a mapping of what it has."""
    made = {}
    for name, given in stages.items():
        node = {"translator": given} if isinstance(given, str) else dict(given)
        node.setdefault("inputs", {"items": "a"})
        made[name] = {"buckets": 2, **node}
    return {"name": "d", "sources": {"a": {"schema": SCHEMA}}, "stages": made}


ONE = document(sum="sum")


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


def test_a_state_is_rebuilt_from_input_that_compaction_took_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old increments of a stage are found in its table, also by a store that was lost."""
    defaults = {**tables.open_table.__kwdefaults__, "checkpoint_interval": 4}  # type: ignore[dict-item]
    monkeypatch.setattr(tables.open_table, "__kwdefaults__", defaults)
    world = Changing(tmp_path, retention=Retention(1, 1, 0, 0))
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
    shown, _ = world.controller.read_flow("d", "sum.totals", cursor=None, limit=5)
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
    found = world.change(ONE)
    assert (found.version, found.changed, found.done) == (1, False, True)
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
    world.change(after)
    world.arrive("d", "a", ("new", 3, "!"))
    world.ticks()
    assert world.sums() == {"x": 1, "y": 1, "old": 2, "new": 3}
    words = Counter(row["word"] for row in world.flow("d", "up.capitals"))
    assert words == Counter(["X", "Y", "old", "new!"])


def test_a_package_upgraded_under_a_document_runs_only_if_its_tables_are_the_same(
    world: Changing,
) -> None:
    """Drifted code stops with the difference until it is registered again; else it goes on."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    world.translators["sum"] = Upgraded
    world.restart()
    world.controller.recover()
    world.arrive("d", "a", ("x", 2))
    world.ticks()
    assert world.sums() == {"x": 3}
    world.translators["sum"] = Double
    world.restart()
    world.controller.recover()
    world.arrive("d", "a", ("x", 4))
    files = sorted(Path(world.store.dataflow("d").folder).rglob("*.parquet"))
    world.ticks()
    words = world.controller.waiting("d")["sum"]
    assert "sum.sums: + twice BOOLEAN" in words
    assert "register its document again" in words
    assert sorted(Path(world.store.dataflow("d").folder).rglob("*.parquet")) == files
    with pytest.raises(CodeDriftedError):
        world.controller.look_up("d", "sum", "sums", {"word": "x"})
    world.change(ONE, keep=["sum"])
    world.ticks()
    assert world.sums() == {"x": 3 + 2 * 4}


def test_a_change_is_finished_only_by_the_code_it_was_planned_for(world: Changing) -> None:
    """Killed behind its commit and upgraded before the restart, it waits for what there was."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    world.faults.to = PlannedFaults("description.after")
    with pytest.raises(Crash):
        world.change(document(sum={"translator": "sum", "buckets": 8}))
    world.faults.to = NO_FAULTS
    for translator, left in ((Double, {"d"}), (Sum, set())):
        world.translators["sum"] = translator
        world.restart()
        world.controller.recover()
        assert world.controller.held.keys() == left
    assert world.store.dataflow("d").version == 2
    assert world.sums() == {"x": 1}
    world.controller.delete("d")
    world.translators["sum"] = Double
    world.restart()
    with pytest.raises(CodeDriftedError):
        world.controller.register(document(sum={"translator": "sum", "buckets": 8}))


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


VERSIONS = [
    (document(sum="sum", more="sum"), {}),
    (document(sum={"translator": "sum", "buckets": 8}, more="double"), {"keep": ["more"]}),
    (document(sum={"translator": "sum", "buckets": 4}), {"rebuild": ["sum"]}),
    (document(sum="sum", more="double", third="sum"), {"retained": ["third"]}),
]


def play(world: Changing, *faults: PlannedFaults) -> int:
    """Change from version to version with arrivals between; return the crashes."""
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
            world.controller.register(ONE)

    def arrive(index: int) -> None:
        if world.store.next_index("d", "a") <= index:
            world.arrive("d", "a", ("x", index), (f"w{index}", 1))

    attempt(register)
    for number, (version, choice) in enumerate(VERSIONS):
        attempt(lambda n=number: arrive(3 * n))
        attempt(world.ticks)
        attempt(lambda n=number: arrive(3 * n + 1))

        def change(number: int = number, version: Any = version, choice: Any = choice) -> None:
            if world.store.dataflow("d").version < number + 2:
                assert world.change(version, **choice).version == number + 2

        attempt(change)
        attempt(lambda n=number: arrive(3 * n + 2))
        attempt(world.ticks)
    world.faults.to = NO_FAULTS
    return crashes


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = Changing(tmp_path_factory.mktemp("unbroken"))
    play(world)
    assert world.sums()["x"] == sum(range(12))
    assert world.sums("third") == world.sums()
    assert world.sums("more") == {"x": 22, "w11": 2}
    picture = world.picture()
    world.close()
    return picture


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_of_a_change_a_restart_leads_to_the_same(
    point: str, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """At early and late passages of every durable effect: queues, epochs, tables of no crash."""
    world = Changing(tmp_path / "world")
    passages = (1, 3, 1, 2, 5, 1, 4, 8)
    assert play(world, *[PlannedFaults(point, passage=n) for n in passages]), f"{point}: never"
    assert world.picture() == unbroken
    world.close()


def test_a_lost_store_begins_with_the_newest_version(
    world: Changing, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """Descriptions and logs beside the tables bring back versions, queues and epochs."""
    play(world)
    world.arrive("d", "a", ("late", 1))
    late = world.picture()
    records = [item for item in world.store.increments("d", "a", limit=500).items]
    world.store.delete("d")
    world.restart()

    class FromMemory:
        """Brings back what a source's log would."""

        def prepare(self, record: Any, dataflow: Any) -> None:
            pass

        def recover(self, record: Any, dataflow: Any) -> None:
            for item in reversed(records):
                world.enqueue("d", item.increment)

    world.controller.arrivals = FromMemory()
    assert world.controller.rebuild() == ["d"]
    assert world.store.dataflow("d").version == len(VERSIONS) + 1
    assert world.picture() == late
    world.ticks()
    assert world.sums()["late"] == 1


def test_a_change_waits_for_runs_and_starts_none(tmp_path: Path) -> None:
    """What is under way ends under the version that began it; a slow run refuses the change."""
    deferred = Deferred()
    world = Changing(tmp_path, executor=deferred)
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.controller.tick()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.loop.versions.CHANGE_SECONDS", 0.01)
        with pytest.raises(DataflowBusyError):
            world.change(document(sum="sum", b="sum"))
    assert world.store.dataflow("d").version == 1
    deferred.run_next()
    world.change(document(sum="sum", b="sum"))
    assert world.sums() == {"x": 1}
    world.close()


def test_a_version_that_cannot_be_finished_starts_nothing_until_it_is(world: Changing) -> None:
    """Behind the commit point there is no way back: it is tried again until it succeeds."""
    world.controller.register(ONE)
    world.arrive("d", "a", ("x", 1))
    world.ticks()
    full = PlannedFaults("sql_commit.before", error=DiskFullError("here"))
    world.faults.to = full
    with pytest.raises(DiskFullError):
        world.change(document(sum="sum", b="sum"))
    world.arrive("d", "a", ("x", 2))
    for _ in range(2):
        world.faults.to = PlannedFaults("sql_commit.before", error=DiskFullError("here"))
        assert not world.controller.tick().starts
        assert "new version" in world.controller.waiting("d")["sum"]
    world.faults.to = NO_FAULTS
    world.ticks()
    assert world.sums() == {"x": 3}
    assert world.store.dataflow("d").version == 2


def test_another_controllers_version_deposes_this_one(world: Changing) -> None:
    """Two versions of one number are never both the truth: who comes second stops."""
    world.controller.register(ONE)
    folder = world.store.dataflow("d").folder
    path = f"{folder}/_description/{2:020d}.json"
    world.files.put_if_absent(path, b'{"format": 1, "version": 2, "document": {}}')
    with pytest.raises(LogConflictError):
        world.change(document(sum="sum", b="sum"))
    assert "another controller" in world.controller.problem
    assert world.store.dataflow("d").version == 1
