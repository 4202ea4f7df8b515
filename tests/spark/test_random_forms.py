"""Random chains of every form on Spark: record-wise, groupwise, on Arrow tables, in SQL.

State is grouped inner and outer, or expires beside timers, in every form. A stage that reads
groups and single records is somewhere among them; it is groupwise, since the other forms are
refused for it (`test_groups_with_single_records_are_refused_in_the_other_forms`).

`CBP_FORMS_SEED=77 CBP_FORMS_RUNS=20` tries the 20 chains from seed 77 on; three by default, which
go all ways, fused and not, with records in two epochs at least.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, TranslateArrow, TranslateSql
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import DefinitionError
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import assert_same
from tests.chains import SCHEMA, Mixed, Patient, RollCall, Spread, Tally
from tests.driver import Driver
from tests.forms import arrow_form
from tests.sql_forms import PatientSql, RollCallSql, TallySql

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("CBP_FORMS_SEED", "26"))
RUNS = int(os.environ.get("CBP_FORMS_RUNS", "1"))
FORMS = ("groupwise", "arrow", "sql")
WAYS = {"one task": (10**6, 2_000), "parts": (10**6, 4), "shuffled": (0, 4)}
"""Reads up to which nothing is shuffled, and records that are worth a task; by turns."""


def random_chain(chance: random.Random) -> tuple[Dataflow, Dataflow, list[str]]:
    """Return a chain with groupwise stages only, the same in other forms, and these forms.

    Every form is in it, in any order, one at least with outer state; the stages before one may
    be record-wise. One stage, anywhere but in front, reads single records as well: of the
    stage before it, or of any flow before that.
    """
    builder = DataflowBuilder("forms")
    flows = [builder.source("src", SCHEMA).name]
    forms: dict[str, str] = {}
    shape: list[str] = []
    kinds = [[form] for form in chance.sample(FORMS, len(FORMS))]
    kinds.insert(chance.randint(1, len(kinds)), ["mixed"])
    outer = {chance.choice(FORMS), *(form for form in FORMS if chance.random() < 0.5)}
    patient = {form for form in FORMS if form not in outer and chance.random() < 0.7}
    for kind in (one for more in kinds for one in chance.choice([more, ["record-wise", *more]])):
        name = (
            f"{kind.replace('-', '')}{len(shape)}{'o' * (kind in outer)}{'t' * (kind in patient)}"
        )
        if kind == "mixed":
            right = chance.choice(flows)
            builder.stage(name, Mixed(), buckets=4, left=flows[-1], right=right)
            shape.append(f"({right})")
        else:
            made: Any = RollCall() if kind in outer else Patient() if kind in patient else Tally()
            made = Spread() if kind == "record-wise" else made
            builder.stage(name, made, buckets=4, items=flows[-1])
        flows.append(f"{name}.{chance.choice('oop')}")
        forms[name] = kind
        shape.append(f"{kind}>{flows[-1]}")
    dataflow = builder.build()
    other = {name: _in_form(node, forms[name]) for name, node in dataflow.stages.items()}
    return dataflow, replace(dataflow, stages=MappingProxyType(other)), shape


def _in_form(node: Any, form: str) -> Any:
    if form == "arrow":
        return replace(node, translator=arrow_form(node.translator))
    if form != "sql":
        return node
    forms: dict[str, Any] = {"RollCall": RollCallSql, "Patient": PatientSql, "Tally": TallySql}
    return replace(node, translator=forms[node.translator.name]().spec())


@pytest.mark.parametrize("form", [TranslateArrow, TranslateSql])
def test_groups_with_single_records_are_refused_in_the_other_forms(form: type[Any]) -> None:
    """What the draw leaves out cannot be declared: a form that learns it has to be drawn."""
    left = Input(SCHEMA, route_by="k")
    declared = {name: vars(Mixed)[name] for name in ("right", "seen", "o", "p")}
    made = type("Other", (form,), {**declared, "left": left, "translate": lambda *given: None})
    with pytest.raises(DefinitionError) as refused:
        made().spec()
    assert refused.value.details["rule"] == "route_by_missing"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_every_form_behind_every_other_equals_the_reference(
    seed: int, spark: Any, tmp_path: Path
) -> None:
    """Each epoch's outputs, and state, are the groupwise ones; SQL gives them in no order.

    Fused or not, shuffled or not, in one task or in parts.
    """
    chance = random.Random(seed)
    dataflow, mixed, shape = random_chain(chance)
    fused, way = chance.random() < 0.7, list(WAYS)[seed % len(WAYS)]
    reads, rows = WAYS[way]
    print(f"CBP_FORMS_SEED={seed} CBP_FORMS_RUNS=1: {' '.join(shape)}, {fused=}, {way}")
    limits = EngineLimits(arranged_reads=reads, rows_per_task=rows, rows_per_task_sql=rows)
    # The first one fills the states: outer ones have to call who is absent in the next.
    sizes = [20, *(chance.choice([0, 12, 20]) for _ in range(chance.choice([1, 2])))]
    epochs = [{"src": _records(chance, size)} for size in sizes]
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, mixed, tmp_path / "t", fused=fused)
    assert_same(dataflow, driver, epochs, ordered=False, source="")


def _records(chance: random.Random, size: int) -> list[dict[str, Any]]:
    """Return records of a few keys: others, which an earlier epoch had, are absent."""
    keys = chance.sample([0, 1, 2, 3, 4, 5, None], 3)
    return [
        {"k": chance.choice(keys), "v": chance.choice(["", "a", "b", "ä"])} for _ in range(size)
    ]
