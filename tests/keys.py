"""Keys that go wrong easily, and a translator for each of their types.

The translators live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

import datetime
import itertools
import random
from decimal import Decimal
from typing import Any

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.model.dataflow.dataflow import Dataflow

__all__ = ["COMPOSED", "VALUES", "Spelled", "dataflow_of_keys", "epochs_of_keys"]

UTC = datetime.UTC
LONG = "ä" * 500_000  # a megabyte
VALUES: dict[str, list[Any]] = {
    "STRING": [
        None,
        "",
        " ",
        "a",
        "A",
        "ä",
        "a\u0308",
        "日本",
        "\U0001f40d",
        "a\0b",
        LONG,
        LONG + "x",
    ],
    "BINARY": [None, b"", b"\0", b"\0\0", b"\xff\xfe", "ä".encode()],
    "BIGINT": [None, 0, -1, 1, 2**63 - 1, -(2**63)],
    "INT": [None, 0, -1, 2**31 - 1, -(2**31)],
    "SMALLINT": [None, 0, -1, 2**15 - 1],
    "TINYINT": [None, 0, -1, 127, -128],
    "BOOLEAN": [None, False, True],
    "DOUBLE": [None, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1.5],
    "FLOAT": [None, 0.0, -0.0, float("nan"), float("inf"), 0.5],
    "DECIMAL(18,2)": [None, Decimal("0"), Decimal("-1.5"), Decimal("1.50"), Decimal("9" * 16)],
    "DECIMAL(38,6)": [None, Decimal("0"), Decimal("-1.5"), Decimal("9" * 32)],
    "DATE": [None, datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)],
    "TIMESTAMP": [
        None,
        datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime.datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
    ],
}
COMPOSED = [
    ("STRING", "DECIMAL(18,2)", "DATE"),
    ("BINARY", "TIMESTAMP", "DOUBLE"),
    ("BIGINT", "BOOLEAN", "DECIMAL(38,6)", "INT"),
]


def _translator(types: tuple[str, ...]) -> type[Translate]:
    """Return a class that counts by keys of these types, under a name in this module."""
    names = [f"k{i}" for i in range(len(types))]
    columns = ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True))
    shape, route = f"{columns}, n BIGINT", ", ".join(names)

    class Keyed(Translate):
        rows = Input(shape, route_by=route)
        seen = State(shape)
        totals = Output(f"{shape}, line STRING", key=route)

        def translate(self, key: Any, group: Any, out: Any) -> None:
            line = [row.n for row in group.rows]
            n = sum(line) + sum(row.n for row in group.seen)
            out.seen(*key, n)
            out.totals(*key, n, " ".join(map(str, line)))

    Keyed.__name__ = Keyed.__qualname__ = "Keyed_" + "".join(
        c for t in types for c in t if c.isalnum()
    )
    globals()[Keyed.__name__] = Keyed
    return Keyed


class Spelled(Translate):
    """Writes a key as its newest record spells it; otherwise nothing of it changes."""

    rows = Input("k DOUBLE", route_by="k")
    seen = State("k DOUBLE, n INT")
    were = Output("k DOUBLE, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        *_, last = group.rows
        out.were(*key, f"{[row.k for row in group.seen]} {last.k}")
        out.seen(last.k, 0)


TRANSLATORS = {
    types: _translator(types)
    for types in [*((kind,) for kind in VALUES), ("DOUBLE", "FLOAT"), *COMPOSED]
}


def dataflow_of_keys(*keys: tuple[str, ...]) -> Dataflow:
    """Wire a stage per key type, `s0` to `sn`, each to a source of its own."""
    builder = DataflowBuilder("keys")
    for at, types in enumerate(keys):
        translator = TRANSLATORS[types]()
        source = builder.source(f"r{at}", str(translator.spec().inputs[0].schema))
        builder.stage(f"s{at}", translator, buckets=4, rows=source)
    return builder.build()


def epochs_of_keys(
    types: tuple[str, ...], *, seed: int, epochs: int = 2
) -> list[list[dict[str, Any]]]:
    """Return epochs of records in which every key comes, and many come again."""
    chance = random.Random(seed)
    every = list(itertools.islice(itertools.product(*(VALUES[t] for t in types)), 400))
    made = []
    for _ in range(2):
        again = [chance.choice(every) for _ in range(30)]
        chosen = again + chance.sample(every, min(40, len(every)))
        keys = [{f"k{i}": value for i, value in enumerate(key)} for key in chosen]
        made.append([{**key, "n": chance.randrange(9)} for key in keys])
    return made
