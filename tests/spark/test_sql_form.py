"""Translators in Spark SQL against the same ones groupwise, on random data over some epochs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.errors import AuthorCodeError
from cbp.model.dataflow import Dataflow
from cbp.sdk.translate import Declared
from tests.cbp.engine.test_direct import NARROW, assert_same
from tests.driver import Driver
from tests.keys import epochs_of_keys
from tests.sql_forms import FAILING, PAIRS, totals_by

pytestmark = pytest.mark.spark


def dataflow_of(*translators: Declared) -> Dataflow:
    """Wire each translator, `t0` to `tn`, to a source for its only input, `r0` to `rn`."""
    builder = DataflowBuilder("sql_form")
    for at, translator in enumerate(translators):
        (input_,) = translator.spec().inputs
        wired: Any = {input_.name: builder.source(f"r{at}", str(input_.schema))}
        builder.stage(f"t{at}", translator, buckets=4, **wired)
    return builder.build()


def records_of(dataflow: Dataflow, *, seed: int, epochs: int) -> list[dict[str, Any]]:
    """Make records for every source of a dataflow, by the types of its columns."""
    chance = random.Random(seed)
    values: dict[str, Any] = {
        "STRING": lambda: chance.choice(["", "a", "b", "ä", "z" * 300, None]),
        "INT": lambda: chance.choice([0, 1, None]),
        "BOOLEAN": lambda: chance.random() < 0.4,
    }
    return [
        {
            name.removeprefix("r"): [
                {f.name: values[str(f.type)]() for f in source.schema.fields} for _ in range(25)
            ]
            for name, source in dataflow.sources.items()
        }
        for _ in range(epochs)
    ]


@pytest.mark.parametrize(
    ("tasks", "hash_mask"), [(1, -1), (2, NARROW)], ids=["one", "shuffled-colliding"]
)
def test_every_epoch_equals_the_groupwise_form(
    tasks: int, hash_mask: int, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs of every epoch as multisets, and state, are the same.

    Inner and outer grouping, deleted state, several records per group; as keys null, NaN,
    both zeros, decimals and bytes.
    """
    rows = {"groupwise": 2_000, "arrow": 2_000, "sql": 50_000 if tasks == 1 else 1}
    monkeypatch.setattr("cbp.engine.planning.ROWS_PER_TASK", rows)
    pairs = [(wise(), sql()) for wise, sql in PAIRS.values()]
    epochs = records_of(dataflow_of(*(pair[0] for pair in pairs)), seed=tasks, epochs=2)
    types = ("DOUBLE", "BINARY", "DECIMAL(18,2)")
    for epoch, records in zip(epochs, epochs_of_keys(types, seed=tasks), strict=True):
        epoch[str(len(pairs))] = records
    pairs.append(totals_by(types))
    groupwise, in_sql = (dataflow_of(*form) for form in zip(*pairs, strict=True))
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), hash_mask=hash_mask)
    driver = Driver(engine, in_sql, tmp_path / "t")
    assert_same(groupwise, driver, epochs, ordered=False, source="r")


def test_an_authors_mistakes_are_named(spark: Any, tmp_path: Path) -> None:
    """Wrong types, names and keys, and what fails on a value, have the code and the class."""
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))
    for at, (translator, says) in enumerate(FAILING.items()):
        driver = Driver(engine, dataflow_of(translator()), tmp_path / f"t{at}")
        driver.feed("r0", [{"url": "a"}])
        with pytest.raises(AuthorCodeError, match=translator.__name__) as caught:
            driver.run_until_idle()
        assert says in caught.value.details["cause"]
        assert "sql_forms.py" in caught.value.details["place"]
