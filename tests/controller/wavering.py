"""A translator that gives another answer each time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from cbp import Input, Output, State
from tests.controller.verified import fed
from tests.controller.world import (
    ONE,
    SCHEMA,
    Sum,
    World,
)

STEPS = SimpleNamespace(steps=itertools.repeat(0), asked=None)
"""What `Wavering` adds next, and what it calls before; no state of the author's class."""


class Wavering(Sum):
    """Adds what is asked for to every sum of `a`, once or ever more."""

    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        if STEPS.asked is not None:
            STEPS.asked()
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        n += next(STEPS.steps) if key.word == "a" else 0
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Framed(Sum):
    """Sums frames of one number."""

    items = Input(SCHEMA, route_by="word", frame_by="n")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


def wavering(world: World) -> World:
    stage = {**ONE["stages"]["sum"], "translator": "wavering", "buckets": 2}
    return fed(world, {**ONE, "stages": {"sum": stage}})
