"""Random dataflows of everything that keeps tables, in both forms without Spark, with deletes.

Views that are given anew, kept records, readers of signed changes and of new records, look-ups that
wake and those that do not, timers, records that expire and an outer state: some stages as they are
written, the others on Arrow tables, fused or not. The oracle is the reference engine.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, State, Translate
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import assert_same
from tests.cbp.engine.small_limits import small_limits
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.driver import Driver
from tests.simulation.stages import (
    SCHEMA,
    Ages,
    Balance,
    Joins,
    Listed,
    Looks,
    Stocked,
    Total,
    Wakes,
)

SEEDS = range(10)


class After(Translate):
    """Counts the records that came or changed."""

    rows = Input("k BIGINT, n BIGINT, times BIGINT", route_by="k", changes="after")
    counts = State("k BIGINT, records BIGINT, last BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count."""
        rows = [row.n for row in group.rows]
        out.counts(key.k, len(rows) + sum(row.records for row in group.counts), max(rows))


WRITERS: tuple[tuple[type, str], ...] = ((Listed, "top"), (Stocked, "top"), (Total, "sums"))


def random_dataflow(dice: random.Random) -> tuple[Dataflow, list[str]]:
    """Return a dataflow, and its stages that can be vectorised."""
    builder = DataflowBuilder("tables")
    flows = [builder.source("a", SCHEMA).name, builder.source("b", SCHEMA).name]
    kinds: dict[str, type] = {}

    def stage(kind: type, **inputs: str) -> str:
        name = f"{kind.__name__.lower()}{len(kinds)}"
        wiring: dict[str, Any] = dict(inputs)
        builder.stage(name, kind(), buckets=dice.choice((2, 4)), **wiring)
        kinds[name] = kind
        return name

    for _ in range(dice.choice((1, 2))):
        kind, table = dice.choice(WRITERS)
        writer = stage(kind, items=dice.choice(flows))
        flows.append(f"{writer}.o")
        table = f"{writer}.{table}"
        if kind is not Total:
            stage(Balance, moved=table)
            stage(After, rows=table)
            stage(Joins, items=dice.choice(flows), table=table)
        stage(Looks, items=dice.choice(flows), table=table, every=table)
    stage(dice.choice((Wakes, Ages)), items=dice.choice(flows))
    return builder.build(), [name for name, kind in kinds.items() if kind is not Stocked]


def random_epochs(dice: random.Random) -> list[dict[str, list[dict[str, Any]]]]:
    """Return what arrives at `a` and `b`; every third number deletes a record of a view."""
    return [
        {
            name: [
                {"k": dice.randrange(4), "n": dice.randrange(40)}
                for _ in range(dice.choice((0, 1, 4, 12)))
            ]
            for name in dice.choice((["a"], ["b"], ["a", "b"]))
        }
        for _ in range(dice.randint(3, 6))
    ]


@pytest.mark.part(every=4)
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_random_dataflows_are_the_references(seed: int, tmp_path: Path) -> None:
    """Every flow of every epoch, in its order, and every table."""
    dice = random.Random(f"views {seed}")
    dataflow, able = random_dataflow(dice)
    mixed = in_arrow(dataflow, [name for name in able if dice.random() < 0.5])
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=small_limits())
    driver = Driver(engine, mixed, tmp_path / "t", fused=dice.random() < 0.5)
    assert_same(dataflow, driver, random_epochs(dice), source="")


def test_the_draw_has_everything() -> None:
    """Views, readers of their changes and look-ups of both kinds, each in both forms."""
    kinds = Counter[str]()
    for seed in SEEDS:
        dice = random.Random(f"views {seed}")
        _, able = random_dataflow(dice)
        for name in able:
            form = "arrow" if dice.random() < 0.5 else "groupwise"
            kinds[f"{name.rstrip('0123456789')} {form}"] += 1
    for name in ("listed", "joins", "looks", "balance", "after"):
        assert kinds[f"{name} arrow"], name
        assert kinds[f"{name} groupwise"], name
