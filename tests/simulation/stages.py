"""Stages that random dataflows are made of: one flow schema, so that any fits behind any.

Each has one side that a recovery can get wrong: state that is forgotten, outer groups,
order, several inputs, frames, messages, cycles. Values stay small, cycles die out.
"""

from __future__ import annotations

from typing import Any

from cbp import Input, Loopback, Output, RunAny, State, Translate, TranslateRecords, framed

SCHEMA = "k BIGINT, n BIGINT"


class Note(TranslateRecords):
    """Record-wise, so it is fused: none, one or two records each."""

    items = Input(SCHEMA)
    o = Output(SCHEMA)

    def translate(self, record: Any, out: Any) -> None:
        for i in range(record.n % 3):
            out.o((record.k + i) % 5, record.n + i)


class Total(Translate):
    """Inner state, one record per group."""

    items = Input(SCHEMA, route_by="k")
    sums = State("k BIGINT, n BIGINT, times BIGINT")
    o = Output(SCHEMA, key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n, times = sum(r.n for r in group.items), 1
        for row in group.sums:
            n, times = n + row.n, times + row.times
        out.sums(key.k, n % 1000, times)
        out.o(key.k, n % 1000)


class Twice(Total):
    """The tables of `Total`, and other code: what a new version puts in its place."""

    items = Input(SCHEMA, route_by="k")
    sums = State("k BIGINT, n BIGINT, times BIGINT")
    o = Output(SCHEMA, key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n, times = 2 * sum(r.n for r in group.items), 1
        for row in group.sums:
            n, times = n + row.n, times + row.times
        out.sums(key.k, n % 1000, times)
        out.o(key.k, n % 1000)


class Fickle(Translate):
    """A set in state that grows, shrinks and is forgotten; order within groups counts."""

    items = Input(SCHEMA, route_by="k", order_by="n")
    kept = State(SCHEMA)
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        kept = [row.n for row in group.kept]
        for i, item in enumerate(group.items):
            if item.n in kept:
                kept.remove(item.n)
            else:
                kept.append(item.n)
            out.o(key.k, i * 10 + item.n % 10)
        for n in kept if len(kept) % 4 != 3 else ():
            out.kept(key.k, n)


class Ages(Translate):
    """Outer state: every group is called in every epoch, and dies of age."""

    items = Input(SCHEMA, route_by="k")
    ages = State("k BIGINT, age BIGINT", grouping="outer")
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        age = max((row.age for row in group.ages), default=-1) + 1
        fresh = any(True for _ in group.items)
        if fresh or age < 3:
            out.ages(key.k, 0 if fresh else age)
        out.o(key.k, age)


class Pair(Translate):
    """Two inputs, epoch by epoch."""

    left = Input(SCHEMA, route_by="k")
    right = Input(SCHEMA, route_by="k")
    seen = State("k BIGINT, l BIGINT, r BIGINT")
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        left, right = 0, 0
        for row in group.seen:
            left, right = row.l, row.r
        left += sum(r.n for r in group.left)
        right += sum(r.n for r in group.right)
        out.seen(key.k, left % 1000, right % 1000)
        if left != right:
            out.o(key.k, abs(left - right) % 1000)


class Either(Pair):
    """Two inputs, whatever is there first, up to two increments of each."""

    runnable = RunAny(batch=2)
    left = Input(SCHEMA, route_by="k")
    right = Input(SCHEMA, route_by="k")
    seen = State("k BIGINT, l BIGINT, r BIGINT")
    o = Output(SCHEMA)


class Posted(Translate):
    """Groups with state beside single records and messages, which write state from afar."""

    left = Input(SCHEMA, route_by="k")
    right = Input(SCHEMA)
    echo = Loopback(SCHEMA)
    seen = State(SCHEMA)
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        if key is not None:
            n = sum(row.n for row in group.seen) + sum(row.n for row in group.left)
            out.seen(key.k, n % 1000)
            out.o(key.k, n % 1000)
        for row in (*group.right, *group.echo):
            out.seen(row.k, row.n % 7)
            out.o(row.k, -row.n % 1000)
            if row.n % 3:
                out.echo((row.k + 1) % 5, row.n % 3 - 1)


class Postal(Posted):
    """The same, whatever is there first."""

    runnable = RunAny(batch=2)
    left = Input(SCHEMA, route_by="k")
    right = Input(SCHEMA)
    echo = Loopback(SCHEMA)
    seen = State(SCHEMA)
    o = Output(SCHEMA, history=True)


class Frames(Translate):
    """Reads what belongs together by a function with a memo, not what arrived together."""

    items = Input(
        SCHEMA,
        route_by="k",
        frame_by=framed(lambda r, m: ((m or 0) // 3, (m or 0) + 1), memo=True),
    )
    seen = State(SCHEMA)
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.seen) + sum(1 for _ in group.items)
        out.seen(key.k, n)
        out.o(key.k, n)


class Mail(Translate):
    """Messages to itself that fade."""

    items = Input(SCHEMA, route_by="k")
    mail = Loopback(SCHEMA, route_by="k")
    got = State(SCHEMA)
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.got)
        for row in group.items:
            n += row.n
            out.mail((key.k + 1) % 5, row.n % 3)
        for row in group.mail:
            n += 1
            if row.n > 0:
                out.mail((key.k + 2) % 5, row.n - 1)
        out.got(key.k, n % 1000)
        out.o(key.k, n % 1000)


class Turn(Translate):
    """Head of a cycle: takes what arrives and what comes back."""

    runnable = RunAny(batch=1)
    items = Input(SCHEMA, route_by="k")
    back = Input(SCHEMA, route_by="k")
    turns = State(SCHEMA)
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.turns)
        for row in (*group.items, *group.back):
            n += 1
            out.o(key.k, row.n % 4)
        out.turns(key.k, n)


class Fall(TranslateRecords):
    """Way back of a cycle: every round takes one off."""

    items = Input(SCHEMA)
    o = Output(SCHEMA)

    def translate(self, record: Any, out: Any) -> None:
        if record.n > 0:
            out.o(record.k, record.n - 1)


TRANSLATORS: dict[str, type] = {
    kind.__name__.lower(): kind
    for kind in (
        Note,
        Total,
        Twice,
        Fickle,
        Ages,
        Pair,
        Either,
        Posted,
        Postal,
        Frames,
        Mail,
        Turn,
        Fall,
    )
}

STATES: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (state, tuple(column.split()[0] for column in declared.schema.split(", "))[1:])
    for name, kind in TRANSLATORS.items()
    for state, declared in vars(kind).items()
    if isinstance(declared, State)
}
"""Translator to its state and the columns behind the key; every state has the key `k`."""
