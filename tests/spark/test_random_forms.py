"""Random chains of every form on Spark: record-wise, groupwise, on Arrow tables, in SQL.

`CBP_FORMS_SEED=77 CBP_FORMS_RUNS=20` tries the 20 chains from seed 77 on; two by default.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor, executor
from cbp.model.dataflow import Dataflow
from tests.cbp.engine.test_direct import assert_same
from tests.chains import SCHEMA, Spread, Tally
from tests.driver import Driver
from tests.forms import arrow_form
from tests.sql_forms import TallySql

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("CBP_FORMS_SEED", "1"))
RUNS = int(os.environ.get("CBP_FORMS_RUNS", "2"))
FORMS = ("groupwise", "arrow", "sql")
WAYS = {"one task": (10**6, 2_000), "parts": (10**6, 4), "shuffled": (0, 4)}
"""Reads up to which nothing is shuffled, and records that are worth a task; by turns."""


def random_chain(chance: random.Random) -> tuple[Dataflow, Dataflow, list[str]]:
    """Return a chain with groupwise stages only, the same in other forms, and these forms.

    Every form is in it, in any order; the stages before one may be record-wise.
    """
    builder = DataflowBuilder("forms")
    flow = builder.source("src", SCHEMA).name
    forms: dict[str, str] = {}
    shape: list[str] = []
    for form in chance.sample(FORMS, len(FORMS)):
        for kind in chance.choice([[form], ["record-wise", form]]):
            name = f"{kind.replace('-', '')}{len(shape)}"
            translator: Any = Spread() if kind == "record-wise" else Tally()
            builder.stage(name, translator, buckets=4, items=flow)
            flow = f"{name}.{chance.choice('oop')}"
            forms[name] = kind
            shape.append(f"{kind}>{flow}")
    dataflow = builder.build()
    other = {name: _in_form(node, forms[name]) for name, node in dataflow.stages.items()}
    return dataflow, replace(dataflow, stages=MappingProxyType(other)), shape


def _in_form(node: Any, form: str) -> Any:
    if form == "arrow":
        return replace(node, translator=arrow_form(node.translator))
    return replace(node, translator=TallySql().spec()) if form == "sql" else node


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_every_form_behind_every_other_equals_the_reference(
    seed: int, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch's outputs, and state, are the groupwise ones; SQL gives them in no order.

    Fused or not, shuffled or not, in one task or in parts.
    """
    chance = random.Random(seed)
    dataflow, mixed, shape = random_chain(chance)
    fused, way = chance.random() < 0.7, list(WAYS)[seed % len(WAYS)]
    reads, rows = WAYS[way]
    print(f"CBP_FORMS_SEED={seed} CBP_FORMS_RUNS=1: {' '.join(shape)}, {fused=}, {way}")
    monkeypatch.setattr(executor, "ARRANGED_READS_MAX", reads)
    monkeypatch.setattr("cbp.engine.planning.ROWS_PER_TASK", dict.fromkeys(FORMS, rows))
    epochs = [
        {"src": [_record(chance) for _ in range(chance.choice([0, 12, 20]))]} for _ in range(3)
    ]
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))
    driver = Driver(engine, mixed, tmp_path / "t", fused=fused)
    assert_same(dataflow, driver, epochs, ordered=False, source="")


def _record(chance: random.Random) -> dict[str, Any]:
    return {"k": chance.choice([0, 1, 2, 3, 4, 5, None]), "v": chance.choice(["", "a", "b", "ä"])}
