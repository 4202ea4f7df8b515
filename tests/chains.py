"""Stages whose flows all have one schema, so that tests can chain them at will.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from typing import Any

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateRecords
from cbp.model.dataflow import Dataflow

SCHEMA = "k BIGINT, v STRING"


class Spread(TranslateRecords):
    """None, one or two records each; two outputs; an integer where a float is declared."""

    items = Input(SCHEMA)
    o = Output(SCHEMA)
    p = Output("k BIGINT, v STRING, half DOUBLE")

    def translate(self, record: Any, out: Any) -> None:
        if record.v == "fail":
            raise RuntimeError("as asked")
        for n in range((record.k or 0) % 3):
            out.o(k=record.k - n, v=f"{record.v}{n}"[-3:])
        out.p(k=record.k, v=record.v, half=record.k or 0)


class Tally(Translate):
    """State, and outputs whose order is the order of groups and records."""

    items = Input(SCHEMA, route_by="k", order_by="v")
    seen = State("k BIGINT, n BIGINT")
    o = Output(SCHEMA)
    p = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.seen)
        for row in group.items:
            n += 1
            out.o(k=n % 4, v=row.v)
        out.p(k=key.k, v=str(n))
        if n % 5:
            out.seen(k=key.k, n=n)


class Pair(Translate):
    """Two inputs, so it waits for both."""

    left = Input(SCHEMA, route_by="k")
    right = Input(SCHEMA, route_by="k")
    o = Output(SCHEMA)
    p = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in (*group.left, *group.right):
            out.o(k=key.k, v=row.v)
        out.p(k=key.k, v="both")


class Broken(Spread):
    """Emits what does not fit."""

    def translate(self, record: Any, out: Any) -> None:
        out.p(k=record.k, v=record.v, half="no number")


def chain(last: Spread | None = None) -> Dataflow:
    """Give record-wise, groupwise, record-wise: one physical stage of two phases."""
    builder = DataflowBuilder("chain")
    source = builder.source("src", SCHEMA)
    first = builder.stage("first", Spread(), items=source)
    count = builder.stage("count", Tally(), items=first.o, buckets=4)
    builder.stage("last", last or Spread(), items=count.o)
    return builder.build()
