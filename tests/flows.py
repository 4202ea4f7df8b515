"""Translators that the engine tests run on every engine: each has one hard side.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from typing import Any

from cbp import (
    Input,
    KeyWindow,
    Loopback,
    Output,
    RunAny,
    State,
    StaticTable,
    Translate,
    TranslateRecords,
    by,
    by_sql,
    framed,
    route,
)


class UrlCount(Translate):
    """Inner state, one record per group."""

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)


class Sequences(Translate):
    """Order within a group decides the result; two inputs of different shape."""

    left = Input("k BIGINT, t INT, v STRING", route_by="k", order_by="t")
    right = Input("k BIGINT, v STRING", route_by="k", order_by="v")
    seen = State("k BIGINT, last STRING, n INT")
    lines = Output("k BIGINT, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        last, n = None, 0
        for row in group.seen:
            last, n = row.last, row.n
        for side in ("right", "left"):  # not the order of declaration
            for row in getattr(group, side):
                out.lines(k=key.k, line=f"{side}:{row.v}:{last}")
                last, n = row.v, n + 1
        if n % 4 != 3:  # sometimes the group forgets
            out.seen(k=key.k, last=last, n=n)


class Members(Translate):
    """A set in state: many records per group, most of them unchanged."""

    key = "site STRING"
    items = Input("url STRING, drop BOOLEAN", route_by=by(lambda r: (r.url or "")[:1], "STRING"))
    urls = State("site STRING, url STRING, at DOUBLE")
    sizes = Output("site STRING, n INT", key="site")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        members = {row.url: row for row in group.urls}
        for item in group.items:
            if item.drop:
                members.pop(item.url, None)
            elif item.url not in members:
                members[item.url] = (key.site, item.url, 0.5 * len(members))
        for row in members.values():
            out.urls(*row)
        out.sizes(site=key.site, n=len(members))


class Nested(Translate):
    """State of nested types, compared by value."""

    edges = Input("src INT, dst INT", route_by="src")
    nodes = State("src INT, adjacent ARRAY<INT>, weights MAP<STRING, DOUBLE>")
    degrees = Output("src INT, n INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        adjacent: set[int] = set()
        for row in group.nodes:
            adjacent.update(row.adjacent)
        adjacent.update(edge.dst for edge in group.edges if edge.dst is not None)
        members = sorted(adjacent)
        out.nodes(src=key.src, adjacent=members, weights={str(m): m / 2 for m in members})
        out.degrees(src=key.src, n=len(members))


class Split(TranslateRecords):
    """Record-wise, two outputs, none to many records each."""

    lines = Input("text STRING")
    words = Output("url STRING")
    lengths = Output("k BIGINT, v STRING")

    def translate(self, record: Any, out: Any) -> None:
        for word in (record.text or "").split():
            out.words(url=word)
        if record.text:
            out.lengths(k=len(record.text), v=record.text)


class Reach(Translate):
    """Messages to itself: the least number of hops from a seed, over edges that keep arriving."""

    key = "node INT"
    edges = Input("src INT, dst INT", route_by="src")
    seeds = Input("node INT", route_by="node")
    mail = Loopback("node INT, hops INT", route_by="node", order_by="hops")
    links = State("node INT, dst INT")
    known = State("node INT, hops INT")
    distances = Output("node INT, hops INT", key="node")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        old = {row.dst for row in group.links}
        links = old | {edge.dst for edge in group.edges}
        before = min((row.hops for row in group.known), default=None)
        told = [0 for _ in group.seeds] + [row.hops for row in group.mail]
        hops = min((h for h in [before, *told] if h is not None), default=None)
        for dst in sorted(links, key=repr):
            out.links(key.node, dst)
            if hops is not None and (hops != before or dst not in old):
                out.mail(dst, hops + 1)
        if hops is not None:
            out.known(key.node, hops)
            if hops != before:
                out.distances(key.node, hops)


class Tags(Translate):
    """Several keys per record, or none; order and state."""

    key = "tag STRING"
    posts = Input(
        "id INT, tags ARRAY<STRING>",
        route_by=route(lambda p: p.tags or [], "STRING"),
        order_by=by(lambda p: -(p.id or 0), "INT"),
    )
    later = Input(
        "id INT, tags ARRAY<STRING>",
        route_by=route(lambda p: set(p.tags) if p.tags else [], "STRING"),
    )
    seen = State("tag STRING, n INT")
    lines = Output("tag STRING, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.seen)
        for flow in (group.later, group.posts):
            for row in flow:
                n += 1
                out.lines(key.tag, f"{row.id} {row.tags} {n}")
        out.seen(key.tag, n)


class Parcels(Translate):
    """Writes state for other keys, some of which are called in the same epoch."""

    key = "k STRING, part DOUBLE"
    orders = Input("k STRING, part DOUBLE, verb STRING, n INT", route_by="k, part")
    kept = State("k STRING, part DOUBLE, n INT, parts ARRAY<INT>")
    marks = State("part DOUBLE, whom STRING, k STRING", grouping="outer", route_by="whom, part")
    seen = Output("k STRING, part DOUBLE, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        orders = list(group.orders)
        verbs = {order.verb for order in orders}
        kept = [] if "blind" in verbs else list(group.kept)
        out.seen(*key, f"{[r.n for r in kept]} {[r.k for r in group.marks]} {len(orders)}")
        for order in orders:
            # Others come first and in between; a group's own zero is written as the negative one.
            if order.verb == "give":
                for other in ("a", "b", key.k):
                    out.kept.remote(other, order.part and -order.part, order.n, [order.n])
                out.kept(key.k, -0.0 if key.part == 0 else key.part, order.n, None)
            elif order.verb == "mark":
                out.marks.remote(float((order.n or 0) % 2), "b", order.k)
        if "forget" not in verbs:
            for row in kept:
                out.kept(*row)


class Ranks(Translate):
    """Keeps records by columns that are not named like its key, in the order of another one."""

    key = "k STRING, part DOUBLE"
    items = Input("k STRING, part DOUBLE, n INT", route_by="k, part")
    kept = State("k INT, at DOUBLE, n INT, whom STRING", route_by="whom, at", order_by="n")
    seen = Output("k STRING, part DOUBLE, kept ARRAY<INT>, first INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        kept = list(group.kept)
        out.seen(*key, [row.n for row in kept], kept[0].k if kept else None)
        for row in kept:
            if row.n != 1:
                out.kept(*row)
        for item in group.items:
            out.kept(k=-len(kept), at=key.part, n=item.n, whom=key.k)


class Scored(Translate):
    """Keys in SQL beside single records; groups that are called for their state alone."""

    key = "k BIGINT"
    runnable = RunAny()
    items = Input("k BIGINT", route_by=by_sql("k % 3", "BIGINT", function=lambda r: r.k % 3))
    notes = Input("k BIGINT")
    ages = State("k BIGINT, age INT", grouping="outer")
    lines = Output("k BIGINT, n INT, ages INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        ages = sum(row.age for row in group.ages)
        for note in group.notes:
            out.lines(note.k, -1, ages)
            out.ages(note.k, 10)
        if key is not None:
            out.lines(key.k, sum(1 for _ in group.items), ages)
            out.ages(key.k, ages + 1)


class Framed(Translate):
    """Inputs framed by a column and by a function with memo; several frames in one epoch."""

    runnable = RunAny(batch=3)
    left = Input("k BIGINT, t INT NOT NULL, v STRING", route_by="k", frame_by="t")
    right = Input(
        "k BIGINT, t INT",
        route_by="k",
        frame_by=framed(lambda r, n: (r.t or 0, (n or 0) + 1), memo=True),
    )
    seen = State("k BIGINT, n INT")
    lines = Output("k BIGINT, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.seen)
        for row in group.left:
            out.lines(k=key.k, line=f"left:{row.t}:{row.v}:{n}")
            n += 1
        for row in group.right:
            out.lines(k=key.k, line=f"right:{row.t}:{n}")
            n += 1
        out.seen(k=key.k, n=n)


class Arrivals(Translate):
    """Emits the records of a group as they came, from several increments at once."""

    runnable = RunAny(batch=3)
    items = Input("k BIGINT, day INT NOT NULL, n BIGINT", route_by="k")
    last = State("k BIGINT, n BIGINT")
    seen = Output("k BIGINT, before BIGINT, came ARRAY<BIGINT>", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        before = next((row.n for row in group.last), None)
        came = [row.n for row in group.items]
        out.seen(key.k, before, came)
        out.last(key.k, came[-1] if came else before)


class FramedArrivals(Arrivals):
    """The same of several frames, each of them slices of files."""

    items = Input("k BIGINT, day INT NOT NULL, n BIGINT", route_by="k", frame_by="day")


class FramedWords(TranslateRecords):
    """Record-wise on frames."""

    lines = Input("k BIGINT, t INT NOT NULL", frame_by="t")
    words = Output("k BIGINT, t INT")

    def translate(self, record: Any, out: Any) -> None:
        out.words(*record)


class NumberedLines(Translate):
    """Windows of several frames at once, beside a table that is read in every epoch."""

    key = "k BIGINT"
    runnable = StaticTable(("names",), KeyWindow(width=2))
    items = Input("k BIGINT, t INT NOT NULL", route_by="k", frame_by="t")
    names = Input("k BIGINT, name STRING", route_by="k")
    seen = State("k BIGINT, n INT")
    lines = Output("k BIGINT, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.seen)
        names = [row.name for row in group.names]
        for row in group.items:
            out.lines(k=key.k, line=f"{row.t}:{names}:{n}")
            n += 1
        out.seen(k=key.k, n=n)


class Single(Translate):
    """One record per group: its second key has no columns."""

    urls = Input("url STRING, n BIGINT", route_by="url")
    seen = State("url STRING, n BIGINT", keep=True, key="url")
    before = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.urls:
            for old in (group.seen.get(), *group.seen.range()):
                out.before(key.url, old and old.n)
            if row.n is None:
                out.seen.delete()
            else:
                out.seen(*row)


class Pages(Translate):
    """Long texts in state, one per group, replaced when they come again."""

    arrivals = Input("k BIGINT, mark STRING, copies INT", route_by="k")
    pages = State("k BIGINT, text STRING")
    sizes = Output("k BIGINT, before INT, after INT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        before = sum(len(row.text) for row in group.pages)
        text = "".join(row.mark * row.copies for row in group.arrivals)
        out.pages(k=key.k, text=text)
        out.sizes(k=key.k, before=before, after=len(text))
