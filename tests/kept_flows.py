"""Translators with kept state, for every engine.

They are in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cbp import (
    Input,
    Output,
    State,
    Translate,
    View,
)


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


class OuterShelf(Shelf):
    """The same, where every group of the state is called in every epoch."""

    orders = Input("k INT, how STRING, value DOUBLE, many INT", route_by="k")
    items = State("k INT, value DOUBLE, tag STRING, parts ARRAY<INT>", grouping="outer")
    log = Output("k INT, line STRING", history=True)


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
