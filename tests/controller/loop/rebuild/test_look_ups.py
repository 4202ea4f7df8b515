"""A rebuild of a stage that looks up another one's state finds what the dataflow found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Lookup, Translate, View
from tests.controller.changing import document as document_of
from tests.controller.loop.rebuild.beside_world import Beside

pytestmark = pytest.mark.usefixtures("without_syncs")


class Known(Translate):
    """Say of each word what its sum was when it came last."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = Lookup("word STRING, n BIGINT", by="word")
    found = View("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        one = group.sums.one()
        out.found(word=key.word, n=one.n if one else None)


def test_a_rebuild_finds_what_was_written_before(tmp_path: Path) -> None:
    """Fewer epochs than are published together were written, and all of them are found."""
    world = Beside(tmp_path)
    world.translators |= {"known": Known}
    world.restart()
    known = {"translator": "known", "inputs": {"items": "b", "sums": "sum.sums"}}
    wanted = document_of(sum="viewed", known=known)
    wanted["sources"]["b"] = wanted["sources"]["a"]
    world.controller.register(wanted)
    for number in range(5):
        world.arrive("d", "a", ("x", number))
        world.ticks()
        world.clock.advance(1)
        world.arrive("d", "b", ("x", 0))
        world.ticks()
        world.clock.advance(1)
    assert [row["n"] for row in found(world)] == [10]
    job = world.build(wanted)
    assert {one.table: one.changed for one in job.tables}["state/known.found"] == 0
    world.swap(job)
    assert [row["n"] for row in found(world)] == [10]
    world.close()


def found(world: Beside) -> list[dict[str, Any]]:
    """Return the records of the view."""
    node = world.controller.dataflow("d").stages["known"]
    folder = world.store.dataflow("d").folder
    return [*world.engine.records.read_state(folder, node, "found")]
