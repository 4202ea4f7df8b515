"""Dataflows with views, and random orders for them; used by tests of every engine."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbp import (
    DataflowBuilder,
    Input,
    Output,
    State,
    Translate,
    TranslateArrow,
    TranslateRecords,
    TranslateSql,
    View,
)
from cbp.model.dataflow.dataflow import Dataflow

ORDERS = "k STRING, part DOUBLE, name STRING, verb STRING, n BIGINT"
SHELF = "name STRING, part DOUBLE, k STRING, n BIGINT, score FLOAT, tags ARRAY<STRING>"

VERBS = [*["put"] * 6, "drop", "clear", "turn", "blind", "spell"]


def random_epochs(dice: random.Random, *, epochs: int = 3) -> list[dict[str, list[dict[str, Any]]]]:
    """Return some epochs of orders; some are empty, and some are for one group only."""
    return [
        {"orders": [_order(dice) for _ in range(dice.choice([0, 2, 25, 25]))]}
        for _ in range(dice.randint(2, epochs + 1))
    ]


def _order(dice: random.Random) -> dict[str, Any]:
    return {
        "k": dice.choice(["a", "a", "b", "ab", None]),
        "part": dice.choice([0.0, -0.0, 1.0, float("nan"), None]),
        "name": dice.choice(["x", "y", "z", "ä", None]),
        "verb": dice.choice(VERBS),
        "n": dice.randint(0, 3),
    }


class Shelf(Translate):
    """Keeps records under a second key of two columns, and does with them what orders say."""

    orders = Input(ORDERS, route_by="k")
    shelf = View(SHELF, key="k, part, name")
    heard = Output("k STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Put, drop, forget, reverse, rewrite without reading, or spell otherwise."""
        orders = list(group.orders)
        verbs = {order.verb for order in orders}
        kept = {} if "blind" in verbs else {_name(row): tuple(row) for row in group.shelf}
        for order in orders:
            if order.verb == "clear":
                kept.clear()
            elif order.verb == "drop":
                kept.pop(_name(order), None)
            else:
                tags = [order.name or "-"] * order.n
                # 0.1 is no number of 32 bits: it is stored as the one next to it.
                kept[_name(order)] = (order.name, order.part, key.k, order.n, 0.1 * order.n, tags)
        rows = [tuple(row) for row in kept.values()]
        if "spell" in verbs:
            rows = [(*row[:4], 0.1 * row[3], tuple(row[5])) for row in rows]
        for row in reversed(rows) if "turn" in verbs else rows:
            out.shelf(*row)
        out.heard(k=key.k, n=len(kept))


def _name(row: Any) -> tuple[Any, Any]:
    part = row.part
    return "NaN" if part is not None and part != part else part, row.name


class KeptShelf(Translate):
    """Keeps records unless they are put or deleted; does the same with them by key."""

    orders = Input(ORDERS, route_by="k")
    shelf = View(SHELF, key="k, part, name", keep=True)
    heard = Output("k STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Put, drop, forget, put again what there is, or look one up."""
        heard = 0
        for order in group.orders:
            if order.verb in ("clear", "blind"):
                for row in group.shelf:
                    out.shelf.delete(part=row.part, name=row.name)
            elif order.verb == "drop":
                out.shelf.delete(part=order.part, name=order.name)
            elif order.verb == "turn":
                for row in group.shelf:
                    out.shelf(*row)
            elif order.verb == "spell":
                found = group.shelf.get(part=order.part, name=order.name)
                heard += 0 if found is None else found.n + 1
            else:
                tags = [order.name or "-"] * order.n
                out.shelf(order.name, order.part, key.k, order.n, 0.1 * order.n, tags)
        out.heard(k=key.k, n=heard)


class Sack(Translate):
    """A bag: keeps a record for each order, equal ones too, and does what later orders say."""

    orders = Input(ORDERS, route_by="k")
    sack = View("name STRING, part DOUBLE, k STRING, score FLOAT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Put, drop one of equal names, forget, reverse, rewrite without reading."""
        orders = list(group.orders)
        verbs = {order.verb for order in orders}
        kept = [] if "blind" in verbs else [tuple(row) for row in group.sack]
        for order in orders:
            if order.verb == "clear":
                kept.clear()
            elif order.verb == "drop":
                at = next((n for n, row in enumerate(kept) if row[0] == order.name), None)
                kept = kept if at is None else [*kept[:at], *kept[at + 1 :]]
            else:
                # 0.1 is no number of 32 bits: it is stored as the one next to it.
                kept += [(order.name, order.part, key.k, 0.1 * order.n)] * (1 + order.n % 2)
        for row in reversed(kept) if "turn" in verbs else kept:
            out.sack(*row)


class Totals(Translate):
    """One record per group, which can go: the key of the view is that of the stage."""

    orders = Input(ORDERS, route_by="k")
    totals = View("n BIGINT, key STRING", key="key", route_by="key")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Sum up; a group whose sum is a multiple of four has no record."""
        total = sum((row.n for row in group.totals), sum(order.n for order in group.orders))
        if total % 4:
            out.totals(key=key.k, n=total)


class Balance(Translate):
    """Counts the records of a view per name, from all of its changes."""

    moved = Input("name STRING, n BIGINT, sign INT, change_type STRING", route_by="name",
                  changes="signed")  # fmt: skip
    balance = State("name STRING, rows BIGINT, total BIGINT")
    balances = View("name STRING, rows BIGINT", key="name")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs, and drop what sums up to nothing."""
        rows = total = 0
        for row in group.balance:
            rows, total = row.rows, row.total
        for change in group.moved:
            rows, total = rows + change.sign, total + change.sign * change.n
        if rows:
            out.balance(key.name, rows, total)
            out.balances(name=key.name, rows=rows)


class Weights(Translate):
    """Counts the records of a bag per name, from its changes: inserts and deletes alone."""

    moved = Input("name STRING, sign INT, change_type STRING", route_by="name", changes="signed")
    weights = View("name STRING, rows BIGINT", key="name")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        rows = sum(row.rows for row in group.weights)
        for change in group.moved:
            assert change.change_type == {1: "insert", -1: "delete"}[change.sign]
            rows += change.sign
        if rows:
            out.weights(key.name, rows)


class Latest(Translate):
    """Counts the new records of a view per name."""

    seen = Input("name STRING, n BIGINT", route_by="name", order_by="n", changes="after")
    counts = State("name STRING, times BIGINT, last BIGINT")
    told = Output("name STRING, times BIGINT, last BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count."""
        times, last = 0, None
        for row in group.counts:
            times = row.times
        for row in group.seen:
            times, last = times + 1, row.n
        out.counts(key.name, times, last)
        out.told(key.name, times, last)


class Lines(TranslateRecords):
    """Writes each new record of a view as a line; can run in the view's own tasks."""

    rows = Input("name STRING, n BIGINT", changes="after")
    lines = Output("line STRING")

    def translate(self, record: Any, out: Any) -> None:
        """Write it."""
        out.lines(f"{record.name}={record.n}")


class Log(TranslateRecords):
    """Writes each change of a view as a line."""

    rows = Input("name STRING, change_type STRING, sign INT", changes="signed")
    lines = Output("line STRING")

    def translate(self, record: Any, out: Any) -> None:
        """Write it."""
        out.lines(f"{record.change_type} {record.name} {record.sign:+d}")


def shelf_dataflow(*, buckets: int = 4, shelf: Any = Shelf, balance: Any = Balance) -> Dataflow:
    """Return views and a bag of one source, with readers of all kinds behind the first."""
    flow = DataflowBuilder("shelves")
    orders = flow.source("s_orders", ORDERS)
    first = flow.stage("shelf", shelf(), buckets=buckets, orders=orders)
    flow.stage("totals", Totals(), buckets=buckets, orders=orders)
    sack = flow.stage("sack", Sack(), buckets=buckets, orders=orders)
    flow.stage("weights", Weights(), buckets=buckets, moved=sack.sack)
    flow.stage("balance", balance(), buckets=buckets, moved=first.shelf)
    flow.stage("latest", Latest(), buckets=buckets, seen=first.shelf)
    flow.stage("lines", Lines(), rows=first.shelf)
    flow.stage("log", Log(), rows=first.shelf)
    return flow.build()


ITEMS = "site STRING, url STRING, n BIGINT, drop BOOLEAN"


class Links(Translate):
    """The largest number of each link of a site; a link that is dropped is gone."""

    items = Input(ITEMS, route_by="site")
    links = View("site STRING, url STRING, n BIGINT", key="site, url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Merge."""
        items = list(group.items)
        largest: dict[Any, Any] = {}
        for row in (*group.links, *items):
            known = [n for n in (largest.get(row.url), row.n) if n is not None]
            largest[row.url] = max(known, default=None)
        for url in largest.keys() - {item.url for item in items if item.drop}:
            out.links(key.site, url, largest[url])


class LinksArrow(TranslateArrow):
    """The same by tables."""

    items, links = Links.items, Links.links

    def translate(self, groups: Any, out: Any) -> None:
        """Merge."""
        both = pa.concat_tables([groups.links, groups.items.drop_columns(["drop"])])
        dropped = {(row["site"], row["url"]) for row in groups.items.to_pylist() if row["drop"]}
        largest = both.group_by(["site", "url"]).aggregate([("n", "max")])
        rows = largest.rename_columns(["site", "url", "n"]).to_pylist()
        kept = [row for row in rows if (row["site"], row["url"]) not in dropped]
        out.links({name: [row[name] for row in kept] for name in ("site", "url", "n")})


class LinksSql(TranslateSql):
    """The same in SQL."""

    items, links = Links.items, Links.links
    queries = {  # noqa: RUF012
        "both": "SELECT site, url, n FROM links UNION ALL SELECT site, url, n FROM items",
        "largest": "SELECT site, url, max(n) AS n FROM both GROUP BY site, url",
        "gone": "SELECT DISTINCT site, url FROM items WHERE drop",
        "links": "SELECT l.* FROM largest l LEFT ANTI JOIN gone g "
        "ON l.site <=> g.site AND l.url <=> g.url",
    }


class Sizes(Translate):
    """Counts the links of each site, from their changes, and the new ones of each run."""

    moved = Input("site STRING, sign INT", route_by="site", changes="signed")
    fresh = Input("site STRING, n BIGINT", route_by="site", changes="after")
    counted = View("site STRING, links BIGINT", key="site")
    news = Output("site STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        links = sum(row.links for row in group.counted) + sum(row.sign for row in group.moved)
        if links:
            out.counted(key.site, links)
        if fresh := sum(1 for _ in group.fresh):
            out.news(key.site, fresh)


class SizesArrow(TranslateArrow):
    """The same by tables."""

    moved, fresh, counted, news = Sizes.moved, Sizes.fresh, Sizes.counted, Sizes.news

    def translate(self, groups: Any, out: Any) -> None:
        """Add the signs."""
        moved = groups.moved.rename_columns(["site", "links"])
        moved = moved.set_column(1, "links", moved.column("links").cast(pa.int64()))
        both = pa.concat_tables([groups.counted, moved])
        summed = both.group_by("site").aggregate([("links", "sum")])
        summed = summed.rename_columns(["site", "links"])
        out.counted(summed.filter(pc.not_equal(summed.column("links"), 0)))
        news = groups.fresh.group_by("site").aggregate([([], "count_all")])
        out.news(news.rename_columns(["site", "n"]))


class SizesSql(TranslateSql):
    """The same in SQL."""

    moved, fresh, counted, news = Sizes.moved, Sizes.fresh, Sizes.counted, Sizes.news
    queries = {  # noqa: RUF012
        "both": "SELECT site, links FROM counted "
        "UNION ALL SELECT site, CAST(sign AS BIGINT) FROM moved",
        "summed": "SELECT site, sum(links) AS links FROM both GROUP BY site",
        "counted": "SELECT * FROM summed WHERE links <> 0",
        "news": "SELECT site, count(*) AS n FROM fresh GROUP BY site",
    }


class Visits(Translate):
    """A bag of all items of a site, equal ones too; all of a link that is dropped are gone."""

    items = Input(ITEMS, route_by="site")
    visits = View("site STRING, url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add, and leave out."""
        items = list(group.items)
        dropped = {item.url for item in items if item.drop}
        for row in (*group.visits, *items):
            if row.url not in dropped:
                out.visits(key.site, row.url, row.n)


class VisitsArrow(TranslateArrow):
    """The same by tables."""

    items, visits = Visits.items, Visits.visits

    def translate(self, groups: Any, out: Any) -> None:
        """Add, and leave out."""
        both = pa.concat_tables([groups.visits, groups.items.drop_columns(["drop"])])
        dropped = {(row["site"], row["url"]) for row in groups.items.to_pylist() if row["drop"]}
        rows = [row for row in both.to_pylist() if (row["site"], row["url"]) not in dropped]
        out.visits({name: [row[name] for row in rows] for name in ("site", "url", "n")})


class VisitsSql(TranslateSql):
    """The same in SQL."""

    items, visits = Visits.items, Visits.visits
    queries = {  # noqa: RUF012
        "both": "SELECT site, url, n FROM visits UNION ALL SELECT site, url, n FROM items",
        "gone": "SELECT DISTINCT site, url FROM items WHERE drop",
        "visits": "SELECT b.* FROM both b LEFT ANTI JOIN gone g "
        "ON b.site <=> g.site AND b.url <=> g.url",
    }


FORMS = {
    "groupwise": (Links, Sizes, Visits),
    "arrow": (LinksArrow, SizesArrow, VisitsArrow),
    "sql": (LinksSql, SizesSql, VisitsSql),
}
"""The same dataflow in every form of translators."""


def links_dataflow(form: str, *, buckets: int = 4) -> Dataflow:
    """Return a view of links and a bag of visits, and views that are made from their changes."""
    links, sizes, visits = FORMS[form]
    flow = DataflowBuilder("links")
    items = flow.source("s_items", ITEMS)
    first = flow.stage("links", links(), buckets=buckets, items=items)
    flow.stage("sizes", sizes(), buckets=buckets, moved=first.links, fresh=first.links)
    bag = flow.stage("visits", visits(), buckets=buckets, items=items)
    flow.stage("crowd", sizes(), buckets=buckets, moved=bag.visits, fresh=bag.visits)
    return flow.build()


def random_items(dice: random.Random, *, epochs: int = 3) -> list[dict[str, list[dict[str, Any]]]]:
    """Return some epochs of items for `links_dataflow`."""
    return [
        {
            "items": [
                {
                    "site": dice.choice(["a", "b", "ä", "", None]),
                    "url": dice.choice(["x", "y", "z", None]),
                    "n": dice.choice([1, 2, 3, None]),
                    "drop": dice.random() < 0.2,
                }
                for _ in range(dice.choice([0, 3, 30]))
            ]
        }
        for _ in range(epochs)
    ]
