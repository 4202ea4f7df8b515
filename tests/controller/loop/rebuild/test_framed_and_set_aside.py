"""A rebuild beside of framed inputs, and of stages that set records aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import ChangeRefusedError
from cbp.model.version.version_change import Choice
from controller.loop import LoopLimits
from controller.loop.rebuild.build_beside import TableDifference
from tests.controller.changing import document as document_of
from tests.controller.framings import ByKey, ByStretch
from tests.controller.loop.rebuild.beside_world import Beside
from tests.controller.loop.runs.test_set_aside import Fragile
from tests.controller.lost import SourceLogs

pytestmark = pytest.mark.usefixtures("without_syncs")


class Doubled(ByStretch):
    """Twice each number, by the frames of `ByStretch`."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(2 * r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Framed(Beside):
    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(root, limits=LoopLimits(), collect_every=10**6, **more)
        self.translators |= {
            "by_key": ByKey, "by_stretch": ByStretch, "doubled": Doubled, "fragile": Fragile,
        }  # fmt: skip
        self.restart()

    def feed(self, *records: tuple[Any, ...], source: str = "a") -> None:
        self.arrive("d", source, *records)
        self.clock.advance(1)
        self.ticks()

    def framing(self, stage: str = "sum") -> tuple[Any, ...]:
        """Return what a stage's framing remembers, and what waits there."""
        connector = self.store.connectors("d")[stage]["items"]
        framing = connector.framing
        assert framing is not None
        open_ = framing.open and (framing.open.index, framing.open.framing_key, framing.open.files)
        waiting = [(one.index, one.files) for one in connector.waiting]
        return framing.memo, framing.next, open_, framing.closed, waiting, connector.arrived


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Framed]:
    made = Framed(tmp_path)
    yield made
    made.close()


STRETCHES = document_of(sum="by_stretch")
DOUBLED = document_of(sum="doubled")
FIRST = [[("x", 1), ("y", 1)], [("x", 1), ("x", 2)], [("x", 2), ("y", 3)]]
LATER = [[("x", 3), ("z", 4)], [("x", 4)], [("y", 5)]]


def from_scratch(root: Path, document: Any, play: Callable[[Framed], None]) -> Any:
    world = Framed(root)
    world.controller.register(document)
    play(world)
    seen = world.seen(), world.framing()
    world.close()
    return seen


def play(world: Framed, then: Callable[[], object] = lambda: None) -> None:
    for records in FIRST:
        world.feed(*records)
    world.controller.close("d", "a")
    world.feed(("y", 3))
    then()
    for records in LATER:
        world.feed(*records)
    world.controller.close("d", "a")
    world.ticks()


@pytest.mark.parametrize("closed", [False, True])
def test_open_frames_are_built_beside(world: Framed, tmp_path: Path, closed: bool) -> None:
    """With their numbers, the memo of their function and the closes; later records go on there."""

    def then(one: Framed) -> None:
        if closed:
            one.controller.close("d", "a")
            one.ticks()

    def swap() -> None:
        job = world.build(DOUBLED)
        assert job.exact
        then(world)  # a close after the build: the swap applies it
        world.swap(job)

    world.controller.register(STRETCHES)
    play(world, swap)
    expected = from_scratch(tmp_path / "scratch", DOUBLED, lambda one: play(one, lambda: then(one)))
    seen, framing = world.seen(), world.framing()
    assert framing == expected[1]
    assert seen["sum.sums"] == expected[0]["sum.sums"]


def test_frames_by_key_are_the_same_tables(world: Framed) -> None:
    """A build by the same code differs in no record, although a frame is open."""
    world.controller.register(document_of(sum="by_key"))
    play(world)
    world.feed(("q", 9))
    assert world.framing()[2] is not None, "open"
    job = world.build(document_of(sum="by_key"))
    assert job.exact
    assert {(t.added, t.gone, t.changed, t.because) for t in job.tables} == {(0, 0, 0, "")}


def test_going_back_takes_up_the_frames_of_before(world: Framed, tmp_path: Path) -> None:
    """The frame that was open at the swap goes on, with what came and was closed since."""
    world.controller.register(STRETCHES)
    play(world, lambda: world.swap(world.build(DOUBLED)))
    world.controller.rebuild_jobs.swaps.back("d")
    world.ticks()
    assert (world.seen(), world.framing()) == from_scratch(tmp_path / "scratch", STRETCHES, play)


def test_a_lost_store_finds_the_open_frames_of_a_swap(world: Framed) -> None:
    """They are in the description, as all positions are."""
    world.controller.register(STRETCHES)
    play(world, lambda: world.swap(world.build(DOUBLED)))
    late, framing = world.picture(), world.framing()
    increments = [item.increment for item in world.store.increments("d", "a", limit=500).items]
    world.store.delete("d")
    world.restart()
    world.arrivals = SourceLogs(world, "d", reversed(increments))
    assert world.controller.rebuild() == ["d"]
    world.ticks()
    assert (world.picture(), world.framing()) == (late, framing)


def test_frames_of_a_flow_that_a_stage_writes_are_refused(world: Framed) -> None:
    """The refusal names the stage, and offers the rebuild in place."""
    behind = {"translator": "by_key", "inputs": {"items": "sum.totals"}}
    document = document_of(sum="sum", behind=behind)
    world.controller.register(document)
    with pytest.raises(ChangeRefusedError) as caught:
        world.start(document)
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.where) == ("beside_framed", "stages.behind.inputs.items")
    assert "--rebuild behind --in-place" in mistake.message


def aside(translator: str = "fragile") -> Any:
    more = {"on_error": "set_aside", "set_aside_max": 9}
    return document_of(
        sum={"translator": translator, **more},
        again={"translator": "sum", "inputs": {"items": "sum.totals"}},
    )


def set_aside(world: Framed) -> list[tuple[Any, ...]]:
    rows = world.controller.reading.set_aside("d", "sum")
    return [(json.loads(r["record"])["n"], r["code"], r["increment"]) for r in rows]


def test_what_fails_again_is_set_aside_in_the_build(world: Framed) -> None:
    """The same records, with where they came from; and they can be given back after the swap."""
    world.controller.register(aside())
    world.feed(("a", 1), ("b", 1))
    world.feed(("a", 2), ("a", 13), ("b", 2))
    world.feed(("a", 4), ("c", 1))
    waiting = set_aside(world)
    assert len(waiting) == 3
    job = world.build(aside())
    tables = {one.table: one for one in job.tables}
    assert tables["set_aside/sum"] == TableDifference("set_aside/sum", 3, 3, 0, 0, 0)
    world.swap(job)
    assert set_aside(world) == waiting
    rows = world.controller.reading.set_aside("d", "sum")
    assert all(row["epoch"] < 0 for row in rows)
    world.feed(("a", 5), ("b", 3))
    assert [n for n, _, _ in set_aside(world)] == [2, 13, 4, 5], "later ones wait behind"
    mended = aside("sum")
    world.controller.change(mended, choice=Choice(keep=frozenset({"sum"})))
    world.controller.amendments.give_back("d", "sum", who="me", why="mended")
    world.ticks()
    assert set_aside(world) == []
    assert world.sums() == {"a": 25, "b": 6, "c": 1}
    assert world.sums("again")["b"] == 1 + 3 + 6


def test_mended_code_applies_what_was_set_aside(world: Framed) -> None:
    """A build by code that does not fail has it in its tables, and the report says so."""
    world.controller.register(aside())
    world.feed(("a", 1), ("b", 1))
    world.feed(("a", 13), ("b", 2))
    job = world.build(aside("sum"))
    tables = {one.table: one for one in job.tables}
    assert tables["set_aside/sum"] == TableDifference("set_aside/sum", 1, 0, 0, 1, 0)
    assert tables["state/sum.sums"].changed == 1
    world.swap(job)
    assert world.sums() == {"a": 14, "b": 3}
    assert set_aside(world) == []
    world.controller.rebuild_jobs.swaps.back("d")
    assert [n for n, _, _ in set_aside(world)] == [13]
    assert world.sums() == {"a": 1, "b": 3}


def test_other_code_may_set_other_records_aside(world: Framed) -> None:
    """What a build sets aside is shown by the swap in place of what was."""
    world.controller.register(aside("sum"))
    world.feed(("a", 1), ("b", 13))
    job = world.build(aside())
    tables = {one.table: one for one in job.tables}
    assert tables["set_aside/sum"] == TableDifference("set_aside/sum", 0, 1, 1, 0, 0)
    world.swap(job)
    assert world.sums() == {"a": 1}
    assert [n for n, _, _ in set_aside(world)] == [13]


@pytest.mark.parametrize("beside", [True, False])
def test_a_rebuild_that_sets_nothing_aside_any_more_leaves_nothing_there(
    world: Framed, beside: bool
) -> None:
    """What was set aside is applied, or its error stops the stage: it does not come back later."""
    world.controller.register(aside())
    world.feed(("a", 1), ("b", 13))
    stops = document_of(sum="sum", again={"translator": "sum", "inputs": {"items": "sum.totals"}})
    if beside:
        world.swap(world.build(stops))
    else:
        choice = Choice(rebuild=frozenset({"sum", "again"}))
        world.controller.change(stops, choice=choice)
        world.ticks()
    assert world.sums() == {"a": 1, "b": 13}
    world.controller.change(aside("sum"), choice=Choice(keep=frozenset({"sum"})))
    assert set_aside(world) == []
    if beside:
        return
    world.feed(("a", 2))
    assert world.sums()["a"] == 3
