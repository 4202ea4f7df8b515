"""Dataflows in the SQL form."""

from __future__ import annotations

import random
from typing import Any

from cbp import DataflowBuilder
from cbp.model.dataflow.dataflow import Dataflow
from cbp.sdk.translate import Declared


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
