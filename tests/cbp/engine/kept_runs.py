"""Long runs of the ledger, whose groups are put, deleted and read by their second key."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from cbp import DataflowBuilder, Translate
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import dataflow_of
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver


def orders_of(chance: random.Random, *, records: int) -> list[dict[str, Any]]:
    """Draw one epoch: mostly puts, of few keys; `b` and `l` can share a hash, null and `f`."""
    hows = ["put"] * 8 + ["delete"] * 3
    hows += [
        "again",
        "get",
        "from",
        "below",
        "within",
        "of",
        "all",
        "first",
        "down",
        "back",
        "last",
    ]
    return [
        {
            "k": chance.choice(["a", "b", "b", "l", "l", None, "f"]),
            "how": chance.choice(hows),
            "part": chance.choice([None, -0.0, 0.0, float("nan"), *range(6)]),
            "name": chance.choice([None, "", "x", "y", "ä"]),
            "n": chance.choice([None, *range(8)]),
        }
        for _ in range(records)
    ]


def merging_limits() -> EngineLimits:
    """Return limits with which files are copied, split and merged all the time."""
    return replace(small_limits(), state_fanout=2, state_tier_rows=3, small_file_rows=0)


def ledger_driver(folder: Path, dataflow: Dataflow | None = None, **more: Any) -> Driver:
    """Return a driver of the ledger on the tables of a folder."""
    engine = LocalEngine(cache=f"{folder}/cache", **more)
    return Driver(engine, dataflow or dataflow_of("ledger"), folder / "t")


def ledger_of(translator: Translate) -> Dataflow:
    """Return the ledger's dataflow with another translator."""
    builder = DataflowBuilder("ledger")
    orders = builder.source("s_orders", str(translator.spec().inputs[0].schema))
    builder.stage("stage", translator, buckets=4, orders=orders)
    return builder.build()


def put(k: str, part: float | None, n: int = 0, how: str = "put") -> dict[str, Any]:
    """Return an order of the ledger."""
    return {"k": k, "how": how, "part": part, "name": "", "n": n}
