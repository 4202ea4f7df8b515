"""Sinks of files: every increment once, wherever a crash happens; what is wrong is reported."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbp.errors import DataflowInvalidError, LeaseLostError
from controller.sinks.errors import SinkRolledBackError
from controller.sinks.sink_standing import standing_of
from tests.controller.lost import lose_the_store
from tests.controller.sinks import sunk
from tests.controller.world import World
from tests.planned_faults import PlannedFaults
from tests.sampling import examples

pytestmark = pytest.mark.usefixtures("without_syncs")

FILES: dict[str, Any] = {"flow": sunk.FLOW, "to": "parquet", "path": "totals"}
CSV = {**FILES, "to": "csv", "path": "lines"}
BOTH = {"totals": FILES, "lines": CSV}


def told(world: World) -> list[dict[str, Any]]:
    return sunk.rows_of(world, "totals")


def test_the_files_are_the_flow(tmp_path: Path) -> None:
    """Concatenated in the order of their names; one file for each increment with records."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document(BOTH))
    flow = sunk.flow_of(world)
    assert len(flow) == 7
    assert sunk.rows_of(world, "totals") == flow == sunk.rows_of(world, "lines")
    assert sunk.names(world, "totals") == [
        f"one.sum.totals.{index:012d}-g0.parquet" for index in range(5)
    ]
    assert [sunk.state(world, sink) for sink in BOTH] == ["current", "current"]
    assert (sunk.row(world, "totals").next, sunk.row(world, "totals").end) == (5, 5)
    assert sunk.note_of(world, "totals")["next"] == 5
    world.close()


POINTS = [  # passages of `sink_file` 1 and 3 are those of the markers
    ("sink_file.before", 2), ("sink_file.before", 3), ("sink_file.after", 5),
    ("sink_file.after", 1), ("sink_note.before", 4), ("sink_note.before", 1),
    ("sink_note.after", 5), ("sink_note.after", 1), ("sql_commit.after", 20),
    ("sql_commit.before", 20), ("sql_commit.before", 31), ("sql_commit.after", 31),
]  # fmt: skip


@pytest.mark.part(every=4)
@pytest.mark.parametrize(("point", "passage"), POINTS)
def test_a_crash_anywhere_leaves_every_increment_once(
    tmp_path: Path, point: str, passage: int
) -> None:
    """Also when the restart crashes at the same point; no draft is left."""
    world = sunk.sink_world(tmp_path)
    faults = PlannedFaults(point, passage=passage), PlannedFaults(point)
    assert sunk.play(world, sunk.document(BOTH), *faults) == 2
    assert sunk.rows_of(world, "totals") == sunk.flow_of(world) == sunk.rows_of(world, "lines")
    assert [sunk.row(world, sink).next for sink in BOTH] == [5, 5]
    assert sunk.drafts(world) == []
    world.close()


@settings(
    max_examples=examples(4),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    arrivals=st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 3)), max_size=4), max_size=5
    ),
    passes=st.sets(st.integers(0, 4)),
)
def test_any_split_of_passes_gives_the_flow(
    tmp_path_factory: pytest.TempPathFactory,
    arrivals: Sequence[Sequence[tuple[str, int]]],
    passes: set[int],
) -> None:
    """However arrivals and passes alternate, and whatever is empty."""
    world = sunk.sink_world(tmp_path_factory.mktemp("world"))
    world.controller.register(sunk.document(BOTH))
    for number, records in enumerate(arrivals):
        world.arrive("one", "a", *records)
        world.ticks()
        if number in passes:
            sunk.publish(world)
    sunk.publish(world)
    flow = sunk.flow_of(world)
    for folder in ("totals", "lines"):
        found = sunk.rows_of(world, folder) if (world.root / "out" / folder).exists() else []
        assert found == flow
    world.close()


def test_a_sink_of_a_source_publishes_what_arrives(tmp_path: Path) -> None:
    """Sources are flows, too."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document({"raw": {"flow": "a", "to": "csv", "path": "raw"}}))
    arrived = [{"word": word, "n": n} for part in sunk.ARRIVALS for word, n in part]
    assert sunk.rows_of(world, "raw") == arrived
    world.close()


def test_a_lost_database_changes_nothing(tmp_path: Path) -> None:
    """The notes tell how far each sink is; no file is written again, none is left out."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document(BOTH))
    before = {name: (tmp_path / "out/totals" / name).stat() for name in sunk.names(world, "totals")}
    lost = lose_the_store(world, tmp_path / "new", {"a": len(sunk.ARRIVALS)})
    world.close()
    world, lost.root = lost, tmp_path
    assert world.store.sinks("one") == []
    world.arrive("one", "a", ("z", 9))
    world.ticks()
    sunk.publish(world)
    assert told(world) == sunk.flow_of(world)
    assert len(told(world)) == 8
    after = {name: (tmp_path / "out/totals" / name).stat() for name in before}
    assert {n: s.st_mtime_ns for n, s in after.items()} == {
        n: s.st_mtime_ns for n, s in before.items()
    }
    world.close()


def test_a_sink_that_is_added_begins_where_it_says(tmp_path: Path) -> None:
    """At the oldest increment, or with `now` at the next one; another path is another sink."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document({}))
    late = {**FILES, "path": "late", "begin": "now"}
    world.controller.change(sunk.document({"totals": FILES, "late": late}))
    sunk.publish(world)
    assert told(world) == sunk.flow_of(world)
    world.arrive("one", "a", ("z", 9))
    world.ticks()
    sunk.publish(world)
    assert sunk.rows_of(world, "late") == [{"word": "z", "n": 9}]
    moved = {**FILES, "path": "moved"}
    world.controller.change(sunk.document({"totals": moved}))
    sunk.publish(world)
    assert sunk.rows_of(world, "moved") == sunk.flow_of(world) == told(world)
    assert [one.sink for one in world.store.sinks("one")] == ["totals"]
    world.controller.change(sunk.document({"totals": FILES}))
    world.arrive("one", "a", ("y", 9))
    world.ticks()
    sunk.publish(world)
    assert told(world) == sunk.flow_of(world)  # it went on where it was
    world.close()


def test_a_paused_sink_keeps_what_it_has_not_published(tmp_path: Path) -> None:
    """A pause in the document is where it begins; it goes on as if nothing had been."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document({"totals": {**FILES, "paused": True}}))
    assert (sunk.state(world, "totals"), sunk.row(world, "totals").next) == ("paused", 0)
    assert not (tmp_path / "out/totals").exists()
    world.store.want_sink("one", "totals", desired="running")
    sunk.publish(world)
    assert told(world) == sunk.flow_of(world)
    world.close()


def test_a_full_disk_is_told_and_tried_again(tmp_path: Path) -> None:
    """Other sinks go on; the sink continues automatically, with growing pauses."""
    world = sunk.sink_world(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device")
    world.controller.register(sunk.document({"totals": FILES}))
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    world.faults.to = PlannedFaults("sink_file.before", passage=2, error=full)
    sinks = sunk.publish(world)
    assert (sunk.code(world, "totals"), sunk.state(world, "totals")) == ("disk_full", "retrying")
    assert sunk.names(world, "totals") == []
    assert sunk.drafts(world) == []
    sunk.publish(world, sinks)  # rests
    assert sunk.names(world, "totals") == []
    world.clock.advance(2)
    sunk.publish(world, sinks)
    assert told(world) == sunk.flow_of(world)
    assert (sunk.code(world, "totals"), sunk.state(world, "totals")) == ("", "current")
    world.close()


def test_a_missing_folder_is_not_made_again(tmp_path: Path) -> None:
    """It may be a mount that is away: nothing is written beside it, and nothing is skipped."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document({"totals": FILES}))
    shutil.move(tmp_path / "out", tmp_path / "away")
    world.arrive("one", "a", ("z", 9))
    world.ticks()
    sunk.publish(world)
    assert sunk.code(world, "totals") == "sink_target_failed"
    (tmp_path / "out").mkdir()
    world.clock.advance(10)
    sunk.publish(world)
    assert sunk.code(world, "totals") == "sink_target_failed"
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "out").rmdir()
    shutil.move(tmp_path / "away", tmp_path / "out")
    world.clock.advance(100)
    sunk.publish(world)
    assert told(world) == sunk.flow_of(world)
    world.close()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """Files that are no sink's, and files of an earlier life, whose numbers are the same."""
    world = sunk.sink_world(tmp_path)
    (tmp_path / "out/totals").mkdir()
    (tmp_path / "out/totals/mine.txt").write_text("x")
    sunk.play(world, sunk.document(BOTH))
    assert sunk.code(world, "totals") == "sink_target_foreign"
    assert [path.name for path in (tmp_path / "out/totals").iterdir()] == ["mine.txt"]
    assert sunk.rows_of(world, "lines") == sunk.flow_of(world)
    world.controller.delete("one", purge=True)
    world.restart()
    world.controller.register(sunk.document({"lines": CSV}))
    world.arrive("one", "a", ("other", 1))
    world.ticks()
    sunk.publish(world)
    assert sunk.code(world, "lines") == "sink_target_foreign"
    assert len(sunk.names(world, "lines")) == 5
    world.close()


@pytest.mark.parametrize("empty", [True, False])
def test_a_file_that_is_not_the_increments_is_told(tmp_path: Path, empty: bool) -> None:
    """A stale or empty file under the name of the next increment is not taken for it."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document(BOTH))
    for folder, end in (("totals", "parquet"), ("lines", "csv")):
        place = tmp_path / f"out/{folder}"
        stale = b"" if empty else (place / f"one.sum.totals.000000000004-g0.{end}").read_bytes()
        (place / f"one.sum.totals.000000000005-g0.{end}").write_bytes(stale)
    world.arrive("one", "a", ("z", 9))
    world.ticks()
    sunk.publish(world)
    assert [sunk.code(world, sink) for sink in BOTH] == ["sink_target_foreign"] * 2
    world.close()


@pytest.mark.parametrize("choice", ["rewrite", "keep"])
def test_after_a_roll_back_an_operator_chooses(tmp_path: Path, choice: str) -> None:
    """The sink names the files that are no longer true, and stops until then."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document(BOTH))
    before = sunk.names(world, "totals")
    old = told(world)
    world.controller.amendments.roll_back("one", "sum:2", who="me", why="a test", drop_later=True)
    world.ticks()
    world.arrive("one", "a", ("new", 7))
    world.ticks()
    sunk.publish(world)
    assert (sunk.code(world, "totals"), sunk.state(world, "totals")) == (
        "sink_rolled_back",
        "stopped",
    )
    error = dict(standing_of(sunk.row(world, "totals")).error or {})
    assert error["details"]["stale"] == before[error["details"]["first"] :]
    assert sunk.names(world, "totals") == before
    world.store.want_sink("one", "totals", choice=choice)
    sunk.publish(world)
    assert (sunk.code(world, "totals"), sunk.row(world, "totals").choice) == ("", "")
    first, end = error["details"]["first"], world.store.next_index("one", sunk.FLOW)
    new = [f"one.sum.totals.{index:012d}-g1.parquet" for index in range(first, end)]
    if choice == "rewrite":
        assert told(world) == sunk.flow_of(world)
        assert sunk.names(world, "totals") == [*before[:first], *new]
    else:
        assert sunk.names(world, "totals") == sorted([*before, *new])
        kept = [one for one in told(world) if one in old]
        assert len(kept) >= len(old)
    assert sunk.code(world, "lines") == "sink_rolled_back"  # each sink by itself
    world.close()


def test_an_error_names_a_bounded_number_of_undone_items() -> None:
    """It is stored with the sink, whose row is read at each tick."""
    error = SinkRolledBackError("lines", 0, [f"increment {number}" for number in range(20_000)])
    assert "20,000 items" in error.message
    assert error.details["count"] == 20_000
    assert len(str(error.as_dict())) < 30_000


def test_a_roll_back_undoes_the_file_that_a_crash_left_ahead_of_the_note(tmp_path: Path) -> None:
    """Both increments of one number would be read otherwise."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.document(BOTH))
    world.clock.advance(1)  # so it came after the moment that is gone back to
    world.arrive("one", "a", ("late", 9))
    world.ticks()
    sunk.crash_before_the_note(world, "totals")
    world.controller.amendments.roll_back("one", "sum:4", who="me", why="a test", drop_later=True)
    world.arrive("one", "a", ("new", 7))
    world.ticks()
    sunk.publish(world)
    error = dict(standing_of(sunk.row(world, "totals")).error or {})
    assert error["details"]["stale"] == ["one.sum.totals.000000000005-g0.parquet"]
    world.store.want_sink("one", "totals", choice="rewrite")
    sunk.publish(world)
    assert told(world) == sunk.flow_of(world) == sunk.rows_of(world, "lines")
    assert [one["word"] for one in told(world)].count("late") == 0
    assert told(world)[-1] == {"word": "new", "n": 7}
    world.close()


def test_mistakes_have_their_places(tmp_path: Path) -> None:
    """One registration names them all."""
    world = sunk.sink_world(tmp_path)
    world = sunk.sink_world(tmp_path / "b", refused=sunk.places_of(world).mistakes)
    wrong: dict[str, Any] = {
        "a": {**FILES, "to": "xls"},
        "b": {**FILES, "flow": "sum.nothing", "path": "b"},
        "c": {"to": "csv", "path": "c"},
        "d": {"flow": sunk.FLOW, "to": "csv"},
        "e": {**FILES, "path": "../e"},
        "f": {**FILES, "path": 7},
        "g": {**FILES, "view": sunk.FLOW, "flow": "", "path": "g"},
        "h": {**FILES, "path": "h", "begin": "never"},
        "i": {**FILES, "path": "h"},
        "j": {**FILES, "path": "j", "colour": "red"},
    }
    with pytest.raises(DataflowInvalidError) as raised:
        world.controller.validate(sunk.document(wrong))
    mistakes = {(one.where, one.code) for one in raised.value.mistakes}
    assert mistakes == {
        ("sinks.a.to", "sink_to_unknown"),
        ("sinks.b.flow", "flow_unknown"),
        ("sinks.c", "sink_flow_missing"),
        ("sinks.d.path", "sink_field_missing"),
        ("sinks.e.path", "sink_path_invalid"),
        ("sinks.f.path", "sink_invalid"),
        ("sinks.g.view", "sink_view_unknown"),
        ("sinks.g.view", "sink_view_needs_delta"),
        ("sinks.h.begin", "sink_begin_unknown"),
        ("sinks.i.path", "sink_path_twice"),
        ("sinks.j.colour", "field_unknown"),
    }
    for path in ("/etc/cbp", str(tmp_path / "out"), str(tmp_path / "tables/one")):
        with pytest.raises(DataflowInvalidError) as raised:
            world.controller.register(sunk.document({"x": {**FILES, "path": path}}))
        assert [(m.where, m.code) for m in raised.value.mistakes] == [
            ("sinks.x.path", "sink_place_refused")
        ]
    world.close()


def test_a_link_out_of_the_roots_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """A document was right when it was registered; the link came later."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document({"totals": FILES}))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/totals").symlink_to(tmp_path / "elsewhere")
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    sunk.publish(world)
    assert sunk.code(world, "totals") == "sink_place_refused"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    world.close()


def test_who_does_not_lead_writes_nothing(tmp_path: Path) -> None:
    """The fence is asked before each effect; losing the lease is no failure of the sink."""
    world = sunk.sink_world(tmp_path)
    world.controller.register(sunk.document({"totals": FILES}))
    sinks = sunk.publish(world)
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    world.faults.to = PlannedFaults("sink_file.before", error=LeaseLostError(1, "a test"))
    with pytest.raises(LeaseLostError):
        sunk.publish(world, sinks)
    assert sunk.names(world, "totals") == sunk.drafts(world) == []
    assert (sunk.code(world, "totals"), sunk.state(world, "totals")) == ("", "behind")
    sunk.publish(world, sinks)
    assert told(world) == sunk.flow_of(world)
    world.close()
