"""What a stage sets aside in a service: shown, kept through crashes and roll-backs, given back."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp import Input
from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.checked_parquet import CHECKED, sealed
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import ChangeRefusedError, NotFoundError
from cbp.model.dataflow.set_aside import BEHIND_CODE
from cbp.model.verification import Request, TableVerdict, Verification
from cbp.model.version.version_change import Choice
from controller.loop.reading import stage_facts
from controller.loop.reading.stage_facts import SetAsideCounts
from tests.controller.lost import lose_the_store
from tests.controller.verified import verified, world_of
from tests.controller.world import SCHEMA, Crash, Sum, World
from tests.planned_faults import PlannedFaults

ACCEPTED: set[int] = set()
"""Numbers that `Fragile` accepts after all; of the module, so that no code is another."""


WRONG: dict[str, int] = {}
"""Word to what the sums of `Mended` are wrong by."""


class Fragile(Sum):
    """Fails on the number 13."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        items = list(group.items)
        if any(row.n == 13 and 13 not in ACCEPTED for row in items):
            message = f"unlucky {key.word}"
            raise ValueError(message)
        n = sum(row.n for row in items) + sum(row.n for row in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class HourlyFragile(Fragile):
    """The same, in frames."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


class Mended(Sum):
    """Fails on nothing; may be wrong."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in chain(group.items, group.sums)) + WRONG.get(key.word, 0)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


FRAGILE: dict[str, Any] = {
    "name": "one",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "sum": {
            "translator": "fragile",
            "inputs": {"items": "a"},
            "buckets": 2,
            "on_error": "set_aside",
            "set_aside_max": 5,
        },
        "again": {"translator": "sum", "inputs": {"items": "sum.totals"}, "buckets": 2},
    },
}
MENDED = {
    **FRAGILE,
    "stages": {**FRAGILE["stages"], "sum": {**FRAGILE["stages"]["sum"], "translator": "sum"}},
}


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(tmp_path, fragile=Fragile, mended=Mended)
    yield made
    ACCEPTED.clear()
    WRONG.clear()
    made.close()


def begin(world: World) -> None:
    world.controller.register(FRAGILE)
    feed(world, ("a", 1), ("b", 1))
    feed(world, ("a", 2), ("a", 13), ("b", 2))
    feed(world, ("a", 4), ("c", 1))


def feed(world: World, *records: tuple[Any, ...]) -> None:
    world.arrive("one", "a", *records)
    world.clock.advance(1)
    world.ticks()


def mend(world: World) -> None:
    world.controller.change(MENDED, choice=Choice(keep=frozenset({"sum"})))


def give_back(world: World, **more: Any) -> Any:
    told = {"who": "me", "why": "mended", **more}
    return world.controller.amendments.give_back("one", "sum", **told)


def sums(world: World, stage: str = "sum") -> dict[str, int]:
    record = world.store.dataflow("one")
    node = world.controller.dataflow("one").stages[stage]
    return {r["word"]: r["n"] for r in world.engine.records.read_state(record.folder, node, "sums")}


def the_stage(world: World) -> Any:
    return next(one for one in world.store.stages("one") if one.stage == "sum")


def aside(world: World) -> list[tuple[int, Any, str]]:
    rows = world.controller.reading.set_aside("one", "sum")
    return [(row["epoch"], json.loads(row["record"])["n"], row["code"]) for row in rows]


def counted(world: World) -> dict[str, int]:
    return world.controller.set_aside_counts.of(world.store.dataflow("one"))


ASIDE = [(1, 2, "author_code_failed"), (1, 13, "author_code_failed"), (2, 4, BEHIND_CODE)]


def test_one_bad_record_stops_nothing_else(world: World) -> None:
    """Other groups go on, the stage does not stop, and what is set aside is counted."""
    begin(world)
    assert sums(world) == {"a": 1, "b": 3, "c": 1}
    assert aside(world) == ASIDE
    assert counted(world) == {"sum": 3}
    assert not the_stage(world).paused_because


def test_what_is_given_back_is_applied_in_order_and_once(world: World) -> None:
    """As an epoch of its own, whose changes go on; a repeated request does nothing."""
    begin(world)
    mend(world)
    tried = world.controller.amendments.try_to_give_back("one", "sum")
    assert (tried.records, tried.left, tried.made) == (3, 0, None)
    assert aside(world) == ASIDE
    given = give_back(world, request="r")
    assert (given.records, given.left, given.made.epoch) == (3, 0, 3)
    world.ticks()
    assert sums(world) == {"a": 20, "b": 3, "c": 1}
    assert sums(world, "again")["a"] == 1 + 20
    assert aside(world) == []
    assert counted(world) == {}
    assert give_back(world, request="r").made == given.made
    with pytest.raises(NotFoundError):
        give_back(world)
    why = world.controller.explaining.run(given.made.run).why
    assert why == "me gave back 3 records that sum had set aside: mended"


def test_given_back_to_the_same_code_it_stays(world: World) -> None:
    """What fails again stays set aside, all of its group behind it."""
    begin(world)
    given = give_back(world)
    assert (given.records, given.left) == (0, 3)
    assert [n for _, n, _ in aside(world)] == [2, 13, 4]
    assert sums(world)["a"] == 1


def test_beyond_the_limit_the_stage_fails_as_before(world: World) -> None:
    """And goes on where it was once the code is mended and what waits is given back."""
    begin(world)
    feed(world, ("d", 13), ("e", 13), ("f", 13), ("b", 5))
    stage = the_stage(world)
    assert stage.failures == 1
    error = world.store.runs("one", stage="sum", limit=1).items[0].error
    assert error is not None
    assert error["error_code"] == "set_aside_full"
    assert "unlucky" in error["message"]
    assert aside(world) == ASIDE
    mend(world)
    give_back(world)
    world.clock.advance(60)
    world.ticks()
    assert sums(world) == {"a": 20, "b": 8, "c": 1, "d": 13, "e": 13, "f": 13}


def test_a_roll_back_takes_it_back(world: World) -> None:
    """Before the bad file nothing is set aside, and its records wait in the queue again."""
    begin(world)
    picture = world.picture()
    world.controller.amendments.roll_back("one", "sum:0", who="me", why="", pause=True)
    assert aside(world) == []
    assert sums(world) == {"a": 1, "b": 1}
    world.controller.resume("one")
    world.ticks()
    assert aside(world) == [(epoch, n, code) for epoch, n, code in ASIDE]
    assert world.picture().keys() == picture.keys()


def test_a_roll_back_of_what_was_given_back_sets_it_aside_again(world: World) -> None:
    """The epoch that gave it back is undone like any other."""
    begin(world)
    given = give_back(world)
    feed(world, ("b", 7))
    world.controller.amendments.roll_back("one", "sum:2", who="me", why="")
    world.ticks()
    assert [n for _, n, _ in aside(world)] == [2, 13, 4]
    (note,) = world.controller.amendments.corrections("one")
    assert (note.run, note.undone) == (given.made.run, True)


POINTS = [
    f"{effect}.{side}"
    for effect in ("job", "set_aside", "given_back", "intention", "log_entry", "sql_commit")
    for side in ("before", "after")
]


@pytest.mark.part(every=6)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_changes_nothing(world: World, point: str) -> None:
    """Killed while a record is set aside, or given back, a restart alone gives the same."""
    world.controller.register(FRAGILE)
    feed(world, ("a", 1), ("b", 1))
    world.arrive("one", "a", ("a", 2), ("a", 13), ("b", 2))
    with suppress(Crash):
        world.faults.to = PlannedFaults(point)
        world.ticks()
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.ticks()
    feed(world, ("a", 4), ("c", 1))
    assert (aside(world), sums(world)) == (ASIDE, {"a": 1, "b": 3, "c": 1})
    mend(world)
    with suppress(Crash):
        world.faults.to = PlannedFaults(point)
        give_back(world)
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.ticks()
    if aside(world):
        assert aside(world) == ASIDE
        give_back(world)
    assert (aside(world), sums(world)) == ([], {"a": 20, "b": 3, "c": 1})


def test_a_lost_store_changes_nothing(world: World, tmp_path: Path) -> None:
    """The folders are the truth: what is set aside is there, and is given back."""
    begin(world)
    new = lose_the_store(world, tmp_path / "new", {"a": 3})
    assert aside(new) == ASIDE
    mend(new)
    give_back(new)
    assert sums(new)["a"] == 20
    new.close()


def test_a_version_that_could_not_give_it_back_is_refused(world: World) -> None:
    """Without the option, the stage would forget what waits; a rebuild reads it from its input."""
    begin(world)
    stages = {**MENDED["stages"], "sum": dict(MENDED["stages"]["sum"])}
    del stages["sum"]["on_error"], stages["sum"]["set_aside_max"]
    plain = {**MENDED, "stages": stages}
    with pytest.raises(ChangeRefusedError) as refused:
        world.controller.change(plain, choice=Choice(keep=frozenset({"sum"})))
    assert [one.code for one in refused.value.mistakes] == ["set_aside_waits"]
    world.controller.change(plain, choice=Choice(rebuild=frozenset({"sum", "again"})))
    world.ticks()
    assert sums(world) == {"a": 20, "b": 3, "c": 1}


def test_a_rebuild_begins_with_nothing_set_aside(world: World) -> None:
    """Its input is read again from the first increment on, with what had been set aside."""
    begin(world)
    world.controller.change(MENDED, choice=Choice(rebuild=frozenset({"sum", "again"})))
    world.ticks()
    assert (aside(world), sums(world)) == ([], {"a": 20, "b": 3, "c": 1})


@pytest.mark.part(every=2)
@pytest.mark.parametrize("split", ["increments", "at_once"])
def test_a_verification_repeats_what_was_set_aside(world: World, split: Any) -> None:
    """Which calls failed depends on how input was cut, so the recorded epochs are repeated."""
    begin(world)
    assert verified(world, "one", Request(split=split)).status == "equal"
    mend(world)
    give_back(world)
    feed(world, ("a", 1), ("g", 1))
    told = verified(world, "one", Request(split=split))
    assert (told.status, told.suspect) == ("undecided", "")
    since = {one.table: (one.status, one.since) for one in told.tables}
    assert since["set_aside/sum"] == since["state/sum.sums"] == ("undecided", 3)


def verified_mended(world: World) -> Verification:
    """Return a verification after everything was given back to code that is the same as before."""
    begin(world)
    ACCEPTED.add(13)
    assert give_back(world).left == 0
    feed(world, ("a", 5), ("g", 1))
    return verified(world, "one")


def test_a_verification_repeats_the_epochs_that_gave_back(world: World) -> None:
    """From the first epoch on, if one code made all of them: what readers see is compared."""
    told = verified_mended(world)
    assert (told.status, told.suspect) == ("equal", "")
    assert {one.table: (one.status, one.since) for one in told.tables} == {
        "state/sum.sums": ("equal", 0),
        "set_aside/sum": ("equal", 0),
        "flows/sum.totals": ("equal", 0),
        "state/again.sums": ("equal", 0),
        "flows/again.totals": ("equal", 0),
    }


def test_what_a_give_back_did_wrong_is_found(world: World) -> None:
    """A state whose value is wrong since that epoch differs, and names its stage."""
    begin(world)
    stages = {**FRAGILE["stages"], "sum": {**FRAGILE["stages"]["sum"], "translator": "mended"}}
    world.controller.change({**FRAGILE, "stages": stages}, choice=Choice(keep=frozenset({"sum"})))
    WRONG["a"] = 5
    give_back(world)
    WRONG.clear()
    told = verified(world, "one")
    assert (told.status, told.suspect) == ("differs", "sum")


def test_frames_that_were_given_back_are_undecided(world: World) -> None:
    """They are not cut again, so the tables of their stage, and of all behind it, say so."""
    world.translators |= {"hourly": HourlyFragile}
    world.restart()
    stages = {**FRAGILE["stages"], "sum": {**FRAGILE["stages"]["sum"], "translator": "hourly"}}
    world.controller.register({**FRAGILE, "stages": stages})
    feed(world, ("a", 1), ("b", 1))
    feed(world, ("a", 13), ("b", 2))
    feed(world, ("b", 14))
    assert [n for _, n, _ in aside(world)] == [13]
    ACCEPTED.add(13)
    give_back(world)
    world.ticks()
    told = verified(world, "one")
    assert (told.status, told.suspect) == ("undecided", "")
    assert "reads frames" in verdict(told).because


def test_what_is_set_aside_is_verified_too(world: World) -> None:
    """Equal where its epochs are repeated; a record that is lost, or has another text, is found."""
    begin(world)
    assert verdict(verified(world, "one")).status == "equal"
    record = world.store.dataflow("one")
    (file,) = Path(record.folder, "set_aside", "sum", "_runs").glob("*01-00000-*.parquet")
    rows = pq.ParquetFile(file).read()
    text = rows.column("record").to_pylist()
    text[0] = text[0].replace("2", "3")
    at = rows.schema.get_field_index("record")
    sink = io.BytesIO()
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(text)), sink, **CHECKED)
    file.write_bytes(sealed(sink.getvalue(), str(file)))
    told = verified(world, "one")
    assert (told.status, verdict(told).status) == ("differs", "differs")
    assert told.suspect == "sum"


def verdict(told: Verification) -> TableVerdict:
    return next(one for one in told.tables if one.table == "set_aside/sum")


def test_counts_of_an_idle_dataflow_cost_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read once after each change; an unpublished run is not taken for what is shown."""
    begin(world)
    opened: list[str] = []

    def opening(path: str, files: Any) -> Any:
        opened.append(path)
        return open_table(path, files)

    monkeypatch.setattr(stage_facts, "open_table", opening)
    counts = SetAsideCounts(world.store)
    record = world.store.dataflow("one")
    assert [counts.of(record) for _ in range(3)] == [{"sum": 3}] * 3
    assert len(opened) == 1
    feed(world, ("a", 5))
    assert [counts.of(record) for _ in range(3)] == [{"sum": 4}] * 3
    assert len(opened) == 2
    world.controller.amendments.roll_back("one", "sum:0", who="me", why="", pause=True)
    assert counts.of(world.store.dataflow("one")) == {}


def test_the_option_can_be_added_to_a_stage_that_runs(world: World) -> None:
    """Its state stays; from then on what fails is set aside."""
    stages = {**FRAGILE["stages"], "sum": dict(FRAGILE["stages"]["sum"])}
    del stages["sum"]["on_error"], stages["sum"]["set_aside_max"]
    world.controller.register({**FRAGILE, "stages": stages})
    feed(world, ("a", 1), ("b", 1))
    feed(world, ("a", 13), ("b", 2))
    assert the_stage(world).failures == 1
    world.controller.change(FRAGILE, choice=Choice())
    world.clock.advance(60)
    world.ticks()
    assert [n for _, n, _ in aside(world)] == [13]
    assert sums(world) == {"a": 1, "b": 3}
