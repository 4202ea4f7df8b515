"""Epochs on Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tests.cbp.engine.epochs import CASES, LEDGER

Epochs = list[dict[str, list[dict[str, Any]]]]


def epochs_of(case: str, *, seed: int, records: int = 40) -> Epochs:
    """Make three epochs of records from a seed."""
    chance = random.Random(seed)
    texts = ["", "a", "b", "ab", "ä", "z" * 300, None, "a b a", "ä c"]
    values: dict[str, Callable[[], Any]] = {
        "parcels.verb": lambda: chance.choice(["give", "give", "mark", "forget", "blind"]),
        "probe.verb": lambda: chance.choice(["send", "bind", "write", "forget"]),
        "orders.to": lambda: chance.choices(
            ["a", "x", "y", "@x", "@y", "*"], k=chance.randrange(4)
        ),
        "rumours.to": lambda: chance.choices(["a", "b", "c", "*", "*kept"], k=chance.randrange(3)),
        "probe.to": lambda: chance.choices(["a", "b", "c", "*", "*kept"], k=chance.randrange(3)),
        "notes.verb": lambda: chance.choice(["send", "bind", "write", "look"]),
        "board.id": lambda: chance.choice([0, 1]),
        "right.n": lambda: chance.choice([0, 1, None]),
        "notes.to": lambda: chance.choices(["a", "b", "c", "@x", "*kept"], k=chance.randrange(3)),
        "board.to": lambda: chance.choices(["a", "b", "*", "*kept"], k=chance.randrange(3)),
        "parting.k": lambda: chance.randrange(60),
        "parting_items.k": lambda: chance.randrange(60),
        "parting_items.verb": lambda: chance.choice(["put", "delete", "again", "look"]),
        "ledger.how": lambda: chance.choice(LEDGER),
        "STRING": lambda: chance.choice(texts),
        "BIGINT": lambda: chance.choice([0, 1, 2, 3, None]),
        "INT": lambda: chance.choice([0, 1, 2, 3, None]),
        "BOOLEAN": lambda: chance.random() < 0.3,
        "ARRAY<STRING>": lambda: chance.choices(texts, k=chance.randrange(4)),
        "DOUBLE": lambda: chance.choice([0.0, -1.5, 2.5, math.nan, None]),
    }

    def draw(input_: str, column: str, type_: str) -> Callable[[], Any]:
        """Return what makes values: of a column of an input, of a case, or of a type."""
        names = f"{input_}.{column}", f"{case.removeprefix('outer_')}.{column}", type_
        return next(make for name, make in values.items() if name in names)

    inputs = [spec for spec in CASES[case][0]().spec().inputs if not spec.loopback]
    return [
        {
            spec.name: [
                {
                    f.name: next(
                        v
                        for v in iter(draw(spec.name, f.name, str(f.type)), ...)
                        if f.nullable or v is not None
                    )
                    for f in spec.schema.fields
                }
                for _ in range(records)
            ]
            for spec in inputs
        }
        for _ in range(3)
    ]
