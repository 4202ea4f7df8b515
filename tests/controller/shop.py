"""A shop that looks up: orders with the newest number of their word, with and without a wake."""

from __future__ import annotations

from typing import Any

from cbp import Input, Lookup, Output, Translate, View
from tests.controller.world import SCHEMA

__all__ = ["DOCUMENT", "TRANSLATORS", "WRONG"]

WRONG: dict[str, int] = {}
"""Word to what its lines are wrong by; of the module, so that no code is another."""


class Newest(Translate):
    """The newest number of each word; a multiple of three deletes it."""

    words = Input(SCHEMA, route_by="word")
    newest = View(SCHEMA, key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep it."""
        last = [row.n for row in group.words][-1]
        if last % 3:
            out.newest(key.word, last)


class Joined(Translate):
    """Writes each order with the newest number of its word."""

    orders = Input(SCHEMA, route_by="word")
    words = Lookup(SCHEMA, by="word")
    joined = Output("word STRING, n BIGINT, newest BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look it up."""
        word = group.words.one()
        newest = word and word.n + WRONG.get(key.word, 0)
        for order in group.orders:
            out.joined(key.word, order.n, newest)


class Paired(Translate):
    """Keeps the sum of each word's orders with its newest number, whichever changes."""

    orders = Input(SCHEMA, route_by="word")
    words = Lookup(SCHEMA, by="word", wake=True)
    paired = View("word STRING, total BIGINT, newest BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the orders; what woke the group is looked up, not read."""
        total = sum(row.total for row in group.paired) + sum(row.n for row in group.orders)
        word = group.words.one()
        if total:
            out.paired(key.word, total, word and word.n)


DOCUMENT: dict[str, Any] = {
    "name": "shop",
    "sources": {"words": {"schema": SCHEMA}, "orders": {"schema": SCHEMA}},
    "stages": {
        "newest": {"translator": "newest", "inputs": {"words": "words"}, "buckets": 4},
        "joined": {
            "translator": "joined",
            "inputs": {"orders": "orders", "words": "newest.newest"},
            "buckets": 2,
        },
        "paired": {
            "translator": "paired",
            "inputs": {"orders": "orders", "words": "newest.newest"},
        },
    },
}
TRANSLATORS = {"newest": Newest, "joined": Joined, "paired": Paired}
