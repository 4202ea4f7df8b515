"""Translators whose messages come back within the same run, and their plain oracles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbp import (
    Aggregate,
    Dataflow,
    DataflowBuilder,
    Input,
    Loopback,
    Output,
    State,
    Timers,
    Translate,
    TranslateArrow,
    View,
    by,
)

ROUNDS = 1_000
"""Supersteps of long loops."""


class Components(Translate):
    """Label each node with the least node that it is linked to, by any number of links."""

    links = Input("src BIGINT, dst BIGINT", route_by="src")
    news = Loopback("node BIGINT, label BIGINT, linked BIGINT", route_by="node", supersteps=1000)
    near = State("src BIGINT, other BIGINT", keep=True, key="src, other")
    labels = View("src BIGINT, label BIGINT", key="src")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        links, news = [*group.links], [*group.news]
        old = next((row.label for row in group.labels), None)
        label = min([key.src if old is None else old, *(one.label for one in news)])
        new = {one.linked for one in news if one.linked is not None}
        for other in new | {link.dst for link in links}:
            out.near(key.src, other)
        tell = new if label == old else new | {row.other for row in group.near}
        for other in sorted(tell):
            out.news(other, label, None)
        for link in links:
            out.news(link.dst, label, key.src)
        out.labels(key.src, label)


class Bulk(Components):
    """The same, but each node speaks to all of its neighbours in each superstep.

    Args:
        rounds: Supersteps until the last label is there.
    """

    news = Loopback(
        "node BIGINT, label BIGINT, linked BIGINT, left INT", route_by="node", supersteps=ROUNDS
    )

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Take the least label, and tell it to all neighbours while rounds are left."""
        links, news = [*group.links], [*group.news]
        old = next((row.label for row in group.labels), None)
        label = min([key.src if old is None else old, *(one.label for one in news)])
        left = min([self.rounds + 1, *(one.left for one in news)]) - 1
        new = {one.linked for one in news if one.linked is not None}
        new |= {link.dst for link in links}
        for other in new:
            out.near(key.src, other)
        if left > 0:
            for other in sorted(new | {row.other for row in group.near}):
                out.news(other, label, key.src, left)
        out.labels(key.src, label)


class ComponentsByEpochs(Components):
    """The same, a superstep an epoch."""

    news = Loopback("node BIGINT, label BIGINT, linked BIGINT", route_by="node")


class Round(Translate):
    """Pass a number on until it is zero."""

    starts = Input("k BIGINT, n BIGINT", route_by="k")
    again = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=ROUNDS + 1)
    ends = Output("k BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Pass it on."""
        for one in [*group.starts, *group.again]:
            if one.n:
                out.again(key.k, one.n - 1)
            else:
                out.ends(key.k)


class Ripples(Translate):
    """Orders that pass from key to key, and leave something of each kind behind them.

    An order says what to do with what is kept, and how often it is still passed on.
    """

    orders = Input("k STRING, to STRING, verb STRING, n INT", route_by="k")
    mail = Loopback("k STRING, verb STRING, n INT", route_by="k", order_by="n", supersteps=4)
    echo = Loopback("to STRING, n INT", route_by=by(lambda one: one.to[:1], "STRING"), supersteps=4)
    notes = State("k STRING, n INT")
    shelf = State("k STRING, n INT, many BIGINT", keep=True, key="k, n")
    last = View("k STRING, verb STRING, n INT, many DOUBLE", key="k, verb")
    bag = View("k STRING, n INT")
    wake = Timers()
    log = Output("k STRING, said STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Do what each order and each message says, and pass it on."""
        notes = [row.n for row in group.notes]
        last = {row.verb: row for row in group.last}
        bag = [row.n for row in group.bag]
        todo = [(one.to, one.verb, one.n) for one in group.orders]
        todo += [(f"{key.k}b"[-1], one.verb, one.n) for one in group.mail]
        for to, verb, n in todo:
            self._do(key.k, verb, n, notes, bag, group, out)
            many = last[verb][3] if verb in last else 0.0
            last[verb] = (key.k, verb, n, -0.0 if verb == "zero" else many + 1)
            if n > 0:
                out.mail(to, verb, n - 1)
        now = group.run.time
        timers = [timer.at for timer in group.wake]
        for at in timers:
            if at > now:
                out.wake(key.k, at)
            else:
                out.log(key.k, "woken")
                out.mail(key.k, "put", 2)
        if any(verb == "zero" for _, verb, _ in todo) and not timers:
            out.wake(key.k, now + timedelta(hours=len(todo) - 2))
        for one in group.echo:
            out.log(key.k, f"echo {one.n}")
            notes.append(one.n)
        if any(verb == "drop" for _, verb, _ in todo):
            last = {}
        for n in notes:
            out.notes(key.k, n)
        for n in bag:
            out.bag(key.k, n)
        for _, row in sorted(last.items()):
            out.last(*row)

    def _do(
        self, k: str, verb: str, n: int, notes: list[int], bag: list[int], group: Any, out: Any
    ) -> None:
        out.log(k, f"{verb} {n}")
        found = group.shelf.get(n=n)
        if verb == "put":
            out.shelf(k, n, 1 if found is None else found.many + 1)
            bag.append(n)
        elif verb == "take":
            out.shelf.delete(n=n)
            bag[:1] = []
        elif verb == "far":
            out.notes.remote("a" if k != "a" else "b", n)
        elif verb == "echo":
            out.echo(f"{'cab'[n % 3]}!", n)
        elif verb == "forget":
            notes.clear()


class Fails(Translate):
    """Hands a number on, from key to key, and fails when it is 2."""

    items = Input("k BIGINT, n BIGINT", route_by="k")
    on = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=100)
    calls = View("k BIGINT, calls BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Hand on what came."""
        for record in (*group.items, *group.on):
            if record.n == 2:
                raise ValueError("two")
            out.on(k=key.k + 1, n=record.n - 1)
        out.calls(k=key.k, calls=1 + sum(row.calls for row in group.calls))


class Tides(Translate):
    """Every key with state is called in each superstep; keys are numbers of any kind, or none."""

    items = Input(
        "x DOUBLE, n INT", route_by="x", combine=lambda records: records[:1] + records[1:]
    )
    on = Loopback("x DOUBLE, n INT", route_by="x", supersteps=5, combine=lambda many: [max(many)])
    seen = State("y DOUBLE, calls BIGINT", grouping="outer", route_by="y", order_by="calls")
    told = View("x DOUBLE, n INT", key="x")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count calls, hand the largest number on, and tell it while it is even."""
        most = max((row.n for row in (*group.items, *group.on)), default=-1)
        calls = [row.calls for row in group.seen]
        for at, number in enumerate(calls or [0]):
            if number < 6:
                out.seen(key.x, number + 1 + at)
        if most > 0:
            out.on(None if key.x is None else -key.x / 2, most - 1)
        if most == 3:
            out.seen.remote(0.0, 1)
        if most % 2 == 0:
            out.told(key.x, most)


class Waves(TranslateArrow):
    """Steps from the nearest source, on whole columns."""

    edges = Input("src BIGINT, dst BIGINT", route_by="src")
    news = Loopback("node BIGINT, steps BIGINT", route_by="node", supersteps=50)
    links = State("src BIGINT, dst BIGINT")
    steps = View("src BIGINT, steps BIGINT", key="src")

    def translate(self, groups: Any, out: Any) -> None:
        """Take the least number of steps; tell all links of nodes that are nearer now."""
        keys = groups.keys
        links = (
            pa.concat_tables([groups.links, groups.edges.rename_columns(["src", "dst"])])
            .group_by(["src", "dst"], use_threads=False)
            .aggregate([])
        )
        told = pa.concat_tables(
            [
                groups.news.rename_columns(["src", "steps"]),
                groups.steps,
                pa.table(
                    {"src": keys.column("src"), "steps": pc.multiply(keys.column("src"), 0)}
                ).filter(pc.equal(pc.bit_wise_and(keys.column("src"), 7), 0)),
            ]
        )
        least = told.group_by("src", use_threads=False).aggregate([("steps", "min")])
        least = least.rename_columns(["src", "steps"])
        out.links(links)
        out.steps(least)
        before = groups.steps.rename_columns(["src", "before"])
        nearer = least.join(before, "src", use_threads=False)
        nearer = nearer.filter(
            pc.or_kleene(
                pc.is_null(nearer.column("before")),
                pc.less(nearer.column("steps"), nearer.column("before")),
            )
        )
        all_ = links.join(nearer, "src", join_type="inner", use_threads=False)
        new = groups.edges.join(least, "src", join_type="inner", use_threads=False)
        for part in (all_, new):
            part = part.sort_by([("dst", "ascending"), ("steps", "ascending")])
            out.news({"node": part.column("dst"), "steps": pc.add(part.column("steps"), 1)})


class WavesMerged(Waves):
    """The same; of the messages for a node, the one with the fewest steps arrives."""

    news = Loopback(
        "node BIGINT, steps BIGINT", route_by="node", supersteps=50, combine={"steps": "min"}
    )


class Gains(Translate):
    """Amounts are handed on to two other keys, summed on their way; the largest time, too.

    They are less than half as large each time, so that it ends.
    """

    items = Input("k BIGINT, n BIGINT, at DOUBLE, note STRING", route_by="k")
    on = Loopback(
        "k BIGINT, n SMALLINT, at DOUBLE, note STRING",
        route_by="k",
        supersteps=6,
        combine={"n": "sum", "at": "max"},
    )
    totals = View("k BIGINT, note STRING, n BIGINT, at DOUBLE", key="k, note")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep sums and the largest time, by note; hand on what came."""
        totals = {row.note: (row.n, row.at) for row in group.totals}
        came: dict[Any, int] = {}
        for one in (*group.items, *group.on):
            n, at = totals.get(one.note, (0, None))
            later = one.at is not None and (at is None or at != at or one.at > at)
            totals[one.note] = n + one.n, one.at + 0.0 if later else at
            came[one.note] = came.get(one.note, 0) + one.n
        for note, all_ in came.items():
            n = int(all_ * 3 / 8)
            for k in (key.k + 1, key.k * 2):
                if n:
                    out.on(k % 5, max(-30_000, min(30_000, n)), totals[note][1], note)
        for note, (n, at) in totals.items():
            out.totals(key.k, note, n, at)


class Ranks(Translate):
    """PageRank as in Pregel: all pages in each superstep, until the ranks move little."""

    links = Input("src BIGINT, dst BIGINT", route_by="src")
    shares = Loopback("page BIGINT, share DOUBLE", route_by="page", supersteps=300)
    near = State("src BIGINT, dst BIGINT", grouping="outer")
    ranks = View("src BIGINT, rank DOUBLE", key="src")
    moved = Aggregate("sum", ends_below=1e-9)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Sum what came, and share it with the linked pages."""
        before = next((row.rank for row in group.ranks), 1.0)
        near = sorted({row.dst for row in (*group.near, *group.links)})
        shares = [one.share for one in group.shares]
        rank = before if group.moved is None else 0.15 + 0.85 * math.fsum(shares)
        if group.moved is not None:
            out.moved(abs(rank - before))
        out.ranks(key.src, rank)
        for dst in near:
            out.near(key.src, dst)
            out.shares(dst, rank / len(near))


class Halves(Translate):
    """Numbers are handed on, each time a half, until all together are small."""

    items = Input("k BIGINT, n DOUBLE", route_by="k")
    on = Loopback("k BIGINT, n DOUBLE", route_by="k", supersteps=40)
    totals = View("k BIGINT, n DOUBLE, most DOUBLE, least DOUBLE, together DOUBLE", key="k")
    together = Aggregate("sum", ends_below=0.5)
    most = Aggregate("max")
    least = Aggregate("min", ends_below=-1000.0)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep the sum of what came, and what is known of the superstep before."""
        n = math.fsum(one.n for one in (*group.items, *group.on))
        for aggregate in (out.together, out.most, out.least):
            if n != 3.0:
                aggregate(n)
        out.totals(key.k, n, group.most, group.least, group.together)
        if abs(n) < 1e9:
            out.on((key.k + 1) % 5, n / 2)


class HalvesArrow(TranslateArrow):
    """The same on columns."""

    items, on, totals = Halves.items, Halves.on, Halves.totals
    together, most, least = Halves.together, Halves.most, Halves.least

    def translate(self, groups: Any, out: Any) -> None:
        """See `Halves`."""
        came = pa.concat_tables([groups.items, groups.on])
        came = came.group_by("k", use_threads=False).aggregate([("n", "sum")])
        k, n = came.column("k"), came.column("n_sum")
        given = pa.table({"value": n.filter(pc.not_equal(n, 3.0))})
        for aggregate in (out.together, out.most, out.least):
            aggregate(given)
        before = (groups.most, groups.least, groups.together)
        columns = [pa.array([value] * len(k), pa.float64()) for value in before]
        out.totals(pa.table([k, n, *columns], ["k", "n", "most", "least", "together"]))
        small = pc.less(pc.abs(n), 1e9)
        next_ = [(value + 1) % 5 for value in k.filter(small).to_pylist()]
        out.on(pa.table({"k": pa.array(next_, pa.int64()), "n": pc.divide(n.filter(small), 2.0)}))


class Swells(Translate):
    """Every message becomes two of the next superstep, so that memory is soon too small."""

    items = Input("k BIGINT, n BIGINT", route_by="k")
    on = Loopback("k BIGINT, n BIGINT, text STRING", route_by="k", supersteps=40)
    calls = View("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Hand on what came, twice."""
        for one in (*group.items, *group.on):
            if one.n:
                for k in (key.k * 2, key.k * 2 + 1):
                    out.on(k, one.n - 1, "x" * 50)
        out.calls(key.k, 1)


def loop_of(translator: Translate | TranslateArrow, **schemas: str) -> Dataflow:
    """Return a dataflow of one stage `stage` that reads the sources `s_<input>`."""
    flow = DataflowBuilder("loop")
    wiring = {name: flow.source(f"s_{name}", schema) for name, schema in schemas.items()}
    flow.stage("stage", translator, **wiring)
    return flow.build()


def least_labels(links: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the least node of each node's component."""
    label: dict[int, int] = {}

    def root(node: int) -> int:
        while label.setdefault(node, node) != node:
            node = label[node]
        return node

    for src, dst in links:
        one, other = sorted((root(src), root(dst)))
        label[other] = one
    return {node: root(node) for node in label}
