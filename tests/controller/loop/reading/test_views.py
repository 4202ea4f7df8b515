"""Views in the service: verified as they ran and at once, after deletes and updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import Input, Output, Translate, TranslateRecords, View
from cbp.errors import CbpError
from cbp.model.run.correction import Correction
from cbp.model.verification import Request
from cbp.model.version.version_change import Choice
from tests.change_feeds import feed_by_delta_rs, require_exact, require_exact_bag, versions_of
from tests.controller.verified import EACH_WAY, verified, world_of
from tests.controller.world import SCHEMA, World


class Newest(Translate):
    """The newest number of each word; a multiple of three deletes it."""

    words = Input(SCHEMA, route_by="word")
    newest = View(SCHEMA, key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit it."""
        numbers = [row.n for row in (*group.newest, *group.words)]
        if numbers[-1] % 3:
            out.newest(key.word, numbers[-1])


class PerNumber(Translate):
    """Counts words per number, from signed changes."""

    moved = Input("n BIGINT, sign INT", route_by="n", changes="signed")
    counts = View("n BIGINT, words BIGINT", key="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        words = sum(row.words for row in group.counts) + sum(row.sign for row in group.moved)
        if words + SLIP:
            out.counts(key.n, words + SLIP)


SLIP = 0


class Told(TranslateRecords):
    """Writes the new records."""

    rows = Input(SCHEMA, changes="after")
    told = Output(SCHEMA)

    def translate(self, record: Any, out: Any) -> None:
        """Write one."""
        out.told(*record)


class Heard(Translate):
    """A bag of all numbers of each word; a multiple of three takes one of each away."""

    words = Input(SCHEMA, route_by="word")
    heard = View(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit each as often as it is there."""
        counts = Counter(row.n for row in group.heard)
        for row in group.words:
            counts = counts - Counter(set(counts)) if row.n % 3 == 0 else counts + Counter([row.n])
        for n in counts.elements():
            out.heard(key.word, n)


class Loudness(Translate):
    """Counts the records of the bag per word, from signed changes."""

    moved = Input("word STRING, sign INT", route_by="word", changes="signed")
    loud = View("word STRING, records BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        records = sum(row.records for row in group.loud) + sum(row.sign for row in group.moved)
        if records:
            out.loud(key.word, records)


VIEWS = {
    "name": "views",
    "sources": {"words": {"schema": SCHEMA}},
    "stages": {
        "newest": {"translator": "newest", "inputs": {"words": "words"}},
        "counts": {"translator": "per_number", "inputs": {"moved": "newest.newest"}},
        "told": {"translator": "told", "inputs": {"rows": "newest.newest"}},
        "heard": {"translator": "heard", "inputs": {"words": "words"}},
        "loud": {"translator": "loud", "inputs": {"moved": "heard.heard"}},
    },
}
TRANSLATORS = {
    "newest": Newest,
    "per_number": PerNumber,
    "told": Told,
    "heard": Heard,
    "loud": Loudness,
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = world_of(tmp_path, **TRANSLATORS)
    made.controller.register(VIEWS)
    for number in range(5):
        made.arrive("views", "words", ("a", number), ("b", 1), ("c" * number, 2), ("d", 3 - number))
        made.clock.advance(1)
        made.ticks()
    yield made
    made.close()


@pytest.mark.part(every=2)
@EACH_WAY
def test_views_equal_their_recomputation(world: World, request_: Request) -> None:
    """State record by record, changes by their sums, also with all input at once."""
    verification = verified(world, "views", request_)
    undecided = {table.table for table in verification.tables if table.status == "undecided"}
    assert verification.error is None
    assert verification.status == ("undecided" if undecided else "equal")
    assert bool(undecided) == (request_.split == "at_once")
    kinds = {table.table: (table.kind, table.status) for table in verification.tables}
    assert kinds["flows/newest.newest"] == ("changes", "equal")
    assert kinds["flows/counts.counts"] == ("changes", "equal")
    assert kinds["state/counts.counts"] == ("state", "equal")
    assert kinds["state/heard.heard"] == ("state", "equal")
    assert kinds["flows/heard.heard"] == ("changes", "equal")
    assert max(Counter(rows(world, "state/heard.heard")).values()) > 1
    assert all(table.records for table in verification.tables if table.status == "equal")


@pytest.mark.part(every=2)
@EACH_WAY
def test_a_view_that_would_be_another_is_told_with_its_records(
    world: World, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state and the changes both show what is expected and what there is."""
    monkeypatch.setattr(f"{__name__}.SLIP", 1)
    verification = verified(world, "views", request_)
    assert (verification.status, verification.suspect) == ("differs", "counts")
    tables = {table.table: table for table in verification.tables}
    changes = tables["flows/counts.counts"]
    assert (changes.status, changes.columns) == ("differs", ("n", "words"))
    found = {record for one in changes.differing for record in one.found}
    kept = {record for one in tables["state/counts.counts"].differing for record in one.found}
    assert found == kept


def correct(world: World, *corrections: Correction, view: str = "newest") -> None:
    world.controller.amendments.correct(
        "views", view, view, corrections, who="me", why="it was wrong"
    )
    world.clock.advance(1)
    world.ticks()


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    """Return what a Delta reader sees of a table, without the columns that are ours."""
    record = world.store.dataflow("views")
    frame = polars.read_delta(f"{record.folder}/{table}")
    return sorted(frame.drop(["_epoch", "_hash", "_bucket"], strict=False).rows())


def test_a_corrected_record_is_a_change_that_readers_take_over(world: World) -> None:
    """Set, removed and added: readers, those in the view's own tasks too, see the new records."""
    before = rows(world, "flows/told.told")
    correct(
        world,
        Correction({"word": "b"}, "set", ({"n": 2},)),
        Correction({"word": "a"}, "records"),
        Correction({"word": "new"}, "records", ({"n": 7},)),
    )
    counts = Counter(n for _, n in rows(world, "state/newest.newest"))
    assert dict(rows(world, "state/counts.counts")) == counts
    told = Counter(rows(world, "flows/told.told"))
    told.subtract(before)
    assert +told == Counter([("b", 2), ("new", 7)])
    sums: Counter[Any] = Counter()
    for *record, _, sign in rows(world, "flows/newest.newest"):
        sums[tuple(record)] += sign
    assert +sums == Counter(rows(world, "state/newest.newest"))


def test_a_corrected_bag_has_the_records_that_it_was_given(world: World) -> None:
    """Equal ones too; those that it had already are no changes, and readers count on."""
    flow, before = "flows/heard.heard", Counter(rows(world, "state/heard.heard"))
    told = len(rows(world, flow))
    assert before["b", 1] > 2
    correct(
        world,
        Correction({"word": "b"}, "records", ({"n": 1}, {"n": 7}, {"n": 7})),
        Correction({"word": "new"}, "records", ({"n": 2}, {"n": 2})),
        view="heard",
    )
    after = Counter(rows(world, "state/heard.heard"))
    assert {one: n for one, n in after.items() if one[0] in ("b", "new")} == {
        ("b", 1): 1,
        ("b", 7): 2,
        ("new", 2): 2,
    }
    assert len(rows(world, flow)) - told == before["b", 1] - 1 + 2 + 2
    loud = dict(rows(world, "state/loud.loud"))
    assert loud == Counter(word for word, _ in after.elements())
    assert verified(world, "views").status == "undecided"


def test_a_correction_gives_no_key_two_records(world: World) -> None:
    """It is refused as an author's code would be, and nothing changes."""
    before = rows(world, "state/newest.newest")
    with pytest.raises(CbpError) as caught:
        correct(world, Correction({"word": "a"}, "records", ({"n": 1}, {"n": 2})))
    assert caught.value.code == "view_key_twice"
    assert rows(world, "state/newest.newest") == before


@pytest.mark.part(every=2)
@pytest.mark.parametrize("split", ["increments", "at_once"])
def test_what_follows_a_correction_is_verified_from_there(world: World, split: Any) -> None:
    """A record that was there before may go after it: changes since then sum up below zero."""
    correct(world, Correction({"word": "b"}, "set", ({"n": 2},)))
    world.arrive("views", "words", ("b", 3), ("a", 5), ("new", 1))
    world.clock.advance(1)
    world.ticks()
    verification = verified(world, "views", Request(split=split))
    assert verification.status == "undecided"
    statuses = {table.table: (table.kind, table.status) for table in verification.tables}
    assert statuses["flows/newest.newest"] == ("changes", "undecided")


@pytest.mark.soak
def test_the_change_data_feed_has_corrections_and_roll_backs(world: World) -> None:
    """What they change are changes of their versions, each key at most once, and nothing else."""
    views = {"newest.newest": ["word"], "counts.counts": ["n"]}
    correct(
        world,
        Correction({"word": "b"}, "set", ({"n": 2},)),
        Correction({"word": "new"}, "records", ({"n": 7},)),
    )
    world.controller.amendments.roll_back(
        "views", "newest:1", who="me", why="a bad file", pause=True
    )
    folder = world.store.dataflow("views").folder
    for view, key in views.items():
        path = f"{folder}/state/{view}"
        feed = feed_by_delta_rs(path)
        require_exact(path, feed, key)
        (back,) = (v for v, name in versions_of(path).items() if name == "CBP ROLLBACK")
        assert {kind for kind, _ in feed[back]} >= {"update_preimage", "delete"}, view
    path = f"{folder}/state/heard.heard"
    feed = feed_by_delta_rs(path)
    require_exact_bag(path, feed)
    (back,) = (v for v, name in versions_of(path).items() if name == "CBP ROLLBACK")
    assert feed[back]


@pytest.mark.soak
def test_a_view_that_is_rebuilt_loses_its_records_in_its_feed(world: World) -> None:
    """Each of them once, also where the files had lost rows; then they come again."""
    path = f"{world.store.dataflow('views').folder}/state/newest.newest"
    before = feed_by_delta_rs(path)
    world.controller.change(VIEWS, choice=Choice(rebuild=frozenset(VIEWS["stages"])))
    (anew,) = (v for v, name in versions_of(path).items() if name == "CBP CHANGE")
    world.clock.advance(1)
    world.ticks()
    feed = feed_by_delta_rs(path)
    require_exact(path, feed, ["word"])
    assert len(feed[anew]) > 3
    assert {kind for kind, _ in feed[anew]} == {"delete"}
    assert max(feed) > anew > max(before)


def test_a_roll_back_takes_the_changes_with_the_records(tmp_path: Path) -> None:
    """Back and on again is as if nothing had been, for the view, its changes and its readers."""
    world = world_of(tmp_path, **TRANSLATORS)
    world.controller.register(VIEWS)
    pictures = []
    for number in range(4):
        pictures.append(world.picture())
        world.arrive("views", "words", ("a", number), ("b", 1), ("d", 3 - number))
        world.clock.advance(1)
        world.ticks()
    last = world.picture()
    assert rows(world, "flows/newest.newest")
    for picture in reversed(pictures):
        to = str(sum(picture["views epochs"].values()))
        world.controller.amendments.roll_back("views", to, who="me", why="a bad file", pause=True)
        now = world.picture()
        assert _tables(now) == _tables(picture)
        world.controller.resume("views")
        world.ticks()
        assert world.picture() == last
    world.close()


def _tables(picture: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in picture.items() if not name.endswith("queues")}
