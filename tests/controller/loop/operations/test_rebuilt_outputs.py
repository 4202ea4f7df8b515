"""What readers see of the outputs of a stage that was rebuilt: what its new code wrote, alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import Input, Output, State, Translate, TranslateRecords, by
from cbp.engine.interface.garbage_collector import Retention
from cbp.errors import ChangeRefusedError
from controller.loop import DEFAULT_LOOP_LIMITS
from tests.controller.changing import Changing, document
from tests.controller.verified import verified
from tests.controller.world import SCHEMA, Inline

pytestmark = pytest.mark.usefixtures("without_syncs")


class Folded(Translate):
    """Add up numbers per word, whatever its case: keys of the code before do not exist here."""

    key = "word STRING"
    items = Input(SCHEMA, route_by=by(lambda row: row.word.lower(), "STRING"))
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Copied(TranslateRecords):
    """Copy records; without state and without a key."""

    items = Input(SCHEMA)
    totals = Output(SCHEMA)

    def translate(self, record: Any, out: Any) -> None:
        out.totals(record.word, record.n)


class Doubled(Copied):
    """The same tables by other code."""

    def translate(self, record: Any, out: Any) -> None:
        out.totals(record.word, 2 * record.n)


class Told(Folded):
    """Its output is a history."""

    totals = Output("word STRING, n BIGINT", key="word", history=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path, verifier=Inline(), limits=DEFAULT_LOOP_LIMITS)
    made.translators |= {"folded": Folded, "copied": Copied, "doubled": Doubled, "told": Told}
    made.restart()
    yield made
    made.close()


def fed(world: Changing, stages: dict[str, Any]) -> None:
    world.controller.register(document(**stages))
    for number, word in enumerate(("X", "x", "y")):
        world.arrive("d", "a", (word, number + 1))
        world.ticks()


def table(world: Changing, flow: str = "sum.totals") -> list[tuple[Any, ...]]:
    """Return the records that a reader of the Delta table sees."""
    path = f"{world.store.dataflow('d').folder}/flows/{flow}"
    return sorted(polars.read_delta(path).select("word", "n").rows())


@pytest.mark.parametrize("new", ["folded", "told"])
def test_a_rebuilt_stage_leaves_no_record_of_its_earlier_code(world: Changing, new: str) -> None:
    """Neither a key that is gone nor a second version of a record; all that is seen is verified."""
    fed(world, {"sum": "sum"})
    assert table(world) == [("X", 1), ("x", 2), ("y", 3)]
    world.change(document(sum=new), rebuild=["sum"])
    assert table(world) == []
    world.ticks()
    assert table(world) == [("x", 1), ("x", 3), ("y", 3)]
    assert [(r["word"], r["n"]) for r in world.flow("d", "sum.totals")] == [
        ("x", 1), ("x", 3), ("y", 3),
    ]  # fmt: skip
    verification = verified(world, "d")
    assert (verification.status, verification.error) == ("equal", None)
    world.restart()
    world.controller.recover()
    assert table(world) == [("x", 1), ("x", 3), ("y", 3)]


def test_a_stage_that_comes_back_leaves_no_record_of_its_earlier_life(world: Changing) -> None:
    """Added again under its name, it begins with nothing; its table is the new stage's."""
    fed(world, {"sum": "sum", "more": "sum"})
    world.change(document(sum="sum"))
    world.change(document(sum="sum", more="sum"))
    assert table(world, "more.totals") == []
    world.arrive("d", "a", ("z", 1))
    world.ticks()
    assert table(world, "more.totals") == [("z", 1)]


def test_what_was_emitted_twice_is_read_once_by_a_late_reader(world: Changing) -> None:
    """A stage that begins with the retained input reads what the rebuilt stage wrote, no more."""
    fed(world, {"copy": "copied"})
    world.change(document(copy="doubled"), rebuild=["copy"])
    world.ticks()
    late = {"translator": "sum", "inputs": {"items": "copy.totals"}}
    world.change(document(copy="doubled", late=late), retained=["late"])
    world.ticks()
    assert world.sums("late") == {"X": 2, "x": 4, "y": 6}
    again = world.change(document(copy="doubled", late=late), rebuild=["late"], dry_run=True)
    assert [len(queue.queued) for queue in again.succession.queues] == [3]


def test_what_waits_at_a_kept_reader_is_still_read(tmp_path: Path) -> None:
    """Its files leave the table, and stay until the reader has read them."""
    brief = Retention(versions_min=1, seconds=0, attempt_seconds=0)
    world = Changing(tmp_path, retention=brief)
    world.translators |= {"folded": Folded}
    world.restart()
    late = {"translator": "sum", "inputs": {"items": "sum.totals"}}
    world.controller.register(document(sum="sum", late=late))
    world.store.pause_stage("d", "late", "by hand", None)
    for number, word in enumerate(("X", "x", "y")):
        world.arrive("d", "a", (word, number + 1))
        world.ticks()
    world.change(document(sum="folded", late=late), rebuild=["sum"], keep=["late"])
    world.ticks()
    world.clock.advance(100)
    world.controller.housekeeping.collect("d")
    world.store.pause_stage("d", "late", "")
    world.ticks()
    assert world.sums("late") == {"X": 1, "x": 2 + 1 + 3, "y": 3 + 3}
    world.close()


def test_new_code_of_a_stage_without_state_is_asked_about(world: Changing) -> None:
    """What it wrote is in the stages behind it: refused with their names, kept, or made again."""
    stages: dict[str, Any] = {
        "late": {"translator": "sum", "inputs": {"items": "copy.totals"}},
        "later": {"translator": "sum", "inputs": {"items": "late.totals"}},
    }
    fed(world, {"copy": "copied", **stages})
    after = document(copy="doubled", **stages)
    with pytest.raises(
        ChangeRefusedError, match=r"come from the earlier code of this stage: late, later"
    ) as refused:
        world.change(after)
    assert [m.code for m in refused.value.mistakes] == ["state_undecided"]
    assert world.store.dataflow("d").version == 1
    plan = world.change(after, keep=["copy"], dry_run=True)
    assert plan.plan.stages["copy"].behind == ("late", "later")
    world.change(after, keep=["copy"])
    world.arrive("d", "a", ("y", 1))
    world.ticks()
    assert world.sums("late") == {"X": 1, "x": 2, "y": 3 + 2}
    world.change(after, rebuild=["copy", "late", "later"])
    world.ticks()
    assert world.sums("late") == {"X": 2, "x": 4, "y": 8}
    assert table(world, "late.totals") == [("X", 2), ("x", 4), ("y", 6), ("y", 8)]
    verification = verified(world, "d")
    assert (verification.status, verification.error) == ("equal", None)
