"""FrameBy functions."""

from __future__ import annotations

from typing import Any

from cbp import Input, Output, State, Translate, framed
from tests.controller.world import SCHEMA


class ByKey(Translate):
    """Without memo: an increment is grouped by key; A A B A are two frames."""

    items = Input(SCHEMA, route_by="word", frame_by="n")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


def _next(record: Any, memo: Any) -> tuple[int, Any]:
    """Give each stretch of records of one number a number of its own."""
    count, last = (0, record.n) if memo is None else memo
    count += record.n != last
    return count, [count, record.n]


class ByStretch(ByKey):
    """With memo: one pass in order; A A B A are three frames."""

    items = Input(SCHEMA, route_by="word", frame_by=framed(_next, memo=True))
