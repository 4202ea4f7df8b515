"""Sinks that are Delta tables: a flow appended once, a view mirrored, by three readers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbp import Input, Translate, View
from controller.loop import LoopLimits
from tests.controller.lost import lose_the_store
from tests.controller.sinks import sunk
from tests.controller.world import Inline, World
from tests.planned_faults import PlannedFaults
from tests.sampling import examples

pytestmark = pytest.mark.usefixtures("without_syncs")


class Doubled(sunk.Counts):
    """Count twice."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(2 * r.n for r in group.items) + sum(r.n for r in group.counts)
        if n:
            out.counts(word=key.word, n=n)


VIEW = "sum.counts"
APPENDED: dict[str, Any] = {"flow": VIEW, "to": "delta", "path": "changes"}
MIRRORED: dict[str, Any] = {"view": VIEW, "to": "delta", "path": "counts"}
BOTH = {"changes": APPENDED, "counts": MIRRORED}
Row = tuple[Any, ...]


def view_of(world: World) -> list[Row]:
    record, dataflow = world.store.dataflow("one"), world.controller.dataflow("one")
    node = dataflow.stages["sum"]
    rows = world.engine.records.read_state(record.folder, node, "counts")
    return sorted((one["word"], one["n"]) for one in rows)


def mirrored(world: World, folder: str = "counts") -> list[Row]:
    path = str(world.root / "out" / folder)
    return sorted(polars.read_delta(path).select("word", "n").rows())


def appended(world: World, folder: str = "changes") -> list[dict[str, Any]]:
    """Return the records without their numbers, in the order of the flow."""
    table = DeltaTable(str(world.root / "out" / folder)).to_pyarrow_table().to_pylist()
    table.sort(key=lambda one: one["_increment"])
    return [{k: v for k, v in one.items() if k[0] != "_"} for one in table]


def sums(records: Sequence[dict[str, Any]]) -> dict[Any, int]:
    """Return the records whose signs do not cancel out."""
    totals: dict[Any, int] = {}
    for one in records:
        key = one["word"], one["n"]
        totals[key] = totals.get(key, 0) + one["sign"]
    return {key: total for key, total in totals.items() if total}


def bring(world: World, *records: tuple[str, int]) -> None:
    world.arrive("one", "a", *records)
    world.ticks()


def check(world: World) -> None:
    """Both tables are what they should be, which is not nothing."""
    flow = sunk.flow_of(world, VIEW)
    assert len(flow) > 3
    assert sorted(map(repr, appended(world))) == sorted(map(repr, flow))
    assert mirrored(world) == view_of(world)
    assert sums(appended(world)) == dict.fromkeys(mirrored(world), 1)


def test_three_readers_see_the_flow_and_the_view(tmp_path: Path) -> None:
    """With updates and deletions; Spark reads them in `tests/spark/test_sinks_on_spark.py`."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(BOTH))
    check(world)
    path = str(tmp_path / "out/counts")
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT word, n FROM t")
    assert sorted(tuple(row.values()) for row in pa.table(query).to_pylist()) == mirrored(world)
    counts = DeltaTable(path).to_pyarrow_dataset()  # DuckDB finds it by its name
    assert counts is not None
    found = duckdb.sql("SELECT word, n FROM counts")
    assert found is not None
    assert sorted(found.fetchall()) == mirrored(world)
    assert ("a", 0) not in mirrored(world)
    assert [word for word, _ in mirrored(world)] == ["b", "c"]
    world.close()


class Pairs(Translate):
    """Add up by word and by another column, which can be null; what comes to 0 is taken out."""

    items = Input("word STRING, n BIGINT", route_by="word")
    pairs = View("word STRING, day DATE, n BIGINT", key="word, day")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """See the class."""
        sums = {row.day: row.n for row in group.pairs}
        for item in group.items:
            day = date(2026, 1, abs(item.n)) if abs(item.n) < 4 else None
            sums[day] = sums.get(day, 0) + item.n
        for day, n in sums.items():
            if n:
                out.pairs(key.word, day, n)


def test_a_key_of_several_columns_is_merged_by_all_of_them(tmp_path: Path) -> None:
    """Each record changes that of its key only, also where a column of the key is null."""
    world = sunk.sink_world(tmp_path)
    world.translators["pairs"] = Pairs
    world.restart()
    sink = {"view": "sum.pairs", "to": "delta", "path": "counts"}
    world.controller.register(sunk.document({"counts": sink}, translator="pairs"))
    sinks = sunk.sinks_of(world)
    for records in ([("a", 1), ("a", 2), ("b", 1), ("b", 9)], [("a", 1), ("b", 9)], [("a", -2)]):
        bring(world, *records)
        sunk.publish(world, sinks)
    table = polars.read_delta(str(tmp_path / "out/counts"))
    january = date(2026, 1, 1)
    assert sorted(table.rows(), key=str) == sorted(
        [("a", january, 2), ("b", january, 1), ("b", None, 18)], key=str
    )
    world.close()


POINTS = [
    (f"{effect}.{side}", passage)
    for effect, passages in (("sink_table", (1, 3, 4, 7)), ("sink_note", (2, 5, 9)))
    for side in ("before", "after")
    for passage in passages
]


@pytest.mark.part(every=8, first=1)
@pytest.mark.parametrize(("point", "passage"), POINTS)
def test_a_crash_anywhere_leaves_every_increment_once(
    tmp_path: Path, point: str, passage: int
) -> None:
    """Before and behind each commit and each note, also of the first commit of a mirror."""
    world = sunk.sink_world(tmp_path)
    faults = PlannedFaults(point, passage=passage), PlannedFaults(point)
    assert sunk.play(world, sunk.viewed(BOTH), *faults) == 2
    check(world)
    world.close()


@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    arrivals=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2)), max_size=4),
        min_size=1,
        max_size=5,
    ),
    passes=st.sets(st.integers(0, 4)),
)
def test_any_split_of_passes_gives_the_view(
    tmp_path_factory: pytest.TempPathFactory,
    arrivals: Sequence[Sequence[tuple[str, int]]],
    passes: set[int],
) -> None:
    """Wherever the mirror begins, and whatever is deleted and comes again."""
    world = sunk.sink_world(tmp_path_factory.mktemp("world"))
    world.controller.register(sunk.viewed(BOTH))
    for number, records in enumerate(arrivals):
        bring(world, *records)
        if number in passes:
            sunk.publish(world)
    sunk.publish(world)
    assert mirrored(world) == view_of(world)
    flow = sunk.flow_of(world, VIEW)
    assert sorted(map(repr, appended(world))) == sorted(map(repr, flow))
    world.close()


def test_a_redo_commits_nothing(tmp_path: Path) -> None:
    """Passes that find nothing new, and a lost database, leave the versions as they are."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(BOTH))
    versions = [DeltaTable(str(tmp_path / "out" / f)).version() for f in ("changes", "counts")]
    sunk.publish(world)
    lost = lose_the_store(world, tmp_path / "new", {"a": len(sunk.ARRIVALS)})
    world.close()
    world, lost.root = lost, tmp_path
    sunk.publish(world)
    assert versions == [
        DeltaTable(str(tmp_path / "out" / f)).version() for f in ("changes", "counts")
    ]
    check(world)
    bring(world, ("z", 5))
    sunk.publish(world)
    check(world)
    world.close()


@pytest.mark.parametrize("choice", ["rewrite", "keep"])
def test_after_a_roll_back_the_mirror_follows_and_the_flow_waits_for_a_choice(
    tmp_path: Path, choice: str
) -> None:
    """A mirror is what the view is; what was appended is known by increment and generation."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(BOTH))
    before = appended(world)
    roll_back = world.controller.amendments.roll_back
    roll_back("one", "sum:1", who="me", why="a test", drop_later=True)
    bring(world, ("new", 7))
    assert view_of(world) == [("a", 6), ("b", 2), ("new", 7)]  # c never came, a never went
    sunk.publish(world)
    assert mirrored(world) == view_of(world)
    assert ("new", 7) in mirrored(world)
    assert sunk.code(world, "changes") == "sink_rolled_back"
    assert appended(world) == before
    world.store.want_sink("one", "changes", choice=choice)
    sunk.publish(world)
    assert sunk.code(world, "changes") == ""
    if choice == "rewrite":
        check(world)
        history = DeltaTable(str(world.root / "out" / "changes")).history()
        (deleted,) = (one for one in history if one["operation"] == "DELETE")
        # A range, since a term for each of very many increments exhausts the stack of delta-rs.
        assert " OR " not in deleted["operationParameters"]["predicate"]
    else:
        assert len(appended(world)) > len(before)
    world.close()


@pytest.mark.parametrize("sink", BOTH)
def test_a_roll_back_undoes_what_a_crash_left_ahead_of_the_note(tmp_path: Path, sink: str) -> None:
    """The target has an increment of which the note knows nothing, and it is no longer true."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(BOTH))
    world.clock.advance(1)  # so it came after the moment that is gone back to
    bring(world, ("late", 9))
    sunk.crash_before_the_note(world, sink)
    words = {"changes": [one["word"] for one in appended(world)], "counts": mirrored(world)}
    assert {"late", ("late", 9)} & {*words[sink]}
    roll_back = world.controller.amendments.roll_back
    roll_back("one", "sum:4", who="me", why="a test", drop_later=True)
    bring(world, ("new", 7))
    sunk.publish(world)
    if sink == "changes":
        assert sunk.code(world, sink) == "sink_rolled_back"
        world.store.want_sink("one", sink, choice="rewrite")
        sunk.publish(world)
    check(world)
    assert mirrored(world) == [("b", 3), ("c", 3), ("new", 7)]
    world.close()


def test_a_mirror_follows_swaps_and_returns(tmp_path: Path) -> None:
    """A mirror has what the view shows, also after two swaps without a run in between."""
    world = sunk.sink_world(tmp_path, verifier=Inline(), limits=LoopLimits())
    world.translators["doubled"] = Doubled
    world.restart()
    plain = sunk.viewed({"counts": MIRRORED})
    doubled = sunk.document({"counts": MIRRORED}, translator="doubled")
    world.controller.register(plain)
    for number in range(3):
        bring(world, ("a", number), (f"w{number}", 1))
    sinks, jobs = sunk.publish(world), world.controller.rebuild_jobs

    def swap(wanted: dict[str, Any]) -> None:
        jobs.swap("one", jobs.start(wanted, world.controller.validate(wanted)).id)

    def look(n: int) -> None:
        sunk.publish(world, sinks)
        assert mirrored(world) == view_of(world)
        assert ("a", n) in mirrored(world)

    look(3)
    swap(doubled)
    look(6)
    jobs.swaps.back("one")
    look(3)
    swap(doubled)
    look(6)
    swap(plain)
    look(3)
    bring(world, ("a", 4))
    look(7)
    swap(doubled)
    bring(world, ("a", 5))
    look(24)
    jobs.swaps.back("one")
    world.ticks()
    look(12)
    world.close()


def test_a_foreign_change_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    """Not what lays files out anew; a mirror can be rewritten, a flow goes on by `keep`."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(BOTH))
    for folder in ("changes", "counts"):
        table = DeltaTable(str(tmp_path / "out" / folder))
        table.optimize.compact()
    bring(world, ("y", 5))
    sunk.publish(world)
    check(world)
    rows = pa.table({"word": ["foreign"], "n": pa.array([1], pa.int64())})
    write_deltalake(str(tmp_path / "out/counts"), rows, mode="append")
    DeltaTable(str(tmp_path / "out/changes")).delete("word = 'a'")
    bring(world, ("z", 5))
    versions = [DeltaTable(str(tmp_path / "out" / f)).version() for f in ("changes", "counts")]
    sunk.publish(world)
    assert [sunk.code(world, sink) for sink in BOTH] == ["sink_target_foreign"] * 2
    assert versions == [
        DeltaTable(str(tmp_path / "out" / f)).version() for f in ("changes", "counts")
    ]
    world.store.want_sink("one", "counts", choice="rewrite")
    world.store.want_sink("one", "changes", choice="keep")
    sunk.publish(world)
    assert mirrored(world) == view_of(world)
    assert [sunk.code(world, sink) for sink in BOTH] == ["", ""]
    assert {"word": "z", "n": 5} in [
        {"word": one["word"], "n": one["n"]} for one in appended(world)
    ]
    world.close()


def test_a_table_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A table that was there before, and files beside none."""
    world = sunk.sink_world(tmp_path)
    rows = pa.table({"word": ["mine"], "n": pa.array([1], pa.int64())})
    write_deltalake(str(tmp_path / "out/counts"), rows)
    (tmp_path / "out/changes").mkdir()
    (tmp_path / "out/changes/mine.txt").write_text("x")
    sunk.play(world, sunk.viewed(BOTH))
    assert [sunk.code(world, sink) for sink in BOTH] == ["sink_target_foreign"] * 2
    assert mirrored(world) == [("mine", 1)]
    world.close()


def test_a_second_writer_at_the_same_moment_is_refused(tmp_path: Path) -> None:
    """A former leader that woke up too late finds its version taken, and commits nothing."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.viewed(BOTH))
    bring(world, ("a", 1), ("b", 2))
    sunk.publish(world)
    bring(world, ("a", 2))
    late: list[str] = []

    def overtaken(point: str) -> None:
        if point == "sink_table.before" and not late:
            late.append(point)
            sunk.publish(world)  # the new leader, meanwhile

    world.faults.to = overtaken
    sunk.publish(world)
    assert late
    world.faults.to = lambda point: None
    world.clock.advance(60)
    bring(world, ("c", 1))
    sunk.publish(world)
    assert [sunk.code(world, sink) for sink in BOTH] == ["", ""]
    check(world)
    world.close()


def test_a_note_of_a_restored_back_up_is_behind_its_tables(tmp_path: Path) -> None:
    """Increments of the same numbers may hold something else by then: none is taken for done."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(BOTH))
    notes = list(Path(world.tables).glob("one/_sinks/*.json"))
    assert len(notes) == 2
    kept = {path: path.read_bytes() for path in notes}
    for word in "xyz":
        bring(world, (word, 1))
        sunk.publish(world)
    for path, data in kept.items():
        path.write_bytes(data)
    bring(world, ("w", 1))
    sunk.publish(world)
    assert [sunk.code(world, sink) for sink in BOTH] == ["sink_target_foreign"] * 2
    world.store.want_sink("one", "counts", choice="rewrite")
    sunk.publish(world)
    assert mirrored(world) == view_of(world)
    assert ("w", 1) in mirrored(world)
    world.close()
