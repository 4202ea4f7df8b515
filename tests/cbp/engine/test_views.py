"""Views on the direct engine: records, changes and their readers are those of the reference.

Random orders put and delete records, spell them otherwise, and leave them as they are, in groups
of all sizes and under hashes that keys share.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.errors import CbpError
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.view_dataflows import KeptShelf, Shelf, random_epochs, shelf_dataflow


def same_as_reference(
    folder: Path, seed: int, *, hash_mask: int = -1, shelf: type[Translate] = Shelf
) -> None:
    dice = random.Random(seed)
    limits = replace(
        small_limits(pending_rows=dice.choice([4, 1000])),
        large_group_rows=dice.choice([7, 1000]),
    )
    engine = LocalEngine(cache=str(folder / "cache"), hash_mask=hash_mask, limits=limits)
    dataflow = shelf_dataflow(shelf=shelf)
    driver = Driver(engine, dataflow, folder / "t", fused=dice.random() < 0.5)
    assert_same(dataflow, driver, random_epochs(dice), ordered=hash_mask == -1)


@pytest.mark.part(every=6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("shelf", [Shelf, KeptShelf])
def test_views_and_their_readers_are_the_references(
    shelf: type[Translate], seed: int, hash_mask: int, tmp_path: Path
) -> None:
    """Records, changes in their order, and what readers make of them equal the reference's.

    Also where records stay unless they are put or deleted.
    """
    same_as_reference(tmp_path, seed, hash_mask=hash_mask, shelf=shelf)


def _changes_of_deleted(self: ViewChanges, died: Any, of: Any, born: Any, groups: Any) -> None:
    ViewChanges.right(self, None, of[:0], born, groups)  # type: ignore[attr-defined]


def _in_order_of_emission(self: ViewChanges, table: Any, groups: Any, sides: Any) -> Any:
    return ViewChanges.order(self, table, groups, sides)[::-1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", ["deletes", "order"])
def test_a_planted_fault_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison fails when deletes are left out of the changes, or their order is another."""
    monkeypatch.setattr(ViewChanges, "right", ViewChanges.write, raising=False)
    monkeypatch.setattr(ViewChanges, "order", ViewChanges._order, raising=False)
    if fault == "deletes":
        monkeypatch.setattr(ViewChanges, "write", _changes_of_deleted)
    else:
        monkeypatch.setattr(ViewChanges, "_order", _in_order_of_emission)
    with pytest.raises(AssertionError):
        same_as_reference(tmp_path, 0)


def driver_of(folder: Path, translator: Any, columns: str) -> Driver:
    builder = DataflowBuilder("one")
    builder.stage("one", translator, items=builder.source("items", columns))
    engine = LocalEngine(cache=str(folder / "cache"), limits=small_limits())
    return Driver(engine, builder.build(), folder / "t")


class Scores(Translate):
    """The newest score of each item of a key; an item without a score is dropped."""

    items = Input("k STRING, item BIGINT, score DOUBLE", route_by="k")
    scores = View("k STRING, item BIGINT, score FLOAT, tags STRUCT<a: INT, b: INT>", key="k, item")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit a double for a float, and a struct without its null field."""
        kept = {row.item: float(f"{row.score:.6f}") for row in group.scores}
        kept |= {row.item: row.score for row in group.items}
        for item, score in kept.items():
            if score is not None:
                out.scores(key.k, item, score, {"a": item})


def test_a_record_that_is_spelled_otherwise_did_not_change(tmp_path: Path) -> None:
    """0.1 for a FLOAT is the float next to it, and a field that is left out is null: no change."""
    driver = driver_of(tmp_path, Scores(), "k STRING, item BIGINT, score DOUBLE")
    driver.feed("items", [{"k": "a", "item": item, "score": 0.1} for item in range(3)])
    driver.feed("items", [{"k": "a", "item": 1, "score": 0.1}])
    driver.feed("items", [{"k": "a", "item": 2, "score": 0.2}])
    driver.feed("items", [{"k": "a", "item": 0, "score": None}])
    driver.run_until_idle()
    told = [
        [(row["item"], row["change_type"], row["sign"]) for row in epoch]
        for epoch in driver.outputs("one.scores")
    ]
    assert told == [
        [(0, "insert", 1), (1, "insert", 1), (2, "insert", 1)],
        [],
        [(2, "update_before", -1), (2, "update_after", 1)],
        [(0, "delete", -1)],
    ]
    assert len(driver.state("one", "scores")) == 2


class Floats(Translate):
    """Computes the same numbers again, for a FLOAT column."""

    items = Input("k STRING, item BIGINT", route_by="k")
    floats = View("k STRING, item BIGINT, score FLOAT", key="k, item")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit a double for each item there is."""
        for item in {row.item for row in (*group.floats, *group.items)}:
            out.floats(key.k, item, 0.1 * item if item % 3 else None)


@pytest.mark.parametrize("many", [5, 100], ids=["small", "large"])
def test_a_double_for_a_stored_float_costs_nothing(many: int, tmp_path: Path) -> None:
    """A number that is computed again is rounded as it is stored, and equals it."""
    driver = driver_of(tmp_path, Floats(), "k STRING, item BIGINT")
    driver.feed("items", [{"k": "a", "item": item} for item in range(many)])
    driver.run_until_idle()
    driver.feed("items", [{"k": "a", "item": 1}])
    driver.run_until_idle()
    figures = driver.figures[-1]
    assert (figures["state_written"], figures["state_removed"], figures["records_out"]) == (0, 0, 0)


class Bag(Translate):
    """Keeps as many equal records as the input says."""

    items = Input("k STRING, item BIGINT", route_by="k")
    bag = View("k STRING, item BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add up the counts, and emit each record so often, the last first."""
        counts = Counter(row.item for row in group.bag)
        for row in group.items:
            counts[abs(row.item)] += 1 if row.item >= 0 else -1
        for item in sorted(counts.elements(), reverse=True):
            out.bag(key.k, item)


@pytest.mark.parametrize("many", [3, 150], ids=["small", "large"])
def test_a_bag_has_a_change_for_each_record_that_came_or_went(many: int, tmp_path: Path) -> None:
    """None for those that stay, however many are equal; ordered by all columns."""
    driver = driver_of(tmp_path, Bag(), "k STRING, item BIGINT")
    driver.feed("items", [{"k": "a", "item": item} for item in [2, 1, *[1] * many]])
    driver.feed("items", [{"k": "a", "item": item} for item in (-1, 3, -1, 1, -2, 3)])
    driver.feed("items", [{"k": "a", "item": item} for item in (7, -7)])
    driver.run_until_idle()
    changes = [
        [(row["item"], row["change_type"], row["sign"]) for row in epoch]
        for epoch in driver.outputs("one.bag")
    ]
    assert changes == [
        [*[(1, "insert", 1)] * (many + 1), (2, "insert", 1)],
        [(1, "delete", -1), (2, "delete", -1), *[(3, "insert", 1)] * 2],
        [],
    ]
    figures = driver.figures[1]
    assert (figures["state_written"], figures["state_removed"]) == (2, 2)
    assert Counter(row["item"] for row in driver.state("one", "bag")) == {1: many, 3: 2}


class Members(Translate):
    """Keeps every item of a key."""

    items = Input("k STRING, item BIGINT", route_by="k")
    members = View("k STRING, item BIGINT", key="k, item")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit what there was, and what is new."""
        known = set()
        for row in group.members:
            known.add(row.item)
            out.members(*row)
        for row in group.items:
            if row.item not in known:
                known.add(row.item)
                out.members(*row)


def test_unchanged_records_are_neither_written_nor_changes(tmp_path: Path) -> None:
    """One new member of a group beyond memory writes one record, and one change."""
    driver = driver_of(tmp_path, Members(), "k STRING, item BIGINT")
    driver.feed("items", [{"k": "a", "item": item} for item in range(200)])
    driver.run_until_idle()
    driver.feed("items", [{"k": "a", "item": item} for item in (7, 200)])
    driver.run_until_idle()
    figures = driver.figures[-1]
    assert (figures["state_written"], figures["state_removed"], figures["records_out"]) == (1, 0, 1)
    assert [row["item"] for row in driver.outputs("one.members")[1]] == [200]


class Doubled(Members):
    """Emits a key twice, far apart, if the input says so."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit every item, and the first one again at the end."""
        items = [row.item for row in group.items]
        for item in range(items[0]):
            out.members(key.k, item)
        if len(items) > 1:
            out.members(key.k, 0)


def test_a_key_that_comes_twice_in_a_large_group_is_found(tmp_path: Path) -> None:
    """However far apart, and also if its first record is one that stays as it was."""
    driver = driver_of(tmp_path, Doubled(), "k STRING, item BIGINT")
    driver.feed("items", [{"k": "a", "item": 100}])
    driver.run_until_idle()
    driver.feed("items", [{"k": "a", "item": 100}, {"k": "a", "item": 0}])
    with pytest.raises(CbpError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "view_key_twice"
    assert len(driver.state("one", "members")) == 100


def test_the_changes_of_a_view_sum_up_to_its_records(tmp_path: Path) -> None:
    """After every epoch, the sum of all signs is 1 for the records that there are."""
    driver = Driver(LocalEngine(cache=str(tmp_path / "c")), shelf_dataflow(), tmp_path / "t")
    for epoch in random_epochs(random.Random(5), epochs=4):
        driver.feed("s_orders", epoch["orders"])
        driver.run_until_idle()
        sums: Counter[str] = Counter()
        for row in (row for rows in driver.outputs("totals.totals") for row in rows):
            sums[f"{row['key']} {row['n']}"] += row["sign"]
        kept = {f"{row['key']} {row['n']}": 1 for row in driver.state("totals", "totals")}
        assert {record: n for record, n in sums.items() if n} == kept
