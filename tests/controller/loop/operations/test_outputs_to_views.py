"""An output becomes a view by a new version: filled from its flow, or rebuilt; never in part."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import Input, Output, State, Translate, View
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import ChangeRefusedError, RollbackImpossibleError
from cbp.model.flow.position import Position
from cbp.model.run.intention import TableChange
from cbp.model.verification import Request
from controller.loop import DEFAULT_LOOP_LIMITS
from controller.loop.records.version_log import Begin
from tests.change_feeds import feed_by_delta_rs, require_exact, versions_of
from tests.controller.changing import POINTS, Changing, document
from tests.controller.retained import TINY
from tests.controller.verified import verified
from tests.controller.world import SCHEMA, Inline
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


class Viewed(Translate):
    """Adds up numbers per word; what was a state and an output is one view."""

    items = Input(SCHEMA, route_by="word")
    totals = View(SCHEMA, key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add; a sum of zero is no record."""
        n = sum(row.n for row in (*group.items, *group.totals))
        if n:
            out.totals(key.word, n)


class Last(Translate):
    """Keeps the last total of each word, from the records of an output."""

    totals = Input(SCHEMA, route_by="word")
    lasts = State(SCHEMA)
    seen = Output(SCHEMA, key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep the last one."""
        last = [*group.lasts, *group.totals][-1]
        out.lasts(*last)
        out.seen(*last)


class LastOfChanges(Last):
    """The same, from the new records of a view."""

    totals = Input(SCHEMA, route_by="word", changes="after")


class PerTotal(Translate):
    """Counts the words of each total, from the records of an output: wrong, as it cannot undo."""

    moved = Input("n BIGINT", route_by="n")
    counts = State("n BIGINT, words BIGINT")
    seen = Output("n BIGINT, words BIGINT", key="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count."""
        words = sum(row.words for row in group.counts) + sum(1 for _ in group.moved)
        out.counts(key.n, words)
        out.seen(key.n, words)


class PerTotalSigned(Translate):
    """Counts the words of each total, from signed records: exact."""

    moved = Input("n BIGINT, sign INT", route_by="n", changes="signed")
    counts = State("n BIGINT, words BIGINT")
    seen = Output("n BIGINT, words BIGINT", key="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        words = sum(row.words for row in group.counts) + sum(row.sign for row in group.moved)
        if words:
            out.counts(key.n, words)
        out.seen(key.n, words)


class Unkeyed(Translate):
    """Writes an output without a key."""

    items = Input(SCHEMA, route_by="word")
    totals = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Write the sum of the increment."""
        out.totals(key.word, sum(row.n for row in group.items))


TRANSLATORS = {
    "viewed": Viewed,
    "last": Last,
    "last_of_changes": LastOfChanges,
    "per_total": PerTotal,
    "per_total_signed": PerTotalSigned,
    "unkeyed": Unkeyed,
}
LAST = {"translator": "last", "inputs": {"totals": "sum.totals"}}
LAST_OF_CHANGES = {**LAST, "translator": "last_of_changes"}
PER_TOTAL = {"translator": "per_total", "inputs": {"moved": "sum.totals"}}
PER_TOTAL_SIGNED = {**PER_TOTAL, "translator": "per_total_signed"}

BEFORE = document(sum="sum")
AFTER = document(sum="viewed")


def world_at(root: Path, first: Any = BEFORE, **more: Any) -> Changing:
    """Return a world whose output has five increments, in merged files, some words twice."""
    limits = EngineLimits(output_fanout=2, state_fanout=3, sort_run_bytes=200, sort_block_bytes=64)
    world = Changing(root, engine_limits=limits, verifier=Inline(), **more)
    world.translators |= TRANSLATORS
    world.restart()
    world.controller.register(first)
    feed(world, 5)
    return world


def feed(world: Changing, increments: int, *, start: int = 0) -> None:
    for number in range(start, start + increments):
        arrive(world, number)
        world.clock.advance(1)
        world.ticks()


def arrive(world: Changing, number: int) -> None:
    words = [("x", number), (f"w{number}", 1), (f"w{number % 3}", 2), ("zero", 3 - 2 * number)]
    world.arrive("d", "a", *words)


def expected(increments: int) -> dict[str, int]:
    """Return the sums of the first increments."""
    sums: Counter[str] = Counter()
    for number in range(increments):
        sums.update({"x": number})
        sums.update({f"w{number}": 1})
        sums.update({f"w{number % 3}": 2})
        sums["zero"] += 3 - 2 * number
    return dict(sums)


def rows(world: Changing, table: str) -> list[tuple[Any, ...]]:
    """Return what a Delta reader sees of a table, without the columns that are ours."""
    frame = polars.read_delta(f"{world.store.dataflow('d').folder}/{table}")
    return sorted(frame.drop(["_epoch", "_hash", "_bucket"], strict=False).rows())


def current(world: Changing) -> dict[str, int]:
    return dict(rows(world, "state/sum.totals"))


def refusals(world: Changing, version: Any, **choice: Any) -> list[tuple[str, str]]:
    with pytest.raises(ChangeRefusedError) as told:
        world.change(version, **choice)
    return [(one.code, one.where) for one in told.value.mistakes]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = world_at(tmp_path / "world")
    yield made
    made.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("way", ["keep", "rebuild"])
def test_a_view_has_all_records_of_the_output_that_it_was(world: Changing, way: str) -> None:
    """Filled or rebuilt while an increment waits: as if it had been a view from the beginning."""
    arrive(world, 5)
    choice: Any = {way: ["sum"]}
    planned = world.change(AFTER, dry_run=True, **choice)
    fate = {"keep": "filled", "rebuild": "rebuilt"}[way]
    assert planned.plan.stages["sum"].to_json()["views"] == {"totals": fate}
    world.change(AFTER, **choice)
    if way == "keep":
        assert current(world) == expected(5)
    feed(world, 3, start=6)
    sums = {word: n for word, n in expected(9).items() if n}
    assert current(world) == sums
    node = world.controller.dataflow("d").stages["sum"]
    folder = world.store.dataflow("d").folder
    found = world.engine.records.look_up(folder, node, "totals", {"word": "x"})
    assert found == [{"word": "x", "n": sums["x"]}]
    path = f"{folder}/state/sum.totals"
    require_exact(path, feed_by_delta_rs(path), ["word"])
    verification = verified(world, "d", Request())
    assert (verification.status, verification.error) == ("undecided", None)
    assert {table.table for table in verification.tables if not table.because} == {
        "state/sum.totals",
        "flows/sum.totals",
    }


def test_a_filled_view_is_verified_beside_records_of_the_output(tmp_path: Path) -> None:
    """Files of the output that nothing merged lack the columns of changes; they do not count."""
    world = Changing(tmp_path / "world", verifier=Inline())
    world.translators |= TRANSLATORS
    world.restart()
    world.controller.register(BEFORE)
    feed(world, 1)
    world.change(AFTER, keep=["sum"])
    feed(world, 1, start=1)
    verification = verified(world, "d", Request())
    assert (verification.status, verification.error) == ("undecided", None)
    assert not any(table.because for table in verification.tables)
    world.close()


def test_changes_of_a_filled_view_follow_from_what_it_had(world: Changing) -> None:
    """Records that were there are updated or deleted, and none that stays is a change."""
    before = expected(5)
    world.change(AFTER, keep=["sum"])
    world.arrive("d", "a", ("x", 1), ("w1", -before["w1"]), ("new", 4))
    world.ticks()
    changes = [row for row in rows_with_types(world) if row[2] is not None]
    assert changes == [
        ("new", 4, "insert", 1),
        ("w1", before["w1"], "delete", -1),
        ("x", before["x"], "update_before", -1),
        ("x", before["x"] + 1, "update_after", 1),
    ]


def rows_with_types(world: Changing) -> list[tuple[Any, ...]]:
    path = f"{world.store.dataflow('d').folder}/flows/sum.totals"
    order = {None: 0, "insert": 1, "update_before": 1, "update_after": 2, "delete": 1}
    found = polars.read_delta(path).select("word", "n", "change_type", "sign").rows()
    return sorted(found, key=lambda row: (row[0], order[row[2]], row[1]))


def test_nothing_is_decided_for_the_author(world: Changing) -> None:
    """Without a word the change is refused, also for a stage that held nothing; nothing changes."""
    before = world.picture()
    assert refusals(world, AFTER) == [("state_undecided", "stages.sum")]
    assert world.picture() == before
    assert world.store.dataflow("d").version == 1


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    "declared",
    [{"translator": "unkeyed"}, {"translator": "sum", "keep": {"totals": {"hours": 0}}}],
    ids=["without_a_key", "collected"],
)
def test_a_view_that_cannot_be_whole_is_refused(tmp_path: Path, declared: Any) -> None:
    """Where the last record per key is not the output, or is gone: rebuilt, or not at all."""
    first = document(sum=declared)
    world = world_at(tmp_path / "world", first, retention=TINY)
    feed(world, 12, start=5)
    flow_begins = world.engine.increments.horizon(world.store.dataflow("d").folder, "sum.totals")
    assert bool(flow_begins) == ("keep" in declared)
    wanted = [("view_not_fillable", "stages.sum.states.totals")]
    assert refusals(world, AFTER, keep=["sum"]) == wanted
    world.change(AFTER, rebuild=["sum"])
    world.ticks()
    assert current(world) == {word: n for word, n in expected(17).items() if n}
    world.close()


@pytest.mark.soak
def test_where_neither_way_is_exact_both_are_refused(tmp_path: Path) -> None:
    """The input is gone, and so is a part of the flow: nothing is made of what is left."""
    first = document(sum={"translator": "sum", "keep": {"totals": {"hours": 0}}})
    world = world_at(tmp_path / "world", first, retention=TINY)
    feed(world, 12, start=5)
    folder = world.store.dataflow("d").folder
    for path in sorted(Path(folder).glob("sources/a/*-test.parquet"))[:3]:
        path.unlink()
    assert refusals(world, AFTER, keep=["sum"])[0][0] == "view_not_fillable"
    assert refusals(world, AFTER, rebuild=["sum"])[0][0] == "input_not_retained"
    world.close()


def test_a_description_of_an_earlier_release_tells_by_its_tables_what_it_emptied() -> None:
    """A rebuilt stage's state lost all files and got none; one in other buckets got others."""
    gone, moved = TableChange("state/a.s", drops=("f",)), TableChange("state/b.s", ({},), ("f",))
    begin = Begin(7, Position("d", {}, ()), {"a": (gone,), "b": (moved,)}, (), (), ("c",))
    value = begin.to_json()
    assert Begin.from_json(value).emptied == ("c",)
    del value["emptied"]
    assert Begin.from_json(value).emptied == ("a",)


@pytest.mark.soak
def test_a_reader_of_new_records_goes_on_where_it_was(tmp_path: Path) -> None:
    """What waits for it has no types yet, and is read; then come the changes."""
    world = world_at(tmp_path / "world", document(sum="sum", last=LAST))
    world.store.pause_stage("d", "last", "by hand", None)
    feed(world, 2, start=5)
    assert world.waiting("last", "totals") == [5, 6]
    after = document(sum="viewed", last=LAST_OF_CHANGES)
    world.change(after, keep=["sum", "last"])
    assert world.waiting("last", "totals") == [5, 6]
    world.controller.resume("d")
    feed(world, 2, start=7)
    lasts = dict(rows(world, "state/last.lasts"))
    assert {word: n for word, n in lasts.items() if word != "zero"} == {
        word: n for word, n in expected(9).items() if word != "zero"
    }
    assert verified(world, "d", Request()).status == "undecided"
    world.close()


@pytest.mark.soak
def test_a_reader_of_signed_records_never_reads_records_without_signs(tmp_path: Path) -> None:
    """Neither what waits, nor what is retained; with the view rebuilt, it is exact."""
    world = world_at(tmp_path / "world", document(sum="sum", per=PER_TOTAL))
    world.store.pause_stage("d", "per", "by hand", None)
    feed(world, 1, start=5)
    after = document(sum="viewed", per=PER_TOTAL_SIGNED)
    where = "stages.per.inputs.moved"
    assert refusals(world, after, keep=["sum", "per"]) == [("changes_waiting", where)]
    assert refusals(world, after, keep=["sum"], rebuild=["per"]) == [
        ("changes_not_retained", where)
    ]
    world.change(after, rebuild=["sum", "per"])
    world.controller.resume("d")
    feed(world, 2, start=6)
    counts = Counter(n for word, n in expected(8).items() if n)
    assert dict(rows(world, "state/per.counts")) == counts
    # A later version: the reader alone begins again, where the view's life began.
    buckets = {**PER_TOTAL_SIGNED, "buckets": 4}
    world.change(document(sum="viewed", per=buckets), rebuild=["per"])
    world.ticks()
    assert dict(rows(world, "state/per.counts")) == counts
    world.close()


def test_a_reader_that_comes_later_is_told_that_changes_do_not_add_up(world: Changing) -> None:
    """In every later version: the view's first records never came as changes."""
    world.change(AFTER, keep=["sum"])
    feed(world, 1, start=5)
    late = document(sum="viewed", per=PER_TOTAL_SIGNED)
    where = "stages.per.inputs.moved"
    assert refusals(world, late, retained=["per"]) == [("changes_not_retained", where)]
    last = document(sum="viewed", last=LAST_OF_CHANGES)
    world.change(last, retained=["last"])
    world.ticks()
    lasts = dict(rows(world, "state/last.lasts"))
    assert {w: n for w, n in lasts.items() if w != "zero"} == {
        w: n for w, n in expected(6).items() if w != "zero"
    }


def test_a_reader_is_back_filled_with_all_changes_that_are_retained(tmp_path: Path) -> None:
    """From the first change on; where the first ones are collected, it is refused."""
    world = world_at(tmp_path / "world", AFTER)
    world.change(document(sum="viewed", per=PER_TOTAL_SIGNED), retained=["per"])
    feed(world, 1, start=5)
    counts = Counter(n for n in expected(6).values() if n)
    assert dict(rows(world, "state/per.counts")) == counts
    world.close()
    kept = {"translator": "viewed", "keep": {"totals": {"hours": 0}}}
    world = world_at(tmp_path / "collected", document(sum=kept), retention=TINY)
    feed(world, 12, start=5)
    late = document(sum=kept, per=PER_TOTAL_SIGNED)
    where = "stages.per.inputs.moved"
    assert refusals(world, late, retained=["per"]) == [("input_not_retained", where)]
    # What was collected belongs to an earlier life: a rebuilt view emits everything again.
    world.change(late, rebuild=["sum"], retained=["per"])
    world.ticks()
    assert dict(rows(world, "state/per.counts")) == Counter(n for n in expected(17).values() if n)
    world.close()


@pytest.mark.soak
def test_a_roll_back_goes_to_the_fill_and_not_behind_it(tmp_path: Path) -> None:
    """At the beginning of the version the view has what it was filled with."""
    world = world_at(tmp_path / "world", limits=DEFAULT_LOOP_LIMITS, collect_every=1000)
    world.change(AFTER, keep=["sum"])
    filled = current(world)
    feed(world, 3, start=5)
    last = world.picture()
    amendments = world.controller.amendments
    with pytest.raises(RollbackImpossibleError):
        amendments.roll_back("d", "4", who="me", why="too far")
    amendments.roll_back("d", "5", who="me", why="a bad file", pause=True)
    assert current(world) == filled
    path = f"{world.store.dataflow('d').folder}/state/sum.totals"
    require_exact(path, feed_by_delta_rs(path), ["word"])
    world.controller.resume("d")
    world.ticks()
    assert world.picture() == last
    assert verified(world, "d", Request()).status == "undecided"
    world.close()


def test_a_filled_view_is_one_entry_of_inserts_for_readers_of_its_feed(world: Changing) -> None:
    """A reader of the change data feed begins with all records, once."""
    world.change(AFTER, keep=["sum"])
    path = f"{world.store.dataflow('d').folder}/state/sum.totals"
    (version,) = (v for v, name in versions_of(path).items() if name == "CBP CHANGE")
    feed_ = feed_by_delta_rs(path)
    assert feed_[version] == Counter(("insert", pair) for pair in expected(5).items())


def test_what_a_rebuilt_stage_wrote_before_is_not_in_the_view(world: Changing) -> None:
    """Records of the stage's former life are no records of the view, whatever their key."""
    other = document(sum={"translator": "sum", "inputs": {"items": "b"}})
    other["sources"]["b"] = {"schema": SCHEMA}
    world.change(other, rebuild=["sum"])
    world.arrive("d", "b", ("only", 1), ("x", 2))
    world.ticks()
    after = document(sum={"translator": "viewed", "inputs": {"items": "b"}})
    after["sources"]["b"] = {"schema": SCHEMA}
    world.change(after, keep=["sum"])
    assert current(world) == {"only": 1, "x": 2}


@pytest.mark.part(every=6)
@pytest.mark.parametrize("point", POINTS)
def test_killed_while_it_is_filled_a_restart_leads_to_the_same(point: str, tmp_path: Path) -> None:
    """At each passage of each durable effect: the old version or the new one, and nothing lost."""
    world = world_at(tmp_path / "world")
    arrive(world, 5)
    for passage in itertools.count(1):
        world.faults.to = PlannedFaults(point, passage=passage)
        try:
            world.controller.recover()
            if world.store.dataflow("d").version == 1:
                world.change(AFTER, keep=["sum"])
            break
        except Crash:
            world.faults.to = NO_FAULTS
            world.restart()
    world.faults.to = NO_FAULTS
    assert passage > 1, f"{point}: never passed"
    assert current(world) == expected(5)
    feed(world, 2, start=6)
    assert current(world) == {word: n for word, n in expected(8).items() if n}
    world.close()


def test_a_view_in_another_number_of_buckets_is_filled_by_it(world: Changing) -> None:
    """Its records lie where look-ups search, and expire, compact and go on from there."""
    world.change(document(sum={"translator": "viewed", "buckets": 16}), keep=["sum"])
    assert current(world) == expected(5)
    node = world.controller.dataflow("d").stages["sum"]
    folder = world.store.dataflow("d").folder
    for word, n in expected(5).items():
        found = world.engine.records.look_up(folder, node, "totals", {"word": word})
        assert found == [{"word": word, "n": n}]
