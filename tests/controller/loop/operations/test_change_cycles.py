"""New versions of a dataflow whose stages feed each other, with messages under way.

A cycle changes as a whole: kept with its queues, or rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import ChangeRefusedError
from cbp.model.version.version_change import Choice
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.pagerank_verdict import PageRankVerdict
from tests.controller.world import World

NEAR = 0.05
EDGES = ([(1, 2), (2, 3), (3, 1)], [(1, 3), (3, 4), (4, 1)])


def document(tolerance: float = 0.01) -> dict[str, Any]:
    """Return PageRank; another tolerance is another verdict."""
    rank = {
        "translator": "incremental_pagerank",
        "parameters": {"threshold": 0.0, "within": NEAR},
        "inputs": {"edges": "edges", "converged": "verdict.converged"},
        "buckets": 2,
    }
    verdict = {
        "translator": "pagerank_verdict",
        "parameters": {"tolerance": tolerance},
        "inputs": {"moved": "rank.moved"},
        "buckets": 2,
    }
    sources = {"edges": {"schema": "src BIGINT, dst BIGINT"}}
    return {"name": "d", "sources": sources, "stages": {"rank": rank, "verdict": verdict}}


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = _world(tmp_path / "changed")
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Ranks of a dataflow that was never changed."""
    never = _world(tmp_path_factory.mktemp("never") / "root")
    for edges in EDGES:
        arrive(never, edges)
        never.ticks(300)
    actual = ranks(never)
    never.close()
    return actual


def _world(root: Path) -> World:
    root.mkdir()
    made = World(root, engine=LocalEngine)
    made.translators |= {
        "incremental_pagerank": IncrementalPageRank,
        "pagerank_verdict": PageRankVerdict,
    }
    made.restart()
    made.controller.register(document())
    return made


def arrive(world: World, edges: list[tuple[int, int]]) -> None:
    world.arrive("d", "edges", *edges)
    world.clock.advance(1)


def under_way(world: World) -> None:
    """Come to the second round, with ranks between pages and changes to be judged."""
    arrive(world, EDGES[0])
    world.ticks(300)
    arrive(world, EDGES[1])
    for _ in range(300):
        world.controller.tick()
        if held(world, "rank", "ranks") and held(world, "verdict", "moved"):
            return
    raise AssertionError("nothing was under way")


def held(world: World, stage: str, input_: str) -> list[str]:
    return [i.name for i in world.store.connectors("d")[stage][input_].held]


def ranks(world: World) -> dict[int, float]:
    folder = world.store.dataflow("d").folder
    node = world.controller.dataflow("d").stages["rank"]
    pages = world.engine.records.read_state(folder, node, "nodes")
    return {row["node"]: row["rank"] for row in pages if row["node"] is not None}


@pytest.mark.part(every=2)
@pytest.mark.parametrize("choice", ["keep", "rebuild"])
def test_a_cycle_that_changes_with_messages_under_way_comes_to_the_same_ranks(
    world: World, expected: dict[int, float], choice: str
) -> None:
    """Rebuilt as a whole it begins with the retained edges; kept it goes on with its queues."""
    under_way(world)
    before = {one: held(world, *one) for one in (("rank", "ranks"), ("verdict", "moved"))}
    if choice == "rebuild":
        again = Choice(rebuild=frozenset({"rank", "verdict"}))
        world.controller.change(document(), choice=again)
        assert held(world, "rank", "edges") == ["edges/0", "edges/1"]
        assert not any(held(world, *one) for one in before)
    else:
        world.controller.change(document(0.005), choice=Choice(keep=frozenset({"verdict"})))
        assert {one: held(world, *one) for one in before} == before
    world.ticks(600)
    assert ranks(world) == pytest.approx(expected, abs=NEAR)


@pytest.mark.parametrize(("again", "kept"), [("rank", "verdict"), ("verdict", "rank")])
def test_a_cycle_is_not_rebuilt_in_part(world: World, again: str, kept: str) -> None:
    """Rounds would begin at 1 for the one and be over for the other: ranks came out wrong."""
    choice = Choice(rebuild=frozenset({again}), keep=frozenset({kept}))
    with pytest.raises(ChangeRefusedError) as refused:
        world.controller.change(document(), choice=choice)
    (mistake,) = refused.value.mistakes
    assert (mistake.code, mistake.where) == ("cycle_rebuilt_in_part", f"stages.{kept}")
    assert f"rebuild={kept}" in mistake.message
