"""Stages whose flows all have one schema, so that tests can chain them at will.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cbp import (
    DataflowBuilder,
    Input,
    Output,
    State,
    Timers,
    Translate,
    TranslateRecords,
    by,
    by_sql,
)
from cbp.model.dataflow.dataflow import Dataflow

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


class RollCall(Tally):
    """Every key that it knows is called in every epoch; who is absent loses one."""

    seen = State("k BIGINT, n BIGINT", grouping="outer")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        before = n = sum(row.n for row in group.seen)
        for row in group.items:
            n += 1
            out.o(k=n % 4, v=row.v)
        n -= n == before
        out.p(k=key.k, v=str(n))
        if n % 5:
            out.seen(k=key.k, n=n)


class Patient(Tally):
    """Is called again an hour after a record of a key, and forgets keys that stay absent."""

    seen = State("k BIGINT, n BIGINT", expire="50 minutes")
    wake = Timers()

    def translate(self, key: Any, group: Any, out: Any) -> None:
        before = n = sum(row.n for row in group.seen)
        for row in group.items:
            n += 1
            out.o(k=n % 4, v=row.v)
        out.p(k=key.k, v=str(n))
        if n % 5:
            out.seen(k=key.k, n=n)
        if n > before:
            out.wake(k=key.k, at=group.run.time + timedelta(hours=1))


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


class Zipped(Translate):
    """Record-wise, with two inputs."""

    left = Input(SCHEMA)
    right = Input(SCHEMA)
    o = Output(SCHEMA)
    p = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.left:
            out.o(k=row.k, v=row.v)
        for row in group.right:
            out.p(k=row.k, v=f"{row.v}r")
            out.o(k=row.k, v="r")


class Mixed(Translate):
    """Groups on one side; on the other single records, which write state of theirs."""

    left = Input(SCHEMA, route_by="k", order_by="v")
    right = Input(SCHEMA)
    seen = State("k BIGINT, n BIGINT")
    o = Output(SCHEMA)
    p = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.seen)
        for row in group.right:
            out.o(k=row.k, v=f"{row.v}{key}")
            out.seen(k=row.k, n=1)
        for row in group.left:
            n += 1
            out.o(k=n % 4, v=row.v)
        if key is not None:
            out.p(k=key.k, v=str(n))
            out.seen(k=key.k, n=n)


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


def add_up(records: list[Any]) -> Iterator[Any]:
    """Give one record for those of one unit, with their sum."""
    units = dict.fromkeys(record.unit for record in records)
    for unit in units:
        mine = [record for record in records if record.unit == unit]
        yield mine[0]._replace(n=sum(record.n for record in mine))


class Sums(Translate):
    """Add up per key and unit; the records of one unit may be added up before."""

    key = "site STRING, x DOUBLE"
    items = Input(
        "url STRING, x DOUBLE, unit STRING, n BIGINT",
        route_by=by(lambda r: ((r.url or "")[:1], r.x), "STRING, DOUBLE"),
        combine=add_up,
    )
    plain = Input("site STRING, x DOUBLE, unit STRING, n BIGINT", route_by="site, x")
    sums = State("site STRING, x DOUBLE, unit STRING, n BIGINT")
    totals = Output("site STRING, x DOUBLE, unit STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        sums: dict[str, int] = {}
        for row in (*group.sums, *group.items, *group.plain):
            sums[row.unit] = sums.get(row.unit, 0) + row.n
        for unit, n in sorted(sums.items()):
            out.sums(*key, unit, n)
            out.totals(*key, unit, n)


def sums(translator: Sums | None = None) -> Dataflow:
    """Give one stage with a combiner on its first input."""
    builder = DataflowBuilder("sums")
    items = builder.source("items", "url STRING, x DOUBLE, unit STRING, n BIGINT")
    plain = builder.source("plain", "site STRING, x DOUBLE, unit STRING, n BIGINT")
    builder.stage("sums", translator or Sums(), buckets=4, items=items, plain=plain)
    return builder.build()


def too_many(records: list[Any]) -> list[Any]:
    """Give more than came."""
    return records * 2


def other_key(records: list[Any]) -> list[Any]:
    """Give a record of another group."""
    return [records[0]._replace(url="zzz")]


def other_type(records: list[Any]) -> list[Any]:
    """Give a text for a number."""
    return [records[0]._replace(n="1")]


def fewer_columns(records: list[Any]) -> list[Any]:
    """Leave out a column."""
    return [records[0][:2]]


class WrongSums(Sums):
    """Sums with a combiner that breaks its promise."""

    def __init__(self, combine: Any) -> None:
        self.items = Input(Sums.items.schema, route_by=Sums.items.route_by, combine=combine)


class Hosts(Translate):
    """Keys and order in SQL on one input, both in one function's place on the other."""

    key = "host STRING, day BIGINT"
    visits = Input(
        "url STRING, at INT, agent STRING",
        route_by=by_sql(
            ["lower(parse_url(url, 'HOST'))", "at div 10"],
            "STRING, BIGINT",
            function=lambda r: (None if r.url is None else r.url[7:].lower(), r.at // 10),
        ),
        order_by=by_sql("-at", "INT", function=lambda r: -r.at),
    )
    more = Input(
        "url STRING, at INT",
        route_by=by(lambda r: (r.url[7:].lower(), r.at // 10), "STRING, BIGINT"),
        order_by=by_sql("-at", "INT", function=lambda r: -r.at),
    )
    seen = State("host STRING, day BIGINT, n BIGINT")
    last = Output("host STRING, day BIGINT, ats STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        ats = [str(row.at) for row in group.visits] + [f"+{row.at}" for row in group.more]
        n = sum(row.n for row in group.seen) + len(ats)
        out.seen(*key, n)
        out.last(*key, ",".join(ats), n)


def hosts(**options: Any) -> Dataflow:
    """Give one stage whose keys are in SQL; `options` replace those of its first input."""
    translator = Hosts()
    translator.visits = replace(Hosts.visits, **options)
    builder = DataflowBuilder("hosts")
    visits = builder.source("visits", "url STRING, at INT, agent STRING")
    more = builder.source("more", "url STRING, at INT")
    builder.stage("hosts", translator, buckets=4, visits=visits, more=more)
    return builder.build()
