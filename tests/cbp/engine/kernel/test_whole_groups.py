"""Kept records of small groups are read together, and are those that the reference gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.engine.state.lookup import IndexedFile
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.kept_runs import ledger_driver, merging_limits


class Lists(Translate):
    """Puts and deletes items, and lists them as often as the test asks."""

    puts = Input("k BIGINT, id BIGINT, n INT, lists INT", route_by="k")
    items = State("k BIGINT, id BIGINT, n INT", keep=True, key="k, id")
    log = Output("k BIGINT, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """List before anything is put: once, several times, in part, or not at all."""
        puts = [*group.puts]
        for at in range(max((put.lists for put in puts), default=0)):
            out.log(key.k, f"{at}: {[tuple(row) for row in group.items]}")
        if any(put.lists < 0 for put in puts):
            out.log(key.k, f"{next(iter(group.items), None)} {[*group.items.range(id=(2, 5))]}")
        for put in puts:
            if put.n is None:
                out.items.delete(put.id)
            else:
                out.items(put.k, put.id, put.n)


def lists() -> Dataflow:
    flow = DataflowBuilder("lists")
    puts = flow.source("s_puts", "k BIGINT, id BIGINT, n INT, lists INT")
    flow.stage("stage", Lists(), puts=puts, buckets=2)
    return flow.build()


def some_puts(
    chance: random.Random, keys: int, many: int, listing: list[int]
) -> list[dict[str, Any]]:
    return [
        {
            "k": chance.randrange(keys),
            "id": chance.randrange(9) if chance.random() < 0.9 else chance.randrange(400),
            "n": chance.choice([None, 1, 2]),
            "lists": chance.choice(listing),
        }
        for _ in range(many)
    ]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("listing", [[1], [0, 0, 0, 1, 2, -1]], ids=["all", "some"])
def test_what_is_listed_is_what_the_reference_lists(
    listing: list[int], hash_mask: int, tmp_path: Path
) -> None:
    """Records that were deleted or lie in several files, groups that share a hash, large ones."""
    chance = random.Random(4)
    dataflow = lists()
    driver = ledger_driver(tmp_path, dataflow, hash_mask=hash_mask, limits=merging_limits())
    large = [{"k": 3, "id": at, "n": 1, "lists": 0} for at in range(300)]
    epochs = [{"puts": some_puts(chance, 40, 60, listing)} for _ in range(5)]
    epochs[0]["puts"] += large
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)


def test_groups_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read a few times, not once for each group; and not ahead for one group alone."""
    dataflow = lists()
    driver = ledger_driver(tmp_path, dataflow)
    keys = range(500)
    driver.feed("s_puts", [{"k": k, "id": i, "n": 1, "lists": 0} for k in keys for i in range(3)])
    driver.run_until_idle()
    reads: list[int] = []
    take = IndexedFile.take

    def counted(file: IndexedFile, positions: Any, columns: Any) -> Any:
        reads.append(len(positions))
        return take(file, positions, columns)

    monkeypatch.setattr(IndexedFile, "take", counted)
    driver.feed("s_puts", [{"k": k, "id": 9, "n": None, "lists": 1} for k in keys])
    driver.run_until_idle()
    assert sum(reads) == 3 * len(keys)
    assert len(reads) < 40
    reads.clear()
    driver.feed("s_puts", [{"k": k, "id": 9, "n": None, "lists": int(k == 7)} for k in keys])
    driver.run_until_idle()
    assert reads == [3]
