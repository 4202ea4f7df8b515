"""Records of views and kept states as a user finds them: over REST and by `cbp state`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import cbp.client
from cbp import Input, Translate, View
from cbp.client.errors import ServiceProblemError
from cbp.engine.direct import LocalEngine
from stages.translators.latest import Latest
from stages.translators.top_k import TopK
from tests.controller.reading_client import Client
from tests.controller.world import World
from tests.controller.world_commands import call_json, call_text

pytestmark = pytest.mark.usefixtures("without_syncs")

PAGES = "site STRING, url STRING, score DOUBLE"
BOARD: dict[str, Any] = {
    "name": "diamond",
    "sources": {"scores": {"schema": PAGES}},
    "stages": {
        "pages": {
            "translator": "latest",
            "parameters": {"schema": PAGES, "key": "site, url", "gone": "score"},
            "inputs": {"rows": "scores"},
        },
        "best": {
            "translator": "top_k",
            "parameters": {
                "schema": PAGES,
                "group": "site",
                "key": "site, url",
                "by": "score",
                "k": 2,
            },
            "inputs": {"rows": "pages.latest"},
        },
    },
}
DAYS: list[list[tuple[Any, ...]]] = [
    [("a", "x", 3.0), ("a", "y", 2.0), ("a", None, 1.0), ("b", "x", 9.0)],
    [("a", "x", None), ("b", "x", 8.0)],
]
NOW = [
    {"rank": 1, "site": "a", "url": "y", "score": 2.0},
    {"rank": 2, "site": "a", "url": None, "score": 1.0},
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    made.translators |= {"latest": Latest, "top_k": TopK}
    made.restart()
    made.controller.register(BOARD)
    for day in DAYS:
        made.arrive("diamond", "scores", *day)
        made.clock.advance(1)
        made.ticks()
    yield made
    made.close()


def test_a_view_says_its_key_and_that_it_is_one(world: World) -> None:
    """A page that shows states can tell which have changes, and which columns find one record."""
    shown = {
        state["name"]: (state["kind"], state["key"], state["second_key"], state["keeps"])
        for stage in Client(world, world.controller).get()["stages"]
        for state in stage["states"]
    }
    assert shown == {
        "latest": ("view", "site STRING, url STRING", "", False),
        "top": ("view", "site STRING", "rank INT", False),
        "ranked": ("state", "site STRING", "place DOUBLE, url STRING", True),
    }


def test_one_record_is_found_by_its_second_key(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it all of the group; null is a value; what does not exist is a 404 that names it."""
    client = Client(world, world.controller)
    assert client.get("state", "best", "top", site="a")["items"] == NOW
    assert client.get("state", "best", "top", site="a", rank=2)["items"] == NOW[1:]
    ranked = client.get("state", "best", "ranked", site="a", _null="url")["items"]
    assert [row["place"] for row in ranked] == [-1.0]
    with pytest.raises(ServiceProblemError, match="rank=3") as caught:
        client.get("state", "best", "top", site="a", rank=3)
    assert caught.value.error_code == "not_found"
    with pytest.raises(ServiceProblemError, match="if site is null: --null site"):
        client.get("state", "best", "top", site="-")
    with pytest.raises(ServiceProblemError) as wrong:
        client.get("state", "best", "top", site="a", url="y")
    assert wrong.value.error_code == "request_invalid"
    command = ("state", "diamond", "best.top", "site=a", "rank=2")
    assert call_json(world, capsys, *command)["items"] == NOW[1:]
    assert call_text(world, capsys, *command).split() == [*NOW[1], "2", "a", "-", "1.0"]


def test_records_are_found_as_of_an_epoch(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """By key and page by page, over REST, by the public client and by the command alike."""
    client = Client(world, world.controller)
    first = {"_epoch": 0, "_stage": "best"}
    then = [
        {"rank": 1, "site": "a", "url": "x", "score": 3.0},
        {"rank": 2, "site": "a", "url": "y", "score": 2.0},
    ]
    for record in then:
        rank = record["rank"]
        assert client.get("state", "best", "top", site="a", rank=rank, **first)["items"] == [record]
    every = [*then, {"rank": 1, "site": "b", "url": "x", "score": 9.0}]
    now = [*NOW, {"rank": 1, "site": "b", "url": "x", "score": 8.0}]
    with client.session.connect() as rest:
        public = cbp.client.Client.over(rest)
        moment: dict[str, Any] = {"epoch": 0, "stage": "best"}
        assert public.look_up("diamond", "best.top", site="a", rank=2, **moment) == then[1:]
        assert public.look_up("diamond", "best.top", site="a", rank=2) == NOW[1:]
        assert by_place(public.state("diamond", "best.top", **moment)) == every
        assert by_place(public.state("diamond", "best.top")) == now
    at_first = ("--epoch", "0", "--stage", "best")
    one = ("state", "diamond", "best.top", "site=a", "rank=2")
    assert call_json(world, capsys, *one, *at_first)["items"] == then[1:]
    paged = call_json(world, capsys, *one[:3], *at_first, "--limit", "2")
    more = call_json(world, capsys, *one[:3], "--cursor", paged["cursor"])
    assert len(paged["items"]) == 2
    assert by_place([*paged["items"], *more["items"]]) == every


def by_place(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the records of a top in the order of their keys."""
    return sorted(map(dict, rows), key=itemgetter("site", "rank"))


class Tally(Translate):
    """A bag of all scores of a site."""

    scores = Input(PAGES, route_by="site")
    tally = View("site STRING, score DOUBLE")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit what there was, and what came."""
        for row in (*group.tally, *group.scores):
            out.tally(key.site, row.score)


def test_the_records_of_a_bag_are_looked_up_by_their_group_page_by_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal records as often as they are there; the pages are one version, whatever comes between.

    A second column names none of them.
    """
    world = World(tmp_path, engine=LocalEngine)
    world.translators |= {"tally": Tally}
    world.restart()
    stage = {"translator": "tally", "inputs": {"scores": "scores"}}
    document = {"name": "diamond", "sources": BOARD["sources"], "stages": {"tally": stage}}
    world.controller.register(document)
    client = Client(world, world.controller)

    def arrive(scores: list[float]) -> None:
        world.arrive("diamond", "scores", *[("a", "x", score) for score in scores])
        world.clock.advance(1)
        world.ticks()

    arrive([1.0, 2.0, 1.0, 3.0, 1.0])
    path = ("state", "tally", "tally")
    whole = client.get(*path, site="a")
    assert sorted(row["score"] for row in whole["items"]) == [1.0, 1.0, 1.0, 2.0, 3.0]
    assert whole["cursor"] is None
    items, page = [], client.get(*path, site="a", _limit=2)
    arrive([9.0])
    while True:
        items += page["items"]
        if page["cursor"] is None:
            break
        page = client.get(*path, site="a", _limit=2, _cursor=page["cursor"])
    assert items == whole["items"]
    shown = call_text(world, capsys, "state", "diamond", "tally.tally", "site=a", "--limit", "2")
    assert "--cursor" in shown
    with pytest.raises(ServiceProblemError) as wrong:
        client.get(*path, site="a", score=1.0)
    assert wrong.value.error_code == "request_invalid"
    assert call_text(world, capsys, "history", "diamond", "tally.tally", "site=a").count("9.0") == 1
    world.close()


def test_the_history_of_one_record_is_that_of_its_second_key(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it, of the group; an epoch that changed another record of the group is left out."""
    client = Client(world, world.controller)
    world.arrive("diamond", "scores", ("a", None, 1.5))
    world.clock.advance(1)
    world.ticks()
    path = ("state", "best", "top", "history")
    first = client.get(*path, site="a", rank=1)["items"]
    assert [(one["epoch"], len(one["before"]), len(one["after"])) for one in first] == [
        (1, 1, 1),
        (0, 0, 1),
    ]
    assert [one["after"][0]["url"] for one in first] == ["y", "x"]
    group = client.get(*path, site="a")["items"]
    assert [(one["epoch"], len(one["after"])) for one in group] == [(2, 2), (1, 2), (0, 2)]
    ranked = client.get("state", "best", "ranked", "history", site="a", _null="url")["items"]
    assert [one["after"][0]["place"] for one in ranked] == [-1.5, -1.0]
    page = client.get(*path, site="a", rank=1, _limit=1)
    with pytest.raises(ServiceProblemError) as foreign:
        client.get(*path, site="a", rank=2, _limit=1, _cursor=page["cursor"])
    assert foreign.value.error_code == "cursor_invalid"
    with pytest.raises(ServiceProblemError) as wrong:
        client.get(*path, site="a", url="y")
    assert wrong.value.error_code == "request_invalid"
    command = ("history", "diamond", "best.top", "site=a", "rank=1")
    assert call_json(world, capsys, *command)["items"] == first


def test_its_changes_are_a_flow(world: World) -> None:
    """Read as any other: each record with what became of it, and its sign."""
    flow = Client(world, world.controller).all("flows/best.top")
    last = [row for row in flow if row["_epoch"] == 1 and row["site"] == "a"]
    assert [(row["change_type"], row["sign"], row["rank"], row["url"]) for row in last] == [
        ("update_before", -1, 1, "x"),
        ("update_after", 1, 1, "y"),
        ("update_before", -1, 2, "y"),
        ("update_after", 1, 2, None),
    ]
