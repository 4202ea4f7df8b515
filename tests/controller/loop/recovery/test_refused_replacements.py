"""Replacements that cannot be right: refused before any record is taken back, and then settled."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input
from cbp.engine.direct import LocalEngine
from cbp.errors import OperatingError, ReplaceRefusedError
from cbp.model.run.correction import Correction
from cbp.model.version.version_change import Choice
from controller.ingest.errors import FileNameSharedError
from controller.ingest.uploads import Author
from controller.store.base import ClaimRecord
from tests.controller.corrected_files import DOCUMENT, Row, Shelf
from tests.controller.rollbacks import back
from tests.controller.verified import verified
from tests.controller.world import ONE, SCHEMA, Sum, World

pytestmark = pytest.mark.usefixtures("without_syncs")

MONDAY, TUESDAY = [("a", 1), ("b", 2)], [("a", 5), ("c", 7)]
ME = Author("me", "mended")


class Again(Sum):
    """Other code with the same result."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        super().translate(key, group, out)


class Two(Sum):
    """The same, with an input more."""

    more = Input("word STRING, n BIGINT", route_by="word")


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """Return a service with two days that were applied."""
    made = Shelf(tmp_path)
    fill(made)
    yield made
    made.close()


def fill(shelf: Shelf) -> None:
    """Apply two days."""
    for name, rows in (("monday", MONDAY), ("tuesday", TUESDAY)):
        shelf.put(name, *rows)
        shelf.counts[name] = list(rows)
        shelf.take_in()
    shelf.require_right()


def with_source(**setting: Any) -> dict[str, Any]:
    return {**DOCUMENT, "sources": {"a": {**DOCUMENT["sources"]["a"], **setting}}}


def refused(shelf: Shelf, code: str) -> ClaimRecord:
    """Expect one file in quarantine, for this reason."""
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    assert (claim.reason or {})["code"] == code
    return claim


def readmit(shelf: Shelf, claim: ClaimRecord, content: bytes | None = None) -> None:
    mended = None if content is None else io.BytesIO(content)
    shelf.drop_folder.readmit(shelf.place("a"), claim.id, mended, ME)
    shelf.take_in()


def add_under_its_name(shelf: Shelf) -> None:
    """Admit further records of tuesday, as an operator does."""
    shelf.put("tuesday", ("d", 4))
    shelf.take_in()
    readmit(shelf, refused(shelf, "same_name"))
    shelf.counts["more of tuesday"] = [("d", 4)]
    shelf.require_right()


def test_a_name_of_several_files_says_not_which_one_is_replaced(shelf: Shelf) -> None:
    """Replace, retract and a dry run name the increments; no file that counts is counted twice."""
    add_under_its_name(shelf)
    for ask in (
        lambda: shelf.replace("tuesday", ("a", 5)),
        lambda: shelf.retract("tuesday"),
        lambda: shelf.compare("tuesday", ("a", 5)),
    ):
        with pytest.raises(FileNameSharedError) as caught:
            ask()
        assert caught.value.details["increments"] == [1, 2]
    shelf.replace("monday", ("z", 1))
    shelf.counts["monday"] = [("z", 1)]
    shelf.take_in()
    shelf.require_right()


def test_a_file_that_overwrites_is_refused_if_several_have_its_name(shelf: Shelf) -> None:
    """Also one that waits together with a file that was added under its name."""
    shelf.put("tuesday", ("d", 4))
    shelf.take_in()
    added = refused(shelf, "same_name")
    shelf.document = with_source(same_name="replace")
    shelf.world.controller.change(shelf.document)
    shelf.drop_folder.readmit(shelf.place("a"), added.id, None, ME)
    shelf.counts["more of tuesday"] = [("d", 4)]
    shelf.put("tuesday", ("e", 4))
    shelf.take_in()
    refused(shelf, "name_shared")
    shelf.require_right()


def test_a_retracted_file_comes_again_where_every_file_is_added(tmp_path: Path) -> None:
    """The same content under the same name is no retry of a file that no longer counts."""
    shelf = Shelf(tmp_path, with_source(same_name="add"))
    fill(shelf)
    shelf.retract("tuesday")
    del shelf.counts["tuesday"]
    shelf.take_in()
    shelf.require_right()
    shelf.put("tuesday", *TUESDAY)
    shelf.counts["tuesday"] = TUESDAY
    shelf.take_in()
    shelf.require_right()
    assert shelf.put("tuesday", *TUESDAY).status == "duplicate"
    shelf.replace("tuesday", ("c", 7), ("d", 1))
    shelf.counts["tuesday"] = [("c", 7), ("d", 1)]
    shelf.take_in()
    shelf.require_right()
    assert verified(shelf.world, "shelf").status == "equal"
    shelf.close()


def test_a_mended_replacement_replaces(shelf: Shelf) -> None:
    """A refused one is not data beside the file that it was meant to replace."""
    wrong = io.BytesIO(b'{"word": "a", "n": "x"}\n')
    shelf.drop_folder.replacements.ask(shelf.place("a"), "tuesday", wrong, ME)
    shelf.take_in()
    readmit(shelf, refused(shelf, "value_type"), b'{"word": "a", "n": 6}\n')
    shelf.counts["tuesday"] = [("a", 6)]
    shelf.require_right()
    (claim,) = [c for c in shelf.world.store.claims("shelf", "a").items if c.index == 2]
    said = claim.same_as or {}
    assert (said["by"], said["who"], said["why"]) == ("replaced", "me", "mended")
    assert not shelf.world.store.claims("shelf", "a", status="quarantined").items


def test_a_file_replaces_none_if_input_is_gone_or_state_was_corrected(tmp_path: Path) -> None:
    """It goes to quarantine, and no stage stops for it; other files come."""
    shelf = Shelf(tmp_path, with_source(same_name="replace"))
    fill(shelf)
    shelf.world.store.forget_increments("shelf", "a", below=1)
    shelf.put("tuesday", ("a", 6))
    shelf.put("wednesday", ("b", 1))
    shelf.counts["wednesday"] = [("b", 1)]
    shelf.take_in()
    claim = refused(shelf, "replace_refused")
    assert "from number 1 on" in (claim.reason or {})["message"]
    shelf.require_right()
    readmit(shelf, claim)
    assert refused(shelf, "replace_refused").id != claim.id
    shelf.put("tuesday", *TUESDAY, ("e", 1))  # it takes nothing back
    shelf.counts["tuesday"] = [*TUESDAY, ("e", 1)]
    shelf.take_in()
    shelf.require_right()
    shelf.close()


def test_a_correction_of_state_is_in_the_way_until_a_rebuild(shelf: Shelf) -> None:
    """After it tables are computed from the files again, until the swap is undone."""

    def wrong() -> None:
        """Correct a state, which no computation from the files gives."""
        right = [Correction({"word": "a"}, "set", ({"n": 100, "records": 1},))]
        amend = shelf.world.controller.amendments.correct
        amend("shelf", "sums", "totals", right, who="me", why="wrong")
        shelf.world.ticks()
        with pytest.raises(ReplaceRefusedError, match="corrected its state"):
            shelf.retract("tuesday")

    def replaced(*rows: Row) -> None:
        shelf.replace("tuesday", *rows)
        shelf.counts["tuesday"] = list(rows)
        shelf.take_in()
        shelf.require_right()

    wrong()
    jobs = shelf.world.controller.rebuild_jobs
    jobs.swap("shelf", jobs.start_present("shelf").id)
    replaced(("a", 6))
    jobs.swaps.back("shelf")
    with pytest.raises(ReplaceRefusedError, match="corrected its state"):
        shelf.retract("tuesday")
    jobs.swap("shelf", jobs.start_present("shelf").id)
    wrong()
    jobs.swaps.back("shelf")
    jobs.swap("shelf", jobs.start_present("shelf").id)
    replaced(("c", 8))


def test_a_request_is_checked_again_when_its_file_is_read(shelf: Shelf) -> None:
    """Input was removed between the check and the request: no stage stops for it."""
    shelf.world.store.forget_increments("shelf", "a", below=1)
    content = io.BytesIO(b'{"word": "z", "n": 1}')
    shelf.drop_folder.replacements.ask(shelf.place("a"), "tuesday", content, ME)
    shelf.take_in()
    assert "from number 1 on" in (refused(shelf, "replace_refused").reason or {})["message"]
    shelf.require_right()
    assert not any(stage.paused_because for stage in shelf.world.store.stages("shelf"))


def test_files_of_one_increment_are_replaced_by_themselves(tmp_path: Path) -> None:
    """A roll-back behind both brings both back."""
    shelf = Shelf(tmp_path, with_source(batch={"files": 10}))
    for name, rows in (("monday", MONDAY), ("tuesday", TUESDAY)):
        shelf.put(name, *rows)
    shelf.take_in()
    assert shelf.world.store.next_index("shelf", "a") == 1
    for name, rows in (("monday", [("b", 3)]), ("tuesday", [("c", 4)])):
        shelf.replace(name, *rows)
        shelf.counts[name] = list(rows)
        shelf.take_in()
    shelf.require_right()
    back(shelf.world, "0", name="shelf")
    shelf.world.ticks()
    shelf.require_right()
    shelf.close()


def test_a_file_that_came_again_after_a_retraction_comes_back(shelf: Shelf) -> None:
    """By a roll-back behind the one that dropped it: it is not the file that was retracted."""
    shelf.retract("tuesday")
    shelf.take_in()
    moment = shelf.world.controller.amendments.moments("shelf", limit=1)[0].point.number
    shelf.put("tuesday", *TUESDAY)
    shelf.take_in()
    shelf.require_right()
    back(shelf.world, str(moment), name="shelf", drop_later=True)
    shelf.world.ticks()
    del shelf.counts["tuesday"]
    shelf.require_right()
    back(shelf.world, "0", name="shelf")
    shelf.world.ticks()
    shelf.counts["tuesday"] = TUESDAY
    shelf.require_right()


def test_a_refusal_says_what_to_do(shelf: Shelf) -> None:
    """The increments of the name, in the form that a roll-back takes."""
    add_under_its_name(shelf)
    with pytest.raises(OperatingError, match="--without a/1 --without a/2"):
        shelf.retract("tuesday")


def test_a_stage_that_got_an_input_after_its_rebuild_is_refused(tmp_path: Path) -> None:
    """The position at which the rebuild began does not have that input."""
    world = World(tmp_path, engine=LocalEngine)
    world.translators |= {"again": Again, "two": Two}
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()

    def change(translator: str, choice: Choice, **inputs: str) -> None:
        stage = {"translator": translator, "inputs": {"items": "a", **inputs}}
        sources = {name: {"schema": SCHEMA} for name in {"a", *inputs.values()}}
        document = {**ONE, "sources": sources, "stages": {"sum": stage}}
        world.controller.change(document, choice=choice)
        world.ticks()

    change("again", Choice(rebuild=frozenset({"sum"})))
    change("two", Choice(keep=frozenset({"sum"})), more="b")
    with pytest.raises(ReplaceRefusedError, match=r"stages\.sum cannot apply corrections"):
        world.controller.retained.check("one", "a")
    world.close()
