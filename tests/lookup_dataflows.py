"""Dataflows with look-ups, and random arrivals for them; used by tests of every engine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cbp import (
    DataflowBuilder,
    Input,
    Lookup,
    Output,
    State,
    Translate,
    TranslateArrow,
    TranslateSql,
    View,
)
from cbp.model.dataflow.dataflow import Dataflow

CUSTOMERS = "k STRING, part DOUBLE, id BIGINT, verb STRING, name STRING"
ORDERS = "k STRING, part DOUBLE, n BIGINT"
SETTINGS = "name STRING, value BIGINT"

Arrival = tuple[str, list[dict[str, Any]]]
"""A source, and the records of an increment of it."""


class Customers(Translate):
    """Keeps the records of a key by id, as a view and as a bag; `drop` deletes, `clear` all."""

    key = "part DOUBLE, k STRING"
    items = Input(CUSTOMERS, route_by="part, k")
    current = View(
        "k STRING, part DOUBLE, id BIGINT, name STRING, tags ARRAY<STRING>", key="part, k, id"
    )
    bag = State("part DOUBLE, k STRING, name STRING", route_by="part, k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Apply the records in their order."""
        kept = {row.id: row for row in group.current}
        bag = [row.name for row in group.bag]
        for item in group.items:
            if item.verb == "drop":
                kept.pop(item.id, None)
            elif item.verb == "clear":
                kept.clear()
                bag.clear()
            else:
                kept[item.id] = item
                bag.append(item.name)
        for row in kept.values():
            tags = row.tags if hasattr(row, "tags") else [row.name]
            out.current(k=key.k, part=key.part, id=row.id, name=row.name, tags=tags)
        for name in bag:
            out.bag(part=key.part, k=key.k, name=name)


class Settings(Translate):
    """The last value of each setting; a null value deletes it."""

    items = Input(SETTINGS, route_by="name")
    current = View(SETTINGS, key="name")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep the last value."""
        last = [row.value for row in group.items][-1]
        if last is not None:
            out.current(key.name, last)


class Orders(Translate):
    """Orders with what is looked up for them, in every way of reading."""

    key = "part DOUBLE, k STRING"
    orders = Input(ORDERS, route_by="part, k")
    current = Lookup("name STRING, tags ARRAY<STRING>, k STRING, part DOUBLE", by="part, k")
    bag = Lookup("part DOUBLE, k STRING, name STRING", by="part, k")
    by_id = Lookup("k STRING, part DOUBLE, id BIGINT, name STRING", by="part, k", key="part, k, id")
    settings = Lookup(SETTINGS, by=())
    seen = State("part DOUBLE, k STRING, n BIGINT")
    found = Output("k STRING, n BIGINT, what STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Write what was found, in its order, and keep the number of orders."""
        orders = list(group.orders)
        seen = len(orders) + sum(row.n for row in group.seen)
        out.seen(key.part, key.k, seen)
        records = [(row.name, row.tags, row.k) for row in group.current]
        again = [row.name for row in group.current]
        ids = [(row.id, row.name) for row in group.by_id.range(id=(1, None))]
        first = next(iter(group.by_id), None)
        settings = [(row.name, row.value) for row in group.settings]
        for order in orders:
            one = group.by_id.get(id=order.n)
            name = one and one.name
            what = f"{records} {again} {ids} {first and first.id} {name} {settings}"
            out.found(key.k, order.n, f"{what} {sorted(str(row.name) for row in group.bag)}")


def orders_dataflow(*, buckets: int = 4, of_customers: int = 16) -> Dataflow:
    """Return orders that look up customers, with other numbers of buckets, and settings."""
    flow = DataflowBuilder("orders")
    customers = flow.stage(
        "customers", Customers(), buckets=of_customers, items=flow.source("s_customers", CUSTOMERS)
    )
    settings = flow.stage("settings", Settings(), items=flow.source("s_settings", SETTINGS))
    flow.stage(
        "orders",
        Orders(),
        buckets=buckets,
        orders=flow.source("s_orders", ORDERS),
        current=customers.current,
        by_id=customers.current,
        bag=customers.bag,
        settings=settings.current,
    )
    return flow.build()


def random_arrivals(dice: random.Random, *, most: int = 8) -> list[Arrival]:
    """Return increments of customers, settings and orders, in any order; some are empty."""
    sources = {"customers": _customer, "settings": _setting, "orders": _order}
    names = dice.choices(["customers", "settings", "orders"], [4, 1, 4], k=dice.randint(2, most))
    return [
        (name, [sources[name](dice) for _ in range(dice.choice([0, 1, 4, 25]))]) for name in names
    ]


def _key(dice: random.Random) -> dict[str, Any]:
    return {
        "k": dice.choice(["a", "a", "b", "ab", "ä", None]),
        "part": dice.choice([0.0, -0.0, 1.0, float("nan"), None]),
    }


def _customer(dice: random.Random) -> dict[str, Any]:
    verb = dice.choice(["put", "put", "put", "drop", "clear"])
    name = dice.choice(["x", "y", "z", None])
    return {**_key(dice), "id": dice.choice([0, 1, 2, 3, None]), "verb": verb, "name": name}


def _setting(dice: random.Random) -> dict[str, Any]:
    return {"name": dice.choice("abc"), "value": dice.choice([None, 1, 2])}


def _order(dice: random.Random) -> dict[str, Any]:
    return {**_key(dice), "n": dice.randint(0, 3)}


class Prices(Translate):
    """Orders with the value of their setting, all settings together, and a count."""

    orders = Input("name STRING, n BIGINT", route_by="name")
    price = Lookup(SETTINGS, by="name")
    every = Lookup("value BIGINT", by=())
    counts = State("name STRING, n BIGINT")
    priced = Output("name STRING, n BIGINT, value BIGINT, total BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look it up."""
        price = group.price.one()
        total = sum(row.value for row in group.every)
        orders = [row.n for row in group.orders]
        for n in orders:
            out.priced(key.name, n, price and price.value, total)
        out.counts(key.name, len(orders) + sum(row.n for row in group.counts))


class PricesArrow(TranslateArrow):
    """The same with tables."""

    orders, price, every = Prices.orders, Prices.price, Prices.every
    counts, priced = Prices.counts, Prices.priced

    def translate(self, groups: Any, out: Any) -> None:
        """Look them up."""
        priced = groups.orders.join(groups.price, "name").to_pylist()
        total = sum(groups.every.column("value").to_pylist())
        rows = [(row["name"], row["n"], row["value"], total) for row in priced]
        names = ["name", "n", "value", "total"]
        columns = zip(*rows, strict=True) if rows else [[]] * 4
        types = [pa.string(), pa.int64(), pa.int64(), pa.int64()]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        out.priced(pa.table(arrays, names=names))
        n = groups.sizes("orders") + groups.sums("counts", "n")
        out.counts(groups.keys.append_column("n", pa.array(n)))


class PricesSql(TranslateSql):
    """The same in SQL."""

    orders, price, every = Prices.orders, Prices.price, Prices.every
    counts, priced = Prices.counts, Prices.priced
    queries = {  # noqa: RUF012
        "total": "SELECT coalesce(sum(value), 0L) AS total FROM every",
        "priced": "SELECT o.name, o.n, p.value, t.total FROM orders o "
        "LEFT JOIN price p ON o.name = p.name CROSS JOIN total t",
        "both": "SELECT name, 1L AS n FROM orders UNION ALL SELECT name, n FROM counts",
        "counts": "SELECT name, sum(n) AS n FROM both GROUP BY name",
    }


def prices_dataflow(form: str) -> Dataflow:
    """Return orders that look up settings, in one of the forms."""
    forms: dict[str, Any] = {"groupwise": Prices, "arrow": PricesArrow, "sql": PricesSql}
    flow = DataflowBuilder("prices")
    settings = flow.stage("settings", Settings(), items=flow.source("s_settings", SETTINGS))
    orders = flow.source("s_orders", "name STRING, n BIGINT")
    current = settings.current
    flow.stage("prices", forms[form](), buckets=4, orders=orders, price=current, every=current)
    return flow.build()


def random_prices(dice: random.Random, *, most: int) -> list[Arrival]:
    """Return increments of settings and of orders, in any order."""
    make: dict[str, Callable[[random.Random], dict[str, Any]]] = {
        "settings": _setting,
        "orders": lambda dice: {"name": dice.choice("abcd"), "n": dice.randint(0, 9)},
    }
    names = ["settings", "orders", *dice.choices(["settings", "orders"], k=most)]
    return [(name, [make[name](dice) for _ in range(dice.choice([1, 4, 9]))]) for name in names]
