"""The grid of increments by stage, over REST and the command line, while runs go on and fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controller.world import DIAMOND, World
from tests.controller.world_commands import call_json, call_text, session_of

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.controller.register(DIAMOND)
    yield made
    made.close()


def grid(world: World, **query: Any) -> Any:
    with session_of(world).connect() as service:
        return service.get("dataflows", "diamond", "increments", "grid", **query)


def table(answer: Any) -> dict[int, dict[str, str]]:
    """Return index -> stage -> status."""
    names = [one["name"] for one in answer["stages"]]
    return {
        row["index"]: dict(zip(names, (c["status"] for c in row["cells"]), strict=True))
        for row in answer["items"]
    }


def arrive(world: World, source: str = "a") -> None:
    world.clock.advance(1)
    world.arrive("diamond", source, ("x", 1))


def test_a_cell_names_the_run_that_applied_it(world: World) -> None:
    """Compared with what the runs say that they read; other sources' stages have none."""
    for _ in range(3):
        arrive(world)
        arrive(world, "b")
        world.ticks()
    answer = grid(world, flow="a")
    assert answer["flows"][:2] == ["a", "b"]
    applied = {"left": "applied", "right": "none", "join": "applied"}
    assert table(answer) == {2: applied, 1: applied, 0: applied}
    columns = [one["name"] for one in answer["stages"]]
    for row in answer["items"]:
        cells = dict(zip(columns, row["cells"], strict=True))
        left = world.store.run(cells["left"]["run"])
        assert row["index"] in left.read["items"]
        joined = world.store.run(cells["join"]["run"])
        assert left.epoch in joined.read["left"]
        assert cells["join"]["epoch"] == joined.epoch
    assert set(table(grid(world, flow="left.totals"))[0].values()) == {"none", "applied"}


def test_what_waits_is_shown_and_can_be_asked_for_alone(world: World) -> None:
    """A paused stage lets it wait; stages behind it are upstream; the filter shows only these."""
    arrive(world)
    arrive(world, "b")
    world.ticks()
    world.controller.pause_stage("diamond", "left")
    arrive(world)
    world.ticks()
    waits = {"left": "waiting", "right": "none", "join": "upstream"}
    assert table(grid(world))[1] == waits
    assert table(grid(world, not_applied=True)) == {1: waits}
    assert [one["stopped"] != "" for one in grid(world)["stages"]].count(True) == 1


def test_pages_put_together_are_the_grid(world: World) -> None:
    """With and without the filter; rows that are left out do not end a page's cursor."""
    for _ in range(4):
        arrive(world)
        arrive(world, "b")
        world.ticks()
    world.controller.pause_stage("diamond", "join")
    for _ in range(3):
        arrive(world)
        world.ticks()
    for asked in ({}, {"not_applied": True}):
        whole = grid(world, limit=100, **asked)["items"]
        items, cursor = list[Any](), None
        for _ in range(20):
            page = grid(world, limit=2, cursor=cursor, **asked)
            assert len(page["items"]) <= 2
            items += page["items"]
            if (cursor := page["cursor"]) is None:
                break
        assert items == whole
        assert len(whole) == (3 if asked else 7)


def test_the_command_prints_the_grid(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table with the epochs, or as JSON."""
    arrive(world)
    arrive(world, "b")
    world.ticks()
    assert call_json(world, capsys, "increments", "diamond", "--grid", "--limit", "9") == grid(
        world, limit=9
    )
    assert "applied (0)" in call_text(world, capsys, "increments", "diamond", "--grid")
    assert call_json(world, capsys, "increments", "diamond", "--not-applied")["items"] == []
