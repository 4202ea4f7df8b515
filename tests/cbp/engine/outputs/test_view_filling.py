"""The records with which a view begins: the last of each key, as a dictionary would have them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbp import DataflowBuilder, Input, Output, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.outputs.table_migration import ViewFilling
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.equality import identity
from cbp.sdk.translate import spec_of
from tests.cbp.engine.epochs import NARROW
from tests.driver import Driver

COLUMNS = "part DOUBLE, k STRING, n BIGINT, tags ARRAY<STRING>"
SMALL = EngineLimits(output_fanout=2, sort_run_bytes=600, sort_block_bytes=128)


class Written(Translate):
    """Writes what it reads, the last record of each key."""

    rows = Input(COLUMNS, route_by="k")
    last = Output(COLUMNS, key="k, part")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Write."""
        for row in {identity(row.part): row for row in group.rows}.values():
            out.last(*row)


class Kept(Translate):
    """Has the same as a view."""

    rows = Input(COLUMNS, route_by="k")
    last = View(COLUMNS, key="k, part")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("first", [0, 4])
def test_the_last_record_of_each_key_is_what_the_view_begins_with(
    first: int, hash_mask: int, tmp_path: Path
) -> None:
    """For null, NaN and both zeros, over merged files, in memory that holds a few records."""
    dice = random.Random(3)
    builder = DataflowBuilder("d")
    builder.stage("stage", Written(), rows=builder.source("rows", COLUMNS), buckets=4)
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=SMALL)
    driver = Driver(engine, builder.build(), tmp_path / "t")
    for _ in range(9):
        driver.feed("rows", [row(dice) for _ in range(12)])
        driver.run_until_idle()
    driver.publish()
    expected = {
        identity([one["k"], one["part"]]): identity(list(one.values()))
        for epoch in driver.outputs("stage.last")[first:]
        for one in epoch
    }
    spec = spec_of(Kept())
    view = spec.state("last")
    flow = engine.increments.tables.table(f"{driver.folder}/flows/stage.last")
    filling = ViewFilling(view, spec.key_of(view), flow, first, SMALL, hash_mask)
    tables = list(filling.records())
    assert len(tables) > 2
    rows = [one for table in tables for one in table.to_pylist()]
    hashes = np.array([one.pop("_hash") for one in rows], np.int64).view(np.uint64)
    assert (np.diff(hashes.astype(object)) >= 0).all()
    assert len(rows) == len(expected)
    actual = {
        identity([one["k"], one["part"]]): identity([one[name] for name in view.schema.names])
        for one in rows
    }
    assert actual == expected


def row(dice: random.Random) -> dict[str, Any]:
    return {
        "part": dice.choice([0.0, -0.0, 1.5, float("nan"), None]),
        "k": dice.choice(["a", "b", "c", "ä", None]),
        "n": dice.randint(0, 99),
        "tags": dice.choice([["x"], [], None]),
    }
