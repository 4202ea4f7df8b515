"""Translators that send messages, for every engine: to keys, to addresses, to all.

They are in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from typing import Any

from cbp import (
    All,
    Input,
    Loopback,
    Multicast,
    Output,
    State,
    Translate,
    by,
    route,
)


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
