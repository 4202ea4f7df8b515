"""Stages that random dataflows are made of: one flow schema, so that any fits behind any.

Each has one side that a recovery can get wrong: state that is forgotten, outer groups,
order, several inputs, frames, messages, cycles. Values stay small, cycles die out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cbp import (
    Input,
    Lookup,
    Loopback,
    Output,
    RunAny,
    State,
    Timers,
    Translate,
    TranslateRecords,
    View,
    framed,
)

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


class Brittle(Total):
    """The tables of `Total`, and code that fails on some records."""

    items = Input(SCHEMA, route_by="k")
    sums = State("k BIGINT, n BIGINT, times BIGINT")
    o = Output(SCHEMA, key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n, times = 0, 1
        for row in group.items:
            n += row.n
            if row.n % 5 == 2:
                out.o(key.k, row.n)
                message = f"no {row.n}"
                raise ValueError(message)
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


def _in_threes(row: Any, memo: Any) -> tuple[int, int]:
    if row.n % 5 == 2:
        message = f"no frame for {row.n}"
        raise ValueError(message)
    return (memo or 0) // 3, (memo or 0) + 1


class Chipped(Frames):
    """The same with a function that frames and fails on some records."""

    items = Input(SCHEMA, route_by="k", frame_by=framed(_in_threes, memo=True))
    seen = State(SCHEMA)
    o = Output(SCHEMA, history=True)


class Cracked(Chipped):
    """The same, and code that fails on others."""

    items = Input(SCHEMA, route_by="k", frame_by=framed(_in_threes, memo=True))
    seen = State(SCHEMA)
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        items = list(group.items)
        if any(row.n % 7 == 3 for row in items):
            message = f"no {items}"
            raise ValueError(message)
        n = sum(row.n for row in group.seen) + len(items)
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


class Rounds(Mail):
    """The same within the run, but for what is left after three supersteps; emitted as a view."""

    items = Input(SCHEMA, route_by="k")
    mail = Loopback(SCHEMA, route_by="k", supersteps=3)
    got = View(SCHEMA, key="k")
    o = Output(SCHEMA)


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


class Wakes(Translate):
    """Timers: input sets one and drops what was set before; one that fires sets others.

    What a group says that was forgotten in between begins anew.
    """

    items = Input(SCHEMA, route_by="k")
    left = State(SCHEMA)
    lately = State(SCHEMA, expire="20 seconds")
    wake = Timers()
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        now, n = group.run.time, sum(row.n for row in group.left)
        fresh = [row.n for row in group.items]
        if fresh:
            n = sum(fresh) % 4
            out.wake(key.k, now + timedelta(seconds=fresh[-1] % 40))
        elif any(timer.at <= now for timer in group.wake):
            out.o(key.k, n)
            n = min(n, 4) - 1
            for again in range(max(n, 0)):
                out.wake(key.k, now + timedelta(seconds=10 * (again + 1)))
        calls = 1 + sum(row.n for row in group.lately)
        out.o(key.k, -calls)
        out.lately(key.k, calls)
        if n > 0:
            out.left(key.k, n)


class Listed(Translate):
    """A view that a group gives anew: records come, change, stay and go."""

    items = Input(SCHEMA, route_by="k")
    top = View("k BIGINT, n BIGINT, times BIGINT", key="k, n")
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows = {row.n: row.times for row in group.top}
        for item in group.items:
            if item.n % 3 == 0:
                rows.pop(item.n % 4, None)
            else:
                rows[item.n % 4] = rows.get(item.n % 4, 0) % 5 + 1
        for n, times in rows.items():
            out.top(key.k, n, times)
        out.o(key.k, len(rows))


class Stocked(Translate):
    """The same with records that stay unless they are put or deleted."""

    items = Input(SCHEMA, route_by="k")
    top = View("k BIGINT, n BIGINT, times BIGINT", key="k, n", keep=True)
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for item in group.items:
            if item.n % 3 == 0:
                out.top.delete(n=item.n % 4)
            else:
                row = group.top.get(n=item.n % 4)
                out.top(key.k, item.n % 4, 1 if row is None else row.times % 5 + 1)
        out.o(key.k, sum(1 for _ in group.top))


class Heaped(Translate):
    """A view without a key: equal records count, and go one by one."""

    items = Input(SCHEMA, route_by="k")
    top = View("k BIGINT, n BIGINT, times BIGINT")
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows = [(row.n, row.times) for row in group.top]
        for item in group.items:
            record = item.n % 3, item.n % 2
            if record in rows and item.n % 5 < 2:
                rows.remove(record)
            else:
                rows += [record] * (1 + item.n % 2)
        for n, times in rows:
            out.top(key.k, n, times)
        out.o(key.k, len(rows))


class Held(Translate):
    """What each group has, in any order, so that it can be recomputed."""

    items = Input(SCHEMA, route_by="k")
    top = View("k BIGINT, n BIGINT, times BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = times = 0
        for row in group.top:
            n, times = row.n, row.times
        for item in group.items:
            n, times = n + item.n, times + 1
        out.top(key.k, n, times)


class Balance(Translate):
    """A view of another one, from its signed changes."""

    moved = Input("n BIGINT, times BIGINT, sign INT", route_by="n", changes="signed")
    sums = View("n BIGINT, records BIGINT, total BIGINT", key="n")
    o = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        records = total = 0
        for row in group.sums:
            records, total = row.records, row.total
        for change in group.moved:
            records, total = records + change.sign, total + change.sign * change.times
        if records:
            out.sums(key.n, records, total)
        out.o(key.n, total)


class Looks(Translate):
    """Looks up what another stage keeps: what a group finds depends on when it was called."""

    items = Input(SCHEMA, route_by="k")
    table = Lookup("k BIGINT, n BIGINT, times BIGINT", by="k")
    every = Lookup("times BIGINT, n BIGINT", by=())
    calls = State(SCHEMA)
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.calls(key.k, 1 + sum(row.n for row in group.calls))
        for row in group.table:
            out.o(key.k, 1000 * (row.n or 0) + (row.times or 0))
        out.o(key.k, sum((row.n or 0) + (row.times or 0) for row in group.every))


class Joins(Translate):
    """A join with a view: the same, whenever its records change and its input comes."""

    items = Input(SCHEMA, route_by="k")
    table = Lookup("k BIGINT, n BIGINT, times BIGINT", by="k", key="k, n", wake=True)
    joined = View("k BIGINT, total BIGINT, times BIGINT, two BIGINT", key="k")
    o = Output(SCHEMA, history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        total = sum(row.n for row in group.items)
        total += sum(row.total or 0 for row in group.joined)
        times = sum(row.times or 0 for row in group.table.range(n=(1, None)))
        two = group.table.get(n=2)
        if total or times:
            out.joined(key.k, total, times, None if two is None else two.times)
        out.o(key.k, total + times)


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
        Brittle,
        Fickle,
        Ages,
        Pair,
        Either,
        Posted,
        Postal,
        Frames,
        Chipped,
        Cracked,
        Mail,
        Rounds,
        Turn,
        Wakes,
        Listed,
        Stocked,
        Heaped,
        Held,
        Balance,
        Looks,
        Joins,
        Fall,
    )
}


@dataclass(frozen=True)
class Corrected:
    """A state that operators correct, by the key `k`.

    Attributes:
        columns: Its columns behind the key.
        key: Those that no two records of a group may share; `None` if records have no key.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...] | None = None


def _corrected(name: str, declared: State) -> Corrected:
    columns = tuple(column.split()[0] for column in declared.schema.split(", "))[1:]
    if not isinstance(declared, View) or declared.key is None:
        return Corrected(name, columns)
    assert isinstance(declared.key, str)
    return Corrected(name, columns, tuple(declared.key.split(", "))[1:])


STATES: dict[str, Corrected] = {
    name: _corrected(state, declared)
    for name, kind in TRANSLATORS.items()
    for state, declared in vars(kind).items()
    if isinstance(declared, State)
    and not isinstance(declared, Timers)
    and not declared.expire
    and declared.schema.startswith("k ")
}
"""Translator to the state of it that operators correct."""
