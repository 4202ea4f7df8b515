"""Retention of outputs in the service: what is consumed goes, what somebody needs stays."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import Input, Output, State, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import ChangeRefusedError, IncrementCollectedError
from cbp.model.verification import Request
from cbp.model.version.version_change import Choice
from tests.controller.lost import lose_the_store
from tests.controller.retained import OFTEN as RETAINED
from tests.controller.retained import TINY, play
from tests.controller.verified import verified
from tests.controller.world import ONE, Inline, Sum, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

EPOCHS = 18
OFTEN = {**RETAINED, "engine_limits": EngineLimits(checkpoint_entries=4, output_fanout=2)}
"""Outputs are looked after at every other epoch, too."""


def saying(keep: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a chain of two stages, the first of which says how long its output stays."""
    first = {**ONE["stages"]["sum"], "buckets": 2, "keep": keep}
    behind = {"translator": "sum", "inputs": {"items": "sum.totals"}, "buckets": 2}
    return {**ONE, "stages": {"sum": first, "behind": behind, **more}}


CONSUMED = saying({"totals": {"hours": 0}})


def world_on(root: Path, document: dict[str, Any] = CONSUMED, **more: Any) -> World:
    made = {"retention": TINY, "collect_every": 3, **OFTEN, "verifier": Inline(), **more}
    world = World(root, engine=LocalEngine, **made)
    world.controller.register(document)
    return world


def horizon(world: World, flow: str = "sum.totals") -> int:
    return int(world.engine.increments.horizon(world.store.dataflow("one").folder, flow))


def shown(world: World, table: str = "flows/sum.totals") -> list[int]:
    return sorted(set(polars.read_delta(f"{world.tables}/one/{table}")["_epoch"]))


def stored(world: World) -> int:
    """Return how many files of the output lie on the disk."""
    return sum(1 for _ in Path(world.tables).glob("one/flows/sum.totals/_runs/*.parquet"))


def states(world: World) -> list[Any]:
    picture = world.picture()
    return [picture[f"one {stage}.sums"] for stage in ("sum", "behind")]


def test_an_output_goes_once_it_is_consumed(tmp_path: Path) -> None:
    """Records, files and rows; the rest of the dataflow is that of who keeps everything."""
    kept, all_ = world_on(tmp_path / "a"), world_on(tmp_path / "b", saying({}))
    for one in (kept, all_):
        play(one, EPOCHS)
    oldest = horizon(kept)
    assert EPOCHS - 10 < oldest < EPOCHS
    assert shown(kept) == list(range(oldest, EPOCHS))
    assert shown(kept, "flows/behind.totals") == list(range(EPOCHS))
    assert stored(kept) < 16
    rows = [one.increment.index for one in kept.store.increments("one", "sum.totals").items]
    assert min(rows) > EPOCHS - 14
    assert (horizon(all_), shown(all_)) == (0, list(range(EPOCHS)))
    assert states(kept) == states(all_)
    records, _ = kept.controller.reading.read_flow("one", "sum.totals", None, 100)
    assert [record["_epoch"] for record in records] == list(range(oldest, EPOCHS))
    with pytest.raises(IncrementCollectedError) as told:
        kept.controller.reading.read_flow("one", "sum.totals", "3.0", 100)
    assert told.value.details["oldest"] == oldest
    for one in (kept, all_):
        one.close()


@pytest.mark.part(every=4)
@pytest.mark.parametrize(
    ("keep", "most"),
    [({"hours": 8 / 3600}, 16), ({"hours": 1}, EPOCHS), ({"bytes": 1}, 10)],
)
def test_an_output_goes_by_age_or_bytes(tmp_path: Path, keep: dict[str, float], most: int) -> None:
    """Whichever is said; what is left open takes nothing."""
    world = world_on(tmp_path, saying({"totals": keep}))
    play(world, EPOCHS)
    left = shown(world)
    assert left[-1] == EPOCHS - 1
    assert len(left) <= most
    assert (len(left) == EPOCHS) == (most == EPOCHS)
    assert len(left) >= (8 if keep.get("hours") else 1)
    world.close()


def test_what_waits_stays(tmp_path: Path) -> None:
    """A stage that runs nothing finds all that came since, in its queue and in the table."""
    world = world_on(tmp_path)
    play(world, 5)
    world.store.pause_stage("one", "behind", "by hand", None)
    play(world, 9, start=5)
    assert horizon(world) <= 5
    assert shown(world)[-1] == 13
    world.controller.resume("one")
    play(world, 12, start=14)
    assert horizon(world) > 14
    whole = world_on(tmp_path / "whole", saying({}))
    play(whole, 26)
    assert states(world)[0] == states(whole)[0]
    for one in (world, whole):
        one.close()


@pytest.mark.soak
def test_a_roll_back_finds_what_was_there(tmp_path: Path) -> None:
    """Wherever a position is kept: the output shows what it showed, and goes on from there."""
    keep = Retention(versions_min=60, versions_max=60, seconds=3600, attempt_seconds=0)
    world = world_on(tmp_path, retention=keep)
    play(world, EPOCHS)
    expected, oldest = states(world), horizon(world)
    assert oldest > 0
    back = EPOCHS - 5
    world.controller.amendments.roll_back("one", f"sum:{back}", who="me", why="x", pause=True)
    assert 0 < horizon(world) <= oldest
    assert shown(world) == list(range(horizon(world), back + 1))
    world.controller.resume("one")
    world.ticks()
    assert states(world) == expected
    play(world, 4, start=EPOCHS)
    assert horizon(world) >= oldest
    assert shown(world) == list(range(horizon(world), EPOCHS + 4))
    world.close()


@pytest.mark.soak
def test_a_verification_compares_what_is_not_collected(tmp_path: Path) -> None:
    """All that readers see of a flow; undecided where one batch has other increments."""
    world = world_on(tmp_path)
    play(world, EPOCHS)
    for engine in ("direct", "reference"):
        actual = verified(world, "one", Request(engine=engine))
        assert (actual.status, actual.error) == ("equal", None)
        assert {one.status for one in actual.tables} == {"equal"}
        totals = next(one for one in actual.tables if one.table == "flows/sum.totals")
        assert totals.records == 2 * len(world.flow("one", "sum.totals"))
    actual = verified(world, "one", Request(split="at_once"))
    collected = next(one for one in actual.tables if one.table == "flows/sum.totals")
    assert collected.status == "undecided"
    assert f"increments before {horizon(world)} were removed" in collected.because
    world.close()


def test_a_back_fill_from_what_is_collected_is_refused(tmp_path: Path) -> None:
    """From what is left, the state would be another one."""
    world = world_on(tmp_path)
    play(world, EPOCHS)
    before = states(world)
    late = {"translator": "sum", "inputs": {"items": "sum.totals"}}
    with pytest.raises(ChangeRefusedError) as told:
        world.controller.change(
            saying({"totals": {"hours": 0}}, late=late), choice=Choice(retained=frozenset({"late"}))
        )
    assert [one.code for one in told.value.mistakes] == ["input_not_retained"]
    assert states(world) == before
    world.close()


@pytest.mark.soak
def test_a_lost_store_goes_on(tmp_path: Path) -> None:
    """What is collected stays collected, and is reported as such."""
    world = world_on(tmp_path / "a")
    play(world, EPOCHS)
    new = lose_the_store(world, tmp_path / "new", {"a": EPOCHS})
    assert (new.picture(), horizon(new)) == (world.picture(), horizon(world))
    with pytest.raises(IncrementCollectedError):
        new.controller.reading.read_flow("one", "sum.totals", "0.0", 1)
    new.close()
    world.close()


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", ["dead_file", "intention", "log_entry"])
def test_crashes_change_nothing(tmp_path: Path, point: str) -> None:
    """Killed in any run or collection, again and again: a restart goes on."""
    world, whole = world_on(tmp_path / "a"), world_on(tmp_path / "b", saying({}))
    for number in range(10):
        world.faults.to = PlannedFaults(
            f"{point}.{'before' if number % 2 else 'after'}", passage=1 + number % 5
        )
        with suppress(Crash):
            play(world, 1, start=number)
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
        world.ticks()
        play(whole, 1, start=number)
    assert states(world) == states(whole)
    assert horizon(world) > 0
    assert shown(world)[-1] == shown(whole)[-1]
    world.close()
    whole.close()


def test_a_look_tells_what_goes_and_why_the_rest_stays(tmp_path: Path) -> None:
    """By flow, and only of those of which something is said."""
    world = world_on(tmp_path)
    play(world, EPOCHS)
    (flow,) = world.controller.housekeeping.look("one").outputs
    actual = world.controller.housekeeping.look("one").outputs[flow]
    assert flow == "sum.totals"
    assert "roll-back" in actual.stays or actual.gone
    world.close()


class Silent(Sum):
    """Never says anything."""

    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.sums(word=key.word, n=sum(row.n for row in group.items))


def test_a_table_that_nothing_changed_goes_back_without_old_records(tmp_path: Path) -> None:
    """It shows no epoch; the newest record names what it lacks, not all since the first."""
    keep = Retention(versions_min=60, versions_max=60, seconds=3600, attempt_seconds=0)
    world = World(tmp_path, engine=LocalEngine, retention=keep, collect_every=1, **OFTEN)
    world.translators["sum"] = Silent
    world.restart()
    world.controller.register(ONE)
    play(world, 8)
    record = world.store.dataflow("one")
    assert (world.parts.open_log(record.folder).oldest("sum") or 0) > 0
    world.controller.amendments.roll_back("one", "sum:6", who="me", why="x", pause=True)
    assert world.store.stages("one")[0].epoch == 7
    world.close()


class Newest(Translate):
    """The sum of each word, in a view."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = View("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.items) + sum(row.n for row in group.totals)
        out.totals(key.word, n)
        out.sums(key.word, n)


class Undone(Sum):
    """Sums changes, as their signs say."""

    items = Input("word STRING, n BIGINT, sign INT", route_by="word", changes="signed")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        came = sum(row.n * row.sign for row in group.items)
        out.sums(key.word, came + sum(row.n for row in group.sums))


@pytest.mark.soak
def test_changes_of_a_view_go_and_the_view_stays(tmp_path: Path) -> None:
    """What each reader has read is history; a roll-back reads again what it needs."""
    keep = Retention(versions_min=60, versions_max=60, seconds=3600, attempt_seconds=0)
    made: dict[str, Any] = {"retention": keep, "collect_every": 3, "verifier": Inline(), **OFTEN}
    world = World(tmp_path, engine=LocalEngine, **made)
    world.translators |= {"newest": Newest, "undone": Undone}
    world.restart()
    document = saying({"totals": {"hours": 0}})
    for stage, translator in (("sum", "newest"), ("behind", "undone")):
        document["stages"][stage]["translator"] = translator
    world.controller.register(document)
    play(world, EPOCHS)
    expected, oldest = states(world), horizon(world)
    assert oldest > 0
    assert expected[0] == expected[1]
    view = polars.read_delta(f"{world.tables}/one/state/sum.totals").select("word", "n")
    assert sorted(view.rows()) == [(f"w{at}", sum(range(at, EPOCHS, 3))) for at in range(3)]
    begun = world.controller.verifications.start("one", Request())
    verdicts = {
        one.table: one.status for one in world.controller.verifications.show(begun.id).tables
    }
    assert set(verdicts.values()) == {"equal"}
    back = world.controller.amendments.roll_back
    back("one", f"sum:{EPOCHS - 5}", who="me", why="x", pause=True)
    world.controller.resume("one")
    world.ticks()
    assert states(world) == expected
    play(world, 4, start=EPOCHS)
    assert horizon(world) >= oldest
    sums, undone = states(world)
    assert sums == undone
    world.close()
