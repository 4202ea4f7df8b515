"""The history of a key over REST: what each epoch made of it, as far as versions are kept."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp.client.errors import ServiceProblemError
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.run.correction import Correction
from tests.controller.diamond import KEPT
from tests.controller.world import ONE, World
from tests.controller.world_commands import call_json, call_text, session_of

pytestmark = pytest.mark.usefixtures("without_syncs")

PATH = ("dataflows", "one", "state", "sum", "sums")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, retention=KEPT)
    made.controller.register(ONE)
    yield made
    made.close()


def arrive(world: World, *words: str) -> None:
    world.clock.advance(1)
    world.arrive("one", "a", *((word, 1) for word in words))
    world.ticks()


def records_of(world: World, word: str, **query: Any) -> list[Any]:
    """Return the records of one key; [] when there is none."""
    with session_of(world).connect() as service, suppress(ServiceProblemError):
        return list(service.get(*PATH, word=word, **query)["items"])
    return []


def history(world: World, **query: Any) -> Any:
    with session_of(world).connect() as service:
        return service.get(*PATH, "history", **{"word": "x", **query})


def test_the_history_is_what_look_ups_as_of_each_epoch_differ_in(world: World) -> None:
    """Each epoch that changed the key is there once, and no other one; before and after agree."""
    draw = random.Random(3)
    for _ in range(12):
        arrive(world, *(draw.choice("xyzabcdefgh") for _ in range(4)))
    expected, last = [], list[Any]()
    for epoch in range(12):
        now = records_of(world, "x", _epoch=epoch)
        if now != last:
            expected.append((epoch, last, now))
        last = now
    assert len(expected) > 2
    answer = history(world)
    shown = [(one["epoch"], one["before"], one["after"]) for one in answer["items"]]
    assert shown[::-1] == expected
    assert (answer["ends"], answer["cursor"]) == ("begin", None)
    runs = {run.epoch: run.id for run in world.store.runs("one").items}
    assert [one["run"] for one in answer["items"]] == [
        runs[one["epoch"]] for one in answer["items"]
    ]


def test_pages_put_together_are_the_whole_history(world: World) -> None:
    """A page of one change each; the cursor of the last page is null."""
    for _ in range(4):
        arrive(world, "x", "y")
    whole, items, cursor = history(world)["items"], list[Any](), None
    for _ in range(9):
        page = history(world, _limit=1, _cursor=cursor)
        assert len(page["items"]) <= 1
        items += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert items == whole
    assert len(whole) == 4
    with pytest.raises(ServiceProblemError) as caught:
        history(world, _cursor="v1.2.3")
    assert caught.value.error_code == "cursor_invalid"


def test_a_correction_and_what_a_roll_back_undid_are_marked(world: World) -> None:
    """Who corrected and why; an undone epoch stays in the history, as undone."""
    arrive(world, "x")
    arrive(world, "x")
    made = world.controller.amendments.correct(
        "one", "sum", "sums", [Correction({"word": "x"}, "set", ({"n": 10},))], who="me", why="late"
    )
    newest = history(world)["items"][0]
    assert newest["correction"] == {"by": "me", "reason": "late"}
    assert (newest["run"], newest["undone"]) == (made.run, False)
    assert (newest["before"][0]["n"], newest["after"][0]["n"]) == (2, 10)
    world.clock.advance(1)
    world.controller.amendments.roll_back("one", "sum:1", who="me", why="wrong")
    items = history(world)["items"]
    undone = {one["epoch"]: one["undone"] for one in items if one["correction"]}
    assert undone == {2: True}
    assert not items[-1]["undone"]


def test_a_history_ends_where_versions_are_not_kept(world: World) -> None:
    """What is still readable is shown; the end says that there was more."""
    world.engine_limits = EngineLimits(checkpoint_entries=4)
    world.restart()
    for _ in range(6):
        arrive(world, "x")
    full = history(world)
    assert (full["ends"], len(full["items"])) == ("begin", 6)
    world.clock.advance(7200)
    arrive(world, "x")
    newest = history(world)["items"][0]
    folder = world.store.dataflow("one").folder
    (node,) = world.controller.dataflow("one").stages.values()
    world.engine.garbage.collect(folder, node, queued=set, retention=KEPT)
    kept = history(world)
    assert (kept["ends"], kept["cursor"]) == ("not_kept", None)
    assert 0 < len(kept["items"]) < 7
    assert kept["items"] == [newest, *full["items"]][: len(kept["items"])]


def test_a_preview_is_what_the_correction_then_makes(world: World) -> None:
    """Set, replaced, removed and new keys; the preview itself changes nothing."""
    arrive(world, "x", "y", "z")
    body: Any = {
        "corrections": [
            {"key": {"word": "x"}, "set": {"n": 7}},
            {"key": {"word": "y"}, "records": []},
            {"key": {"word": "z"}, "records": [{"n": 1}, {"n": 2}]},
            {"key": {"word": "new"}, "set": {"n": 5}},
        ]
    }
    more: dict[str, Any] = {
        "content": json.dumps(body).encode(),
        "content_type": "application/json",
    }
    with session_of(world).connect() as service:
        shown = service.post(*PATH, "corrections", "preview", **more)
        assert [one["before"] for one in shown["items"]] == [
            [{"word": "x", "n": 1}],
            [{"word": "y", "n": 1}],
            [{"word": "z", "n": 1}],
            [],
        ]
        assert service.get("dataflows", "one", "corrections")["items"] == []
        service.post(*PATH, "corrections", **more, query={"reason": "test"})
        for one in shown["items"]:
            now = records_of(world, one["key"]["word"])
            assert sorted(map(str, now)) == sorted(map(str, one["after"]))


def test_commands_show_what_rest_has(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`cbp history` and `cbp edit --dry-run`: the same values, in a table or as JSON."""
    arrive(world, "x")
    arrive(world, "x")
    whole = history(world)
    assert call_json(world, capsys, "history", "one", "sum.sums", "word=x") == whole
    table = call_text(world, capsys, "history", "one", "sum.sums", "word=x", "--limit", "1")
    assert 'word="x", n=1' in table
    assert f"--cursor {history(world, _limit=1)['cursor']}" in table
    edit = ("edit", "one", "sum.sums", "word=x", "--set", "n=9", "--dry-run")
    assert call_json(world, capsys, *edit)["items"] == [
        {
            "key": {"word": "x"},
            "before": [{"word": "x", "n": 2}],
            "after": [{"word": "x", "n": 9}],
        }
    ]
    assert "Nothing was changed" in call_text(world, capsys, *edit)
    assert history(world) == whole
