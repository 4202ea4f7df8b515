"""Files of a source with signs that are replaced: its readers are given the difference."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Translate, View
from cbp.errors import ChangeRefusedError
from cbp.model.version.version_change import Choice
from controller.ingest.uploads import Author
from stages.translators.join import Join
from stages.translators.k_means_arrow import KMeansArrow
from tests.controller.corrected_files import Shelf
from tests.controller.verified import verified

pytestmark = pytest.mark.usefixtures("without_syncs")

SIGNED: dict[str, Any] = {
    "name": "shelf",
    "sources": {"a": {"schema": "n BIGINT, sign INT"}},
    "stages": {"per": {"translator": "per_sum", "inputs": {"moved": "a"}, "buckets": 2}},
}


def test_readers_of_signs_are_given_the_difference(tmp_path: Path) -> None:
    """One ordinary increment, in which what goes has its sign turned; nothing is computed anew."""
    shelf = Shelf(tmp_path, SIGNED)

    def lines(*rows: tuple[int, int]) -> io.BytesIO:
        return io.BytesIO("".join(json.dumps({"n": n, "sign": s}) + "\n" for n, s in rows).encode())

    shelf.drop_folder.upload(shelf.place("a"), "monday", lines((1, 1), (1, 1), (2, 1)))
    shelf.take_in()
    assert shelf.per_sum() == {1: 2, 2: 1}
    for rows, right in (
        ([(1, 1), (3, 1)], {1: 1, 3: 1}),
        ([(1, 1), (1, 1), (1, 1)], {1: 3}),
        ([(1, 1), (1, -1), (2, 1)], {2: 1}),
        ([(3, 1)], {3: 1}),
    ):
        shelf.drop_folder.replacements.ask(
            shelf.place("a"), "monday", lines(*rows), Author("me", "why")
        )
        shelf.take_in()
        assert shelf.per_sum() == right
    newest = shelf.world.store.increment("shelf", "a", 4).increment
    assert not newest.gone
    assert verified(shelf.world, "shelf").status == "equal"
    shelf.close()


KEYED: dict[str, tuple[Any, dict[str, str], str]] = {
    "joined": (
        lambda: Join("g INT, id BIGINT, x DOUBLE", "g INT", "g", "left", left_key="id"),
        {"left": "a", "right": "b"},
        "joined",
    ),
    "clusters": (lambda: KMeansArrow("x", changes=True), {"points": "a"}, "members"),
}
"""Stages that keep the last record of each `id`: their inputs, and a view of all of them."""


@pytest.mark.parametrize("stage", KEYED)
def test_a_reader_of_signs_by_key_has_the_record_that_counts(tmp_path: Path, stage: str) -> None:
    """What goes comes before what counts instead; a reader keeps the last record of a key."""
    make, inputs, view = KEYED[stage]
    schemas = {"a": "g INT, id BIGINT, x DOUBLE, sign INT", "b": "g INT, sign INT"}
    document = {
        "name": "shelf",
        "sources": {name: {"schema": schemas[name]} for name in inputs.values()},
        "stages": {stage: {"translator": stage, "inputs": inputs}},
    }
    shelf = Shelf(tmp_path, document, {stage: make})

    def lines(*rows: tuple[int, float]) -> io.BytesIO:
        records = ({"g": 1, "id": id_, "x": x, "sign": 1} for id_, x in rows)
        return io.BytesIO("".join(json.dumps(one) + "\n" for one in records).encode())

    shelf.drop_folder.upload(shelf.place("a"), "monday", lines((1, 5.0), (2, 7.0)))
    shelf.take_in()
    for rows in ([(1, 6.0), (2, 7.0)], [(1, 5.0), (2, 8.0), (3, 1.0)], [(2, 7.0)]):
        shelf.drop_folder.replacements.ask(
            shelf.place("a"), "monday", lines(*rows), Author("me", "why")
        )
        shelf.take_in()
        node, folder = shelf.named()[1].stages[stage], f"{shelf.world.tables}/shelf"
        kept = shelf.world.engine.records.read_state(folder, node, view)
        assert {row["id"] for row in kept} == {id_ for id_, _ in rows}
    shelf.close()


class Counted(Translate):
    """How often each number is there; its signs are data."""

    moved = Input("n BIGINT, sign INT", route_by="n")
    counts = View("n BIGINT, words BIGINT", key="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        words = sum(row.words for row in group.counts) + sum(row.sign for row in group.moved)
        if words:
            out.counts(key.n, words)


class Kept(Counted):
    """The same, from signs, in state that is kept."""

    moved = Input("n BIGINT, sign INT", route_by="n", changes="signed")
    counts = View("n BIGINT, words BIGINT", key="n", keep=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        known = group.counts.get()
        words = sum(row.sign for row in group.moved) + (known.words if known else 0)
        if words:
            out.counts(key.n, words)
        elif known:
            out.counts.delete()


def test_a_reader_of_signs_begins_with_what_was_taken_back_or_is_refused(tmp_path: Path) -> None:
    """What went while nobody read the signs is no record for it; kept state is not recomputed."""
    counted = {"translator": "counted", "inputs": {"moved": "a"}, "buckets": 2, "any_order": True}
    document = {**SIGNED, "stages": {"counted": counted}}
    shelf = Shelf(tmp_path, document, {"counted": Counted, "kept": Kept})
    shelf.drop_folder.upload(
        shelf.place("a"), "monday", io.BytesIO(b'{"n": 1, "sign": 1}\n{"n": 2, "sign": 1}\n')
    )
    shelf.take_in()
    right = io.BytesIO(b'{"n": 2, "sign": 1}\n')
    shelf.drop_folder.replacements.ask(shelf.place("a"), "monday", right, Author("me", "why"))
    shelf.take_in()
    choice = Choice(retained=frozenset({"per"}))
    kept = {**SIGNED, "stages": {"per": {**SIGNED["stages"]["per"], "translator": "kept"}}}
    with pytest.raises(
        ChangeRefusedError,
        match="cannot be recomputed group by group",
    ):
        shelf.world.controller.change(kept, choice=choice)
    shelf.world.controller.change(SIGNED, choice=choice)
    shelf.take_in()
    assert shelf.per_sum() == {2: 1}
    shelf.close()
