"""Files that are replaced or taken back: after each step all tables are what counts by then."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import (
    ChangeRefusedError,
    DataflowInvalidError,
    NotFoundError,
    ReplaceRefusedError,
    RollbackImpossibleError,
)
from cbp.model.flow.retention import FlowRetention
from cbp.model.verification import Request
from cbp.model.version.version_change import Choice
from controller.ingest.errors import FileRetractedError, FileUnreadError, ReadmitRefusedError
from controller.ingest.folder.claims import CORRECTION_UNNAMED
from controller.ingest.uploads import Author
from controller.loop import LoopLimits
from controller.loop.housekeeping.input_retention import Keep
from controller.store.base import open_store
from tests.cbp.engine.small_limits import small_limits
from tests.controller.corrected_files import DOCUMENT, Shelf
from tests.controller.retained import TINY
from tests.controller.rollbacks import back
from tests.controller.verified import EACH_WAY, verified
from tests.new_database import put_new_database
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """Return a service with three days that were applied."""
    made = Shelf(tmp_path)
    fill(made)
    yield made
    made.close()


def fill(shelf: Shelf) -> None:
    """Apply three days."""
    for name, rows in DAYS.items():
        shelf.put(name, *rows)
        shelf.counts[name] = list(rows)
        shelf.take_in()
    shelf.require_right()


DAYS = {
    "monday": [("a", 1), ("b", 2), ("a", 1)],
    "tuesday": [("a", 5), ("c", 7), ("c", 7), ("d", 1)],
    "wednesday": [("b", 3), ("c", 1)],
}
RIGHT = [("a", 5), ("c", 7), ("b", 9), ("e", 4)]
"""Tuesday, corrected: one of two equal records goes, a word goes, others come."""


def replace_tuesday(shelf: Shelf) -> str:
    """Replace tuesday, and apply that."""
    claim = shelf.replace("tuesday", *RIGHT)
    shelf.counts["tuesday"] = RIGHT
    shelf.take_in()
    assert shelf.claim(claim.id).status == "accepted"
    return claim.id


def test_a_replaced_file_counts_as_if_it_had_been_the_first(shelf: Shelf) -> None:
    """In rows, on columns, and behind; the increment has what differs, and says who and why."""
    claim = shelf.claim(replace_tuesday(shelf))
    shelf.require_right()
    assert "d" not in shelf.sums()
    increment = shelf.world.store.increment("shelf", "a", 3)
    assert increment.increment.records == 2
    assert sum(file.rows for file in increment.increment.gone) == 2
    assert claim.same_as is not None
    assert claim.same_as["by"] == "replaced"
    assert (claim.same_as["who"], claim.same_as["why"]) == ("me", "a bad clock")
    assert (claim.same_as["file"], claim.same_as["index"]) == ("tuesday", 1)
    epochs = {stage.stage: stage.epoch for stage in shelf.world.store.stages("shelf")}
    assert epochs == {"sums": 4, "columns": 4, "numbers": 4, "per": 4}


def test_a_group_that_is_read_in_parts_is_computed_anew(tmp_path: Path) -> None:
    """One beyond a window, with more state than one, that shrinks, and one that goes."""
    shelf = Shelf(tmp_path, engine_limits=small_limits())
    fill(shelf)
    many = [("a", n) for n in range(200)]
    shelf.put("long", *many, ("z", 1))
    shelf.counts["long"] = [*many, ("z", 1)]
    shelf.take_in()
    shelf.require_right()
    shelf.replace("long", *many[50:], ("y", 1))
    shelf.counts["long"] = [*many[50:], ("y", 1)]
    shelf.take_in()
    shelf.require_right()
    shelf.retract("long")
    del shelf.counts["long"]
    shelf.take_in()
    shelf.require_right()
    shelf.close()


def test_a_file_is_taken_back_and_can_come_again(shelf: Shelf) -> None:
    """Also the same file, dropped once more by its producer; and it can be replaced then."""
    shelf.retract("tuesday")
    del shelf.counts["tuesday"]
    shelf.take_in()
    shelf.require_right()
    with pytest.raises(FileRetractedError):
        shelf.retract("tuesday")
    shelf.put("tuesday", *DAYS["tuesday"])
    shelf.counts["tuesday"] = DAYS["tuesday"]
    shelf.take_in()
    shelf.require_right()
    replace_tuesday(shelf)
    shelf.require_right()


def test_a_file_that_is_not_read_yet_is_taken_back_later(shelf: Shelf) -> None:
    """Its records are not known yet; the refusal says so, and not that there is no such file."""
    shelf.put("thursday", ("a", 1))
    with pytest.raises(FileUnreadError, match="not read yet"):
        shelf.retract("thursday")
    with pytest.raises(NotFoundError):
        shelf.retract("friday")
    shelf.take_in()
    shelf.retract("thursday")
    shelf.take_in()
    shelf.put("thursday", ("a", 2))
    with pytest.raises(FileUnreadError):  # not: it was retracted
        shelf.retract("thursday")
    shelf.take_in()
    shelf.retract("thursday")
    shelf.take_in()
    shelf.require_right()


def test_the_same_content_changes_nothing(shelf: Shelf) -> None:
    """It is a retry, also of a replacement that was applied."""
    again = shelf.replace("tuesday", *DAYS["tuesday"])
    assert again.status == "duplicate"
    replace_tuesday(shelf)
    assert shelf.replace("tuesday", *RIGHT).status == "duplicate"
    shelf.take_in()
    shelf.require_right()


def test_a_preview_counts_and_changes_nothing(shelf: Shelf) -> None:
    """Records that come and go, and the groups of each reader that they touch."""
    compared = shelf.compare("tuesday", *RIGHT)
    assert (compared.came, compared.gone) == (2, 2)
    assert compared.groups == {"sums": 4, "columns": 4, "numbers": 4}
    shelf.take_in()
    shelf.require_right()
    assert shelf.world.store.next_index("shelf", "a") == 3
    with pytest.raises(NotFoundError):
        shelf.compare("sunday", *RIGHT)


def test_replacements_that_wait_are_applied_together(shelf: Shelf) -> None:
    """Several of one file, and of others, and new files between, in one pass."""
    shelf.replace("tuesday", *RIGHT)
    shelf.put("thursday", ("a", 2), ("e", 4))
    shelf.replace("monday", ("a", 1))
    shelf.counts |= {"tuesday": RIGHT, "thursday": [("a", 2), ("e", 4)], "monday": [("a", 1)]}
    shelf.scan()
    shelf.replace("tuesday", ("z", 1))
    shelf.retract("wednesday")
    shelf.counts["tuesday"] = [("z", 1)]
    del shelf.counts["wednesday"]
    shelf.take_in()
    shelf.require_right()


@pytest.mark.part(every=2)
@EACH_WAY
def test_a_verification_replays_replacements(shelf: Shelf, request_: Request) -> None:
    """From scratch, in any split and by both engines, the tables are equal."""
    replace_tuesday(shelf)
    shelf.retract("monday")
    del shelf.counts["monday"]
    shelf.take_in()
    shelf.require_right()
    assert verified(shelf.world, "shelf", request_).status == "equal"


@pytest.mark.soak
def test_a_roll_back_goes_behind_a_replacement_and_forward_again(shelf: Shelf) -> None:
    """What had read it reads it again."""
    replace_tuesday(shelf)
    shelf.put("thursday", ("d", 4))
    shelf.counts["thursday"] = [("d", 4)]
    shelf.take_in()
    for to in ("sums:2", "sums:1", "0"):
        back(shelf.world, to, name="shelf")
        shelf.world.ticks()
        shelf.require_right()


@pytest.mark.soak
def test_a_replacement_that_a_roll_back_drops_is_undone(shelf: Shelf) -> None:
    """The earlier file counts again; and it can be replaced once more."""
    replace_tuesday(shelf)
    back(shelf.world, "sums:2", name="shelf", drop_later=True)
    shelf.counts["tuesday"] = DAYS["tuesday"]
    shelf.world.ticks()
    shelf.require_right()
    replace_tuesday(shelf)
    shelf.require_right()


def test_a_roll_back_leaves_out_a_replacement_or_refuses(shelf: Shelf) -> None:
    """A file is not left out while what replaced it stays; both can be."""
    replace_tuesday(shelf)
    with pytest.raises(RollbackImpossibleError, match="a/3"):
        back(shelf.world, "0", name="shelf", without=["a/1"])
    back(shelf.world, "0", name="shelf", without=["a/3"])
    shelf.counts["tuesday"] = DAYS["tuesday"]
    shelf.world.ticks()
    shelf.require_right()
    replace_tuesday(shelf)
    back(shelf.world, "0", name="shelf", without=["a/1", "a/4"])
    del shelf.counts["tuesday"]
    shelf.world.ticks()
    shelf.require_right()


@pytest.mark.soak
def test_a_lost_database_brings_replacements_back(shelf: Shelf, tmp_path: Path) -> None:
    """From the folders: what waited and what was applied, and what replaced what."""
    replace_tuesday(shelf)
    shelf.retract("monday")
    del shelf.counts["monday"]
    shelf.scan()
    lose(shelf, tmp_path)
    shelf.take_in()
    shelf.require_right()
    shelf.put("monday", *DAYS["monday"])
    shelf.counts["monday"] = DAYS["monday"]
    shelf.take_in()
    replace_tuesday_again = [("c", 7)]
    shelf.replace("tuesday", *replace_tuesday_again)
    shelf.counts["tuesday"] = replace_tuesday_again
    shelf.take_in()
    shelf.require_right()


def test_a_lost_database_loses_no_request_that_waits(tmp_path: Path) -> None:
    """A file that was to replace another is no further one, wherever names say nothing."""
    source = {**DOCUMENT["sources"]["a"], "same_name": "add"}
    shelf = Shelf(tmp_path, {**DOCUMENT, "sources": {"a": source}})
    fill(shelf)
    shelf.replace("tuesday", *RIGHT)
    shelf.retract("monday")
    shelf.counts["tuesday"] = RIGHT
    del shelf.counts["monday"]
    lose(shelf, tmp_path)
    shelf.take_in()
    shelf.require_right()
    shelf.close()


def test_a_lost_database_keeps_what_a_refused_request_was(tmp_path: Path) -> None:
    """Once its content is mended it replaces the file, and is no further one beside it."""
    source = {**DOCUMENT["sources"]["a"], "same_name": "add"}
    shelf = Shelf(tmp_path, {**DOCUMENT, "sources": {"a": source}})
    fill(shelf)
    wrong = io.BytesIO(b'{"word": "a", "n": "x"}\n')
    me = Author("me", "mended")
    shelf.drop_folder.replacements.ask(shelf.place("a"), "tuesday", wrong, me)
    shelf.take_in()
    lose(shelf, tmp_path)
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    mended = io.BytesIO(b'{"word": "a", "n": 6}\n')
    shelf.drop_folder.readmit(shelf.place("a"), claim.id, mended, me)
    shelf.counts["tuesday"] = [("a", 6)]
    shelf.take_in()
    shelf.require_right()
    shelf.close()


LONG = "ä" * 120
"""A file of this name can be dropped; the name of its copy has no room for it."""


def test_a_lost_database_takes_no_correction_for_data(tmp_path: Path) -> None:
    """Where its copy cannot name the file that it corrects, it goes to quarantine, and says so."""
    source = {**DOCUMENT["sources"]["a"], "same_name": "add"}
    shelf = Shelf(tmp_path, {**DOCUMENT, "sources": {"a": source}})
    fill(shelf)
    shelf.put(LONG, ("x", 1))
    shelf.counts[LONG] = [("x", 1)]
    shelf.take_in()
    shelf.require_right()
    shelf.replace(LONG, ("x", 2))
    lose(shelf, tmp_path)
    shelf.take_in()
    shelf.require_right()
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    assert (claim.reason or {})["code"] == CORRECTION_UNNAMED
    me = Author("me", "again")
    with pytest.raises(ReadmitRefusedError, match="name of the file that it corrects is lost"):
        shelf.drop_folder.readmit(shelf.place("a"), claim.id, None, me)
    mended = io.BytesIO(b'{"word": "x", "n": 2}\n')
    with pytest.raises(ReadmitRefusedError, match="discard it, and send the correction again"):
        shelf.drop_folder.readmit(shelf.place("a"), claim.id, mended, me)
    shelf.drop_folder.quarantine.discard(shelf.place("a"), claim.id, me)
    shelf.replace(LONG, ("x", 2))
    shelf.counts[LONG] = [("x", 2)]
    shelf.take_in()
    shelf.retract(LONG)
    lose(shelf, tmp_path)
    shelf.take_in()
    shelf.require_right()
    shelf.close()


def lose(shelf: Shelf, tmp_path: Path) -> None:
    """Put an empty database in place of the shelf's, and bring back what the folders say."""
    shelf.world.store.close()
    path = tmp_path / f"lost{shelf.asked}.db"
    shelf.asked += 1
    put_new_database(path)
    shelf.world.store = open_store(f"sqlite:///{path}", faults=shelf.world.faults)
    shelf.start()
    assert shelf.world.controller.rebuild() == ["shelf"]


FAULTS = (
    "claim",
    "rename",
    "data_sync",
    "increment_file",
    "source_log",
    "data_file",
    "intention",
    "log_entry",
    "sql_commit",
    "clean_up",
)


@pytest.mark.part(every=10)
@pytest.mark.parametrize("point", [f"{f}.{side}" for f in FAULTS for side in ("before", "after")])
def test_a_kill_at_any_effect_loses_and_doubles_nothing(shelf: Shelf, point: str) -> None:
    """At the first, the third and the sixth passage; then a restart, and all is as it should be."""
    struck = 0
    for number, passage in enumerate((1, 3, 6)):
        rows = [*RIGHT, ("f", number)]
        shelf.world.faults.to = PlannedFaults(point, passage=passage)
        try:
            shelf.replace("tuesday", *rows, key=f"r{number}")
            shelf.take_in()
        except Crash:
            struck += 1
        shelf.world.faults.to = PlannedFaults()
        shelf.start()
        shelf.world.controller.recover()
        shelf.replace("tuesday", *rows, key=f"r{number}")
        shelf.counts["tuesday"] = rows
        shelf.take_in()
        shelf.require_right()
    assert struck


@pytest.mark.part(every=4, first=1)
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """Added, replaced, taken back, rolled back, lost, at random: all tables are always right."""
    dice = random.Random(seed)
    shelf = Shelf(tmp_path)
    for step in range(14):
        name = f"f{dice.randrange(4)}"
        rows = [(dice.choice("abcde"), dice.randrange(4)) for _ in range(dice.randrange(5))]
        if name not in shelf.counts:
            shelf.put(name, *rows, ("always", step))
            shelf.counts[name] = [*rows, ("always", step)]
        elif dice.random() < 0.3:
            shelf.retract(name)
            del shelf.counts[name]
        else:
            kept = [row for row in shelf.counts[name] if dice.random() < 0.6]
            shelf.replace(name, *kept, *rows, ("always", step))
            shelf.counts[name] = [*kept, *rows, ("always", step)]
        if dice.random() < 0.7:
            shelf.take_in()
            shelf.require_right()
        else:
            shelf.scan()
        if dice.random() < 0.2:
            shelf.start()
            shelf.world.controller.recover()
        if dice.random() < 0.2:
            ran = sum(stage.epoch for stage in shelf.world.store.stages("shelf"))
            back(shelf.world, str(dice.randint(0, ran)), name="shelf")
        if dice.random() < 0.1:
            lose(shelf, tmp_path)
    shelf.take_in()
    shelf.require_right()
    assert verified(shelf.world, "shelf").status == "equal"
    shelf.close()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"any_order": False}, "any_order"),
        ({"translator": "sum"}, "is not a view"),
        ({"translator": "upper", "inputs": {"words": "a"}}, "without `route_by`"),
        ({"runnable": {"count_window": {"size": 2}}}, "rule"),
    ],
)
def test_what_cannot_follow_is_named_before_anything_happens(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    """The command is refused, and so is a document that lets all files replace others."""
    stage = {**DOCUMENT["stages"]["sums"], **changed}
    document = {"name": "shelf", "sources": DOCUMENT["sources"], "stages": {"sums": stage}}
    made = Shelf(tmp_path, document)
    made.put("monday", *DAYS["monday"])
    made.take_in()
    with pytest.raises(ReplaceRefusedError, match=r"stages\.sums cannot apply.*" + why):
        made.replace("monday", ("a", 1))
    assert made.world.store.next_index("shelf", "a") == 1
    sources = {"a": {**DOCUMENT["sources"]["a"], "same_name": "replace"}}
    with pytest.raises(DataflowInvalidError, match=why):
        made.world.controller.validate({**document, "sources": sources})
    made.close()


def test_a_stage_follows_once_its_author_has_said_what_was_missing(tmp_path: Path) -> None:
    """The refusal names the declaration; registered, it goes for files that came before, too."""
    stages = {"sums": {**DOCUMENT["stages"]["sums"], "any_order": False}}
    document = {"name": "shelf", "sources": DOCUMENT["sources"], "stages": stages}
    shelf = Shelf(tmp_path, document)
    shelf.put("tuesday", *DAYS["tuesday"])
    shelf.take_in()
    with pytest.raises(ReplaceRefusedError, match="write `any_order: true`"):
        shelf.replace("tuesday", *RIGHT)
    stages["sums"]["any_order"] = True
    shelf.document = document
    shelf.world.controller.change(document)
    assert [stage.epoch for stage in shelf.world.store.stages("shelf")] == [1]
    shelf.replace("tuesday", *RIGHT)
    shelf.counts["tuesday"] = RIGHT
    shelf.take_in()
    assert shelf.sums() == shelf.right()
    shelf.close()


def test_a_later_stage_begins_with_replacements_if_it_can_follow(shelf: Shelf) -> None:
    """From what is retained; one that cannot is refused, and named. A rebuilt one follows on."""
    replace_tuesday(shelf)
    stages = {**DOCUMENT["stages"], "more": DOCUMENT["stages"]["sums"]}
    document = {**DOCUMENT, "stages": stages}
    unable = {**document, "stages": {**stages, "more": {**stages["more"], "any_order": False}}}
    choice = Choice(retained=frozenset({"more"}))
    with pytest.raises(ChangeRefusedError, match="any_order"):
        shelf.world.controller.change(unable, choice=choice)
    shelf.world.controller.change(document, choice=choice)
    shelf.document = document
    shelf.take_in()
    shelf.require_right()
    assert shelf.sums("more") == shelf.right()
    shelf.retract("monday")
    del shelf.counts["monday"]
    shelf.take_in()
    shelf.require_right()
    assert shelf.sums("more") == shelf.right()


def test_a_stage_that_began_later_than_its_input_cannot_follow(shelf: Shelf) -> None:
    """It never read the records that would be taken back, so it is named, and nothing changes."""
    stages = {**DOCUMENT["stages"], "more": DOCUMENT["stages"]["sums"]}
    shelf.world.controller.change({**DOCUMENT, "stages": stages})
    with pytest.raises(
        ReplaceRefusedError, match=r"stages\.more cannot apply.* did not begin with the first"
    ):
        shelf.replace("tuesday", *RIGHT)


def test_a_producer_that_overwrites_replaces(tmp_path: Path) -> None:
    """With `same_name: replace`, also back to what a file was, and among many in one pass."""
    sources = {"a": {**DOCUMENT["sources"]["a"], "same_name": "replace", "batch": {"files": 10}}}
    shelf = Shelf(tmp_path, {**DOCUMENT, "sources": sources})
    for name, rows in (*DAYS.items(), ("tuesday", RIGHT), ("friday", [("a", 1)])):
        shelf.put(name, *rows)
        shelf.counts[name] = list(rows)
    shelf.take_in()
    shelf.require_right()
    shelf.put("tuesday", *DAYS["tuesday"])
    shelf.counts["tuesday"] = DAYS["tuesday"]
    shelf.take_in()
    shelf.require_right()
    shelf.close()


def test_a_replacement_of_inputs_that_are_gone_is_refused(shelf: Shelf) -> None:
    """Not applied in part: the error names the source, from when on it is kept, and what to do."""
    shelf.world.store.forget_increments("shelf", "a", below=1)
    with pytest.raises(ReplaceRefusedError, match="from number 1 on"):
        shelf.replace("tuesday", *RIGHT)


def test_inputs_stay_from_when_a_replacement_was_asked_for(tmp_path: Path) -> None:
    """It was not refused, so a collection before it is taken in leaves what it recomputes from."""
    keep, limits = Keep(FlowRetention(0), 5), LoopLimits(records_kept=1)
    shelf = Shelf(tmp_path, keep=keep, limits=limits, retention=TINY, collect_every=1000)
    fill(shelf)
    shelf.replace("tuesday", *RIGHT)
    shelf.world.controller.housekeeping.collect("shelf")
    shelf.counts["tuesday"] = RIGHT
    shelf.take_in()
    shelf.require_right()
    shelf.world.controller.housekeeping.collect("shelf")
    shelf.world.ticks()
    shelf.put("thursday", ("a", 2))
    shelf.counts["thursday"] = [("a", 2)]
    shelf.take_in()
    shelf.world.controller.housekeeping.collect("shelf")
    with pytest.raises(ReplaceRefusedError):
        shelf.replace("wednesday", ("z", 1))
    shelf.require_right()
    shelf.close()
