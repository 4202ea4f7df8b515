"""Translators whose loops are inside each other within one run, and plain oracles for them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from cbp import Aggregate, Input, Loopback, Output, State, Translate, TranslateArrow, View
from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.model.flow.schema import Schema
from cbp.sdk.translate import spec_of

PROGRAM = "k BIGINT, n BIGINT, program STRING"
LOOPS = {"y": "years", "m": "months", "d": "days", "w": "weeks", "t": "tides"}
"""The loopbacks of `Nested`, by the letter that sends to them."""


class Nested(Translate):
    """Messages that carry programs: each letter is a message, of a loop by itself or inside others.

    Four loops are inside each other, two of them side by side; one is around none and in none.
    """

    programs = Input(PROGRAM, route_by="k")
    years = Loopback(PROGRAM, route_by="k", supersteps=9)
    months = Loopback(PROGRAM, route_by="k", supersteps=9, inside="years", order_by="n")
    days = Loopback(PROGRAM, route_by="k", supersteps=9, inside="months")
    weeks = Loopback(PROGRAM, route_by="k", supersteps=9, inside="years", combine={"n": "sum"})
    tides = Loopback(PROGRAM, route_by="k", supersteps=9, combine={"n": "max"})
    calls = View("k BIGINT, calls BIGINT, last STRING", key="k")
    log = Output("k BIGINT, loop STRING, n BIGINT, days DOUBLE")
    spent = Aggregate("sum", ends_below=2, ends="months")
    least = Aggregate("min", ends_below=-8)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Send what programs say, and count."""
        calls = sum(row.calls for row in group.calls)
        last = "programs"
        for name in ("programs", *LOOPS.values()):
            for one in getattr(group, name):
                last = name
                out.log(key.k, name, one.n, group.spent)
                out.spent(1)
                if one.n < 0:
                    out.least(one.n)
                for at, letter in enumerate(one.program[: 1 + one.n % 2]):
                    rest = one.program[at + 1 :]
                    getattr(out, LOOPS[letter])((key.k * 2 + at + 1) % 5, one.n - at, rest)
        out.calls(key.k, calls + 1, last)


class Calendar(Translate):
    """Counts the days of months of years: each loop within one iteration of the one around it."""

    starts = Input("k BIGINT, years INT, months INT, days INT", route_by="k")
    year = Loopback("k BIGINT, y INT", route_by="k", supersteps=1000)
    month = Loopback("k BIGINT, y INT, m INT", route_by="k", supersteps=1000, inside="year")
    day = Loopback("k BIGINT, y INT, m INT, d INT", route_by="k", supersteps=1000, inside="month")
    most = State("k BIGINT, years INT, months INT, days INT")
    log = Output("k BIGINT, y INT, m INT, d INT")

    def note(self, day: Any, out: Any) -> None:
        """Do more about a day."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Begin what comes next in each loop; the outer loops' messages wait for the inner ones."""
        k, starts = key.k, [*group.starts]
        most = [*starts, *group.most][0]
        out.most(*most)
        if starts:
            out.year(k, 1)
        for one in group.year:
            out.log(k, one.y, None, None)
            if one.y < most.years:
                out.year(k, one.y + 1)
            out.month(k, one.y, 1)
        for one in group.month:
            out.log(k, one.y, one.m, None)
            if one.m < most.months:
                out.month(k, one.y, one.m + 1)
            out.day(k, one.y, one.m, 1)
        for one in group.day:
            out.log(k, one.y, one.m, one.d)
            self.note(one, out)
            if one.d < most.days:
                out.day(k, one.y, one.m, one.d + 1)


class ShortCalendar(Calendar):
    """The same with so few supersteps that runs end within every loop."""

    year = Loopback("k BIGINT, y INT", route_by="k", supersteps=3)
    month = Loopback("k BIGINT, y INT, m INT", route_by="k", supersteps=3, inside="year")
    day = Loopback("k BIGINT, y INT, m INT, d INT", route_by="k", supersteps=3, inside="month")


class ShortLettersArrow(TranslateArrow):
    """Texts on columns: a letter to itself ever longer, and one to the loop around, for each.

    Runs end within both loops, so the next one reads letters of both, and writes others to both.
    """

    starts = Input("k BIGINT, years INT, months INT, days INT", route_by="k")
    outer = Loopback("k BIGINT, text STRING, raw BINARY", route_by="k", supersteps=3)
    inner = Loopback("k BIGINT, text STRING", route_by="k", supersteps=3, inside="outer")
    seen = Output("k BIGINT, text STRING, raw BINARY")

    def translate(self, groups: Any, out: Any) -> None:
        """Write back until a text has as many letters as it can have."""
        begun = [(k, "x") for k in groups.starts.column("k").to_pylist()]
        read = [(row["k"], row["text"]) for row in groups.inner.to_pylist()]
        longer = [(k, text + "x") for k, text in read if len(text) < 9]
        out.inner(_table("k BIGINT, text STRING", [*begun, *longer]))
        sent = [(k, text, text.encode()) for k, text in read]
        out.outer(_table("k BIGINT, text STRING, raw BINARY", sent))
        out.seen(groups.outer.select(["k", "text", "raw"]))


def _table(schema: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    fields = arrow_schema(Schema.parse(schema))
    return pa.Table.from_pylist([dict(zip(fields.names, row, strict=True)) for row in rows], fields)


def calendar(k: int, years: int, months: int, days: int) -> Iterator[dict[str, int | None]]:
    """Yield what a `Calendar` logs for a key: what nested loops of Python come to."""
    for y in range(1, years + 1):
        yield {"k": k, "y": y, "m": None, "d": None}
        for m in range(1, months + 1):
            yield {"k": k, "y": y, "m": m, "d": None}
            for d in range(1, days + 1):
                yield {"k": k, "y": y, "m": m, "d": d}


class StrongComponents(Translate):
    """Label each node with the largest node of its strong component, while edges are added.

    In each round the nodes without a component spread the largest node that reaches them, their
    colour. Those that keep their own spread it backward within their colour: a component.
    """

    edges = Input("src BIGINT, dst BIGINT", route_by="src")
    rounds = Loopback("node BIGINT", route_by="node", supersteps=100_000)
    backward = Loopback(
        "node BIGINT, colour BIGINT", route_by="node", supersteps=100_000, inside="rounds"
    )
    forward = Loopback(
        "node BIGINT, colour BIGINT", route_by="node", supersteps=100_000, inside="backward"
    )
    linked = Loopback(
        "node BIGINT, before BIGINT", route_by="node", supersteps=100_000, inside="forward"
    )
    near = State("src BIGINT, other BIGINT, ahead BOOLEAN", keep=True, key="src, other, ahead")
    colours = State("src BIGINT, colour BIGINT")
    components = View("src BIGINT, component BIGINT", key="src")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Take what came; at most one loop sends messages to a superstep."""
        node, near, edges, linked = key.src, [*group.near], [*group.edges], [*group.linked]
        colour = next((row.colour for row in group.colours), None)
        component = next((row.component for row in group.components), None)
        for edge in edges:
            out.near(node, edge.dst, True)
            out.linked(edge.dst, node)
        for one in linked:
            if one.before is not None:
                out.near(node, one.before, False)
        if (edges or linked) and colour is None:  # whatever it is linked to begins anew
            colour, component = node, None
            for row in near:
                out.linked(row.other, None)
            out.rounds(node)
        best = max((one.colour for one in group.forward), default=None)
        if component is None and best is not None and best > colour:
            colour = best
            for row in near:
                if row.ahead:
                    out.forward(row.other, colour)
        if component is None and any(one.colour == colour for one in group.backward):
            component = colour
            for row in near:
                if not row.ahead:
                    out.backward(row.other, colour)
        for _ in group.rounds:
            colour = node if component is None else None
            for row in near if component is None else ():
                if row.ahead:
                    out.forward(row.other, node)
            if component is None:
                out.backward(node, node)
                out.rounds(node)
        if colour is not None:
            out.colours(node, colour)
        if component is not None:
            out.components(node, component)


class StrongComponentsArrow(TranslateArrow):
    """The same on columns: each group's rows of the tables are its records."""

    edges, linked = StrongComponents.edges, StrongComponents.linked
    rounds, backward = StrongComponents.rounds, StrongComponents.backward
    forward, near = StrongComponents.forward, StrongComponents.near
    colours, components = StrongComponents.colours, StrongComponents.components

    def translate(self, groups: Any, out: Any) -> None:
        """Call the groupwise form for each group; emit what it emitted as tables."""
        spec = spec_of(self)
        flows: list[Any] = [*spec.inputs, *spec.states]
        rows: dict[str, dict[int, list[Any]]] = {}
        for flow in flows:
            table = getattr(groups, flow.name)
            table = table.all() if flow.name == "near" else table
            by_key = rows.setdefault(flow.name, {})
            for row in table.to_pylist():
                by_key.setdefault(next(iter(row.values())), []).append(SimpleNamespace(**row))
        emitted: dict[str, list[tuple[Any, ...]]] = {}
        collect = SimpleNamespace(
            **{
                name: lambda *row, name=name: emitted.setdefault(name, []).append(row)
                for name in rows
            }
        )
        own = StrongComponents()
        for node in groups.keys["src"].to_pylist():
            group = SimpleNamespace(**{name: by.get(node, []) for name, by in rows.items()})
            own.translate(SimpleNamespace(src=node), group, collect)
        schemas = {one.name: one.schema for one in flows}
        for name, many in emitted.items():
            schema = arrow_schema(schemas[name])
            records = dict.fromkeys(many) if name == "near" else many  # put once
            columns = [
                pa.array(column, type_)
                for column, type_ in zip(zip(*records, strict=True), schema.types, strict=True)
            ]
            getattr(out, name)(pa.table(columns, names=schema.names))
