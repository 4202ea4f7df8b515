"""Translators that the engine tests run on every engine: each has one hard side.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cbp import (
    All,
    Input,
    KeyWindow,
    Loopback,
    Multicast,
    Output,
    RunAny,
    State,
    StaticTable,
    Timers,
    Translate,
    TranslateRecords,
    View,
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


class Stamps(Translate):
    """What a group may know of its run: the epoch, the time, and the frame that is read."""

    items = Input("k BIGINT, t INT", route_by="k", frame_by=framed(lambda r: r.t or 0))
    first = State("k BIGINT, epoch BIGINT, at TIMESTAMP")
    lines = Output("k BIGINT, epoch BIGINT, at TIMESTAMP, first TIMESTAMP, frame STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        run = group.run
        epoch, first = next(((s.epoch, s.at) for s in group.first), (run.epoch, run.time))
        out.first(k=key.k, epoch=epoch, at=first)
        for _ in group.items:
            frame = str(group.run.frame("items"))
            out.lines(k=key.k, epoch=group.run.epoch, at=run.time, first=first, frame=frame)


class SingleStamps(Translate):
    """The same for single records of one input beside the groups of another."""

    items = Input("k BIGINT", route_by="k")
    singles = Input("k BIGINT, t INT", frame_by=framed(lambda r: r.t or 0))
    lines = Output("k BIGINT, epoch BIGINT, at TIMESTAMP, frames STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        frames = f"{group.run.frames('singles')} {group.run.frames('items')}"
        for row in [*group.items, *group.singles]:
            out.lines(k=row.k, epoch=group.run.epoch, at=group.run.time, frames=frames)


class Reminders(Translate):
    """Timers that are set, kept, dropped, set twice, and set in the past; a count beside them."""

    orders = Input("k BIGINT, wait INT", route_by="k")
    open = State("k BIGINT, n BIGINT")
    wake = Timers()
    log = Output("k BIGINT, what STRING, n BIGINT, at TIMESTAMP")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        now, timers, waits = group.run.time, list(group.wake), [r.wait or 0 for r in group.orders]
        n = sum(row.n for row in group.open) + len(waits)
        for timer in timers:
            due = timer.at <= now
            out.log(key.k, "due" if due else "pending", n, timer.at)
            if not due and 3 not in waits:
                out.wake(*timer)
        for wait in waits:
            out.wake(k=key.k, at=now + timedelta(hours=wait))
        if n < 5:
            out.open(key.k, n)


class Nudges(Reminders):
    """Sets timers of other groups, too, which need not have any record."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.wake.remote((key.k or 0) + 1, group.run.time + timedelta(hours=2, microseconds=1))
        for timer in group.wake:
            out.log(key.k, "mine", 0, timer.at)


class Parting(Translate):
    """A state that expires, beside one that stays and timers; a view that expires later."""

    orders = Input("k BIGINT, wait INT", route_by="k")
    seen = State("k BIGINT, n BIGINT, wait INT", expire="50 minutes")
    total = State("k BIGINT, n BIGINT")
    top = View("k BIGINT, wait INT, n BIGINT", key="k, wait", expire="2 hours")
    wake = Timers()
    log = Output("k BIGINT, seen BIGINT, total BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        waits = [row.wait or 0 for row in group.orders]
        seen = [*((row.n, row.wait) for row in group.seen), *((0, wait) for wait in waits)]
        total = sum(row.n for row in group.total) + len(waits)
        for n, wait in seen if 4 not in waits else []:  # sometimes the group forgets
            out.seen(k=key.k, n=n + 1, wait=wait)
        for wait in {*(row.wait for row in group.top), *waits}:
            out.top(k=key.k, wait=wait, n=total)
        for wait in waits:
            if wait > 2:
                out.wake(k=key.k, at=group.run.time + timedelta(hours=wait))
        out.total(k=key.k, n=total)
        out.log(k=key.k, seen=len(seen), total=total)


class PartingItems(Translate):
    """Kept records that expire by their group, in a state and in a view."""

    orders = Input("k BIGINT, id INT, verb STRING", route_by="k")
    items = View("k BIGINT, id INT, n BIGINT", keep=True, key="k, id", expire="50 minutes")
    last = State("k BIGINT, id INT, n BIGINT", keep=True, key="k, id", expire="2 hours")
    first = State("k BIGINT, id INT", keep=True, key="k, id")
    log = Output("k BIGINT, items STRING, last STRING, first STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        lists = (str([tuple(row) for row in rows]) for rows in (group.items, group.last))
        out.log(key.k, *lists, str([row.id for row in group.first]))
        for order in group.orders:
            record = group.items.get(id=order.id)
            if order.verb == "put":
                out.items(k=key.k, id=order.id, n=1 if record is None else record.n + 1)
            elif order.verb == "delete":
                out.items.delete(id=order.id)
            elif order.verb == "again":
                for row in group.items:
                    out.items(*row)
            if order.verb != "look":
                out.last(k=key.k, id=order.id, n=0)
                out.first(k=key.k, id=order.id)


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


class Clock(Translate):
    """Outer state: every key is called in every epoch, with or without input."""

    ticks = Input("a STRING, b INT", route_by="a, b")
    ages = State("a STRING, b INT, age INT", grouping="outer")
    log = Output("a STRING, b INT, age INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        age = max((row.age for row in group.ages), default=-1) + 1
        fresh = any(True for _ in group.ticks)
        if age < 3 or fresh:
            out.ages(a=key.a, b=key.b, age=0 if fresh else age)
        out.log(a=key.a, b=key.b, age=age)


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


class BothEnds(Translate):
    """Several keys per record: an edge is known at both ends."""

    key = "node INT"
    edges = Input("src INT, dst INT", route_by=route(lambda e: [e.src, e.dst], "INT"))
    degrees = Output("node INT, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.degrees(key.node, sum(1 for _ in group.edges))


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


def destination(text: str) -> Any:
    """Read a destination: `a` a key, `*` all, `*items,kept` all of these, `@x` an address."""
    if text.startswith("*"):
        return All(*filter(None, text[1:].split(",")))
    return Multicast(text[1:]) if text.startswith("@") else text


def everywhere(record: Any) -> list[Any]:
    return [destination(text) for text in record.to or ()]


TO_ANY = route(everywhere, "STRING")
MESSAGE = "id INT, to ARRAY<STRING>"


class Probe(Translate):
    """Shows what reached which key; does what the `orders` of a key say."""

    key = "k STRING"
    items = Input(MESSAGE, route_by=TO_ANY)
    other = Input(MESSAGE, route_by=TO_ANY, order_by=by(lambda r: -(r.id or 0), "BIGINT"))
    orders = Input("k STRING, verb STRING, id INT, to ARRAY<STRING>", route_by="k")
    mail = Loopback(MESSAGE, route_by=TO_ANY, order_by="id")
    kept = State("k STRING, id INT")
    calls = Output("k STRING, items ARRAY<INT>, other ARRAY<INT>, mail ARRAY<INT>, kept ARRAY<INT>")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        kept = [row.id for row in group.kept]
        for order in group.orders:
            if order.verb == "send":
                out.mail(order.id, order.to)
            elif order.verb == "bind":
                for address in order.to:
                    out.associate(key.k, address)
            elif order.verb == "write":
                for to in order.to:
                    out.kept.remote(to, order.id or 0)
            elif order.verb == "forget":
                kept = []
        for id_ in kept:
            out.kept(key.k, id_)
        seen = [[row.id for row in flow] for flow in (group.items, group.other, group.mail)]
        out.calls(key.k, *seen, sorted(kept))


class OuterProbe(Probe):
    kept = State("k STRING, id INT", grouping="outer")


class Gathered(Translate):
    """Record-wise with several inputs, and messages that are groups of their own too."""

    left = Input("k BIGINT, v STRING")
    right = Input("v STRING, n INT")
    echo = Loopback("n INT")
    lines = Output("line STRING, half DOUBLE", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        assert key is None
        left, right, echo = list(group.left), list(group.right), list(group.echo)
        assert len(left) + len(right) + len(echo) == 1
        for row in left:
            out.lines(f"left {row.k} {row.v}", row.k)
        for row in (*right, *echo):
            out.lines(f"{type(row).__name__} {row.n}", None)
            if row.n:
                out.echo(row.n - 1)


class Board(Translate):
    """Both kinds of inputs: groups, and single records that reach them from afar."""

    key = "k STRING"
    items = Input(MESSAGE, route_by=TO_ANY)
    notes = Input("verb STRING, id INT, to ARRAY<STRING>")
    mail = Loopback(MESSAGE, route_by=TO_ANY, order_by="id")
    echo = Loopback("id INT")
    kept = State("k STRING, id INT")
    ages = State("k STRING, age INT", grouping="outer")
    calls = Output("k STRING, seen ARRAY<ARRAY<INT>>", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        notes, echo, items = list(group.notes), list(group.echo), list(group.items)
        kept = sorted(row.id for row in group.kept)
        age = max((row.age for row in group.ages), default=0)
        mail = [row.id for row in group.mail]
        ids = [[row.id for row in flow] for flow in (items, notes, echo)]
        out.calls(key and key.k, [*ids, mail, kept, [age]])
        for row in echo:
            if row.id:
                out.echo(row.id - 1)
        if key is None:
            for note in notes:
                self._write_down(note, out)
            return
        for row in items[:1]:
            out.echo(row.id)
        for id_ in [*kept, *mail][-3:]:
            out.kept(key.k, id_ or 0)
        if age < 2:
            out.ages(key.k, age + 1)

    def _write_down(self, note: Any, out: Any) -> None:
        if note.verb == "send":
            out.mail(note.id, note.to)
        for to in note.to:
            if note.verb == "bind":
                out.associate(to, "x")
            elif note.verb == "write":
                out.kept(to, note.id or 0)
                out.ages(to, 0)


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


class Letters(Translate):
    """Messages whose order shows: by a column, by a function, and some for all beside them."""

    key = "k BIGINT"
    items = Input("k BIGINT, to ARRAY<BIGINT>, n INT", route_by="k")
    notes = Input("to BIGINT, n INT")
    mail = Loopback("text STRING, dst BIGINT, n INT", route_by="dst")
    post = Loopback(
        "n INT, dst BIGINT, src BIGINT", route_by=by(lambda m: m.dst, "BIGINT"), order_by="n"
    )
    cries = Loopback("n INT, dst BIGINT", route_by=route(lambda m: [m.dst, All("kept")], "BIGINT"))
    kept = State("k BIGINT, n INT")
    seen = Output("k BIGINT, mail ARRAY<STRING>, post ARRAY<BIGINT>, cries INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for note in group.notes:
            out.mail("note", note.to, note.n)
        if key is None:
            return
        mail, post = list(group.mail), list(group.post)
        for item in group.items:
            for to in item.to or ():
                out.mail(f"{key.k}/{item.n}", to, item.n)
                out.post(item.n, to, key.k)
        for letter in mail:
            if letter.n:
                out.mail(f"{key.k}>{letter.text}", key.k, 0)
                out.mail(f"{key.k}:{letter.text}", letter.dst and letter.dst + letter.n, 0)
            if letter.n == 2:
                out.cries(1, letter.n)
        cries = sum(cry.n for cry in group.cries)
        out.kept(key.k, sum(row.n for row in group.kept) + 1)
        out.seen(key.k, [letter.text for letter in mail], [row.src for row in post], cries)


class Chatter(Translate):
    """Messages without a state: its buckets can be changed while they wait."""

    key = "k BIGINT"
    items = Input("k BIGINT, n INT", route_by="k")
    mail = Loopback("dst BIGINT, text STRING", route_by=by(lambda m: m.dst, "BIGINT"))
    seen = Output("k BIGINT, mail ARRAY<STRING>", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for item in group.items:
            for to in range(item.n):
                out.mail(to, f"{key.k}/{to}")
        out.seen(key.k, [letter.text for letter in group.mail])


class Rumours(Translate):
    """Broadcasts and messages to keys and to all: what one call for many groups can do too."""

    key = "k STRING"
    items = Input(MESSAGE, route_by=TO_ANY)
    mail = Loopback(MESSAGE, route_by=TO_ANY, order_by="id")
    kept = State("k STRING, ids ARRAY<INT>")
    calls = Output("k STRING, items ARRAY<INT>, mail ARRAY<INT>", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        ids = [id_ for row in group.kept for id_ in row.ids]
        items = list(group.items)
        mail = [row.id for row in group.mail]
        for row in items[:2]:
            out.mail(row.id, [key.k, *row.to])
        out.kept(key.k, [*ids, *(row.id for row in items), *mail][-3:])
        out.calls(key.k, [row.id for row in items], mail)


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


class Shelf(Translate):
    """Large groups of state, read and emitted in every way that the input asks for."""

    key = "k INT"
    orders = Input("k INT, how STRING, value DOUBLE, many INT", route_by="k")
    items = State("k INT, value DOUBLE, tag STRING, parts ARRAY<INT>", grouping="inner")
    log = Output("k INT, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        orders = list(group.orders)
        hows = {order.how or "" for order in orders}
        n = 0
        if "blind" not in hows:  # else: forgets all without reading
            n = self._again(hows, group.items, out)
        for order in orders:
            if order.how == "add":
                for i in range(order.many):
                    out.items(key.k, order.value, f"t{i % 3}", [i % 3] if i % 3 else None)
        out.log(key.k, f"{n} {sorted(hows)}")

    def _again(self, hows: set[str], items: Any, out: Any) -> int:
        n = 0
        held = []
        for n, item in enumerate(items, 1):
            out.log(item.k, f"{item.value} {item.tag} {item.parts}")
            if "thin" in hows and n % 3 == 0:
                continue
            if "change" in hows and n % 4 == 0:
                item = item._replace(tag=f"{item.tag}*")
            if "double" in hows and n % 5 == 0:
                out.items(*item)
            if "shuffle" in hows:
                held.append(item)
            else:
                out.items(*item)
            if "stop" in hows and n == 9:  # the rest is not read, and so forgotten
                break
        for item in sorted(held, key=lambda item: repr(tuple(item))[::-1]):
            out.items(*item)
        return n


class Ledger(Translate):
    """Kept state: put, deleted and read by its second key in every way that the input asks for."""

    key = "k STRING"
    orders = Input("k STRING, how STRING, part DOUBLE, name STRING, n INT", route_by="k")
    items = State(
        "part DOUBLE, k STRING, name STRING, n INT, parts ARRAY<INT>",
        keep=True,
        key="k, part, name",
    )
    log = Output("k STRING, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        items = group.items
        for order in group.orders:
            at = {"part": order.part, "name": order.name}
            if order.how == "put":
                parts = [order.n] if order.n else None
                out.items(k=key.k, n=order.n, parts=parts, **at)
            elif order.how == "delete":
                out.items.delete(**at)
            elif order.how == "again":  # unchanged, if there is one
                if (item := items.get(order.part, order.name)) is not None:
                    out.items(*item)
            else:
                self._look(order, items, out)

    def _look(self, order: Any, items: Any, out: Any) -> None:
        bounds = (order.part, None if order.n is None else order.n / 2)
        readers: dict[str, Callable[[], Any]] = {
            "get": lambda: [items.get(part=order.part, name=order.name)],
            "from": lambda: items.range(part=bounds),
            "below": lambda: items.range(part=bounds[::-1]),
            "within": lambda: items.range(part=order.part, name=(None, order.name)),
            "of": lambda: items.range(part=order.part),
            "down": lambda: items.range(part=bounds, reverse=True),
            "back": lambda: items.range(part=order.part, name=(order.name, None), reverse=True),
            "last": lambda: [next(items.range(reverse=True), None)],
            "all": lambda: items,
            "first": lambda: [next(iter(items), None)],
        }
        rows = [row and tuple(row) for row in readers[order.how]()]
        out.log(order.k, f"{order.how} {rows}")


class LedgerView(Ledger):
    """The same, whose changes are a flow."""

    items = View(
        "part DOUBLE, k STRING, name STRING, n INT, parts ARRAY<INT>",
        keep=True,
        key="k, part, name",
    )


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


class OuterShelf(Shelf):
    """The same, where every group of the state is called in every epoch."""

    orders = Input("k INT, how STRING, value DOUBLE, many INT", route_by="k")
    items = State("k INT, value DOUBLE, tag STRING, parts ARRAY<INT>", grouping="outer")
    log = Output("k INT, line STRING", history=True)


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
