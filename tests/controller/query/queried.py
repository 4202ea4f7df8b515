"""A service whose dataflow has every kind of table and of column, for queries."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from cbp import Input, Output, State, Translate, View
from tests.controller.live import Live, live

__all__ = ["COLUMNS", "TYPED", "VALUES", "Typed", "queried"]

COLUMNS = (
    "word STRING, n BIGINT, small SMALLINT, half DOUBLE, single FLOAT, yes BOOLEAN, raw BINARY, "
    "day DATE, at TIMESTAMP, exact DECIMAL(20,3), tags ARRAY<STRING>, "
    "pair STRUCT<a: INT, b: STRING>, named MAP<STRING, BIGINT>"
)
VALUES: dict[str, Any] = {
    "small": 7,
    "half": 0.5,
    "single": 0.25,
    "yes": True,
    "raw": b"\x00\xff",
    "day": date(2026, 11, 23),
    "at": datetime(2026, 11, 23, 10, 0, 0, 123000, tzinfo=UTC),
    "exact": Decimal("12.345"),
    "tags": ["x", None],
    "pair": {"a": 1, "b": "y"},
    "named": {"k": 2},
}


class Typed(Translate):
    """Add up numbers per word, beside a value of every type; forget a word whose sum is zero."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State(COLUMNS)
    counts = View("word STRING, n BIGINT", key="word")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        if n:
            out.sums(word=key.word, n=n, **VALUES)
            out.counts(word=key.word, n=n)
        out.totals(word=key.word, n=n)


TYPED: dict[str, Any] = {
    "name": "one",
    "sources": {"a": {"schema": "word STRING, n BIGINT"}},
    "stages": {"sum": {"translator": "typed", "inputs": {"items": "a"}, "buckets": 2}},
}


def queried(root: Path) -> Live:
    """Return a service that has run three epochs: `a` 1, 3 and gone, `b` 5, `c` 2 and 9."""
    made = live(root, translators={"typed": Typed})
    made.world.controller.register(TYPED)
    for records in ([("a", 1), ("b", 5)], [("a", 2), ("c", 2)], [("a", -3), ("c", 7)]):
        made.world.arrive("one", "a", *records)
        made.world.ticks()
    return made
