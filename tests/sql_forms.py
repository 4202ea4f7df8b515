"""Translators in two forms each, groupwise and in Spark SQL, for tests that hold them equal.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cbp import Input, Output, RunAny, State, Translate, TranslateSql, View
from cbp.model.dataflow.stage import Grouping
from cbp.sdk.translate import Declared
from stages.translators.url_count import UrlCount
from stages.translators.url_count_sql import UrlCountSql
from tests.chains import SCHEMA, Patient, RollCall, Tally
from tests.timed_flows import Clock, Reminders, Stamps
from tests.waiting import wait_for_file

__all__ = [
    "FAILING",
    "PAIRS",
    "Basket",
    "BasketNamedSql",
    "BasketSql",
    "Days",
    "DaysSql",
    "Hangs",
    "Lapsing",
    "LapsingSql",
    "PatientSql",
    "RemindersSql",
    "RollCallSql",
    "StampsSql",
    "TallySql",
    "totals_by",
]


class Bag(Translate):
    """Several state records per group, which come and go."""

    items = Input("site STRING, url STRING, drop BOOLEAN", route_by="site")
    urls = State("site STRING, url STRING")
    sizes = Output("site STRING, n INT", key="site")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        items = list(group.items)
        members = {row.url for row in group.urls} | {i.url for i in items if not i.drop}
        members -= {item.url for item in items if item.drop}
        for url in members:
            out.urls(site=key.site, url=url)
        out.sizes(site=key.site, n=len(members))


class BagSql(TranslateSql):
    items, urls, sizes = Bag.items, Bag.urls, Bag.sizes
    queries = {  # noqa: RUF012
        "seen": "SELECT site, url FROM urls UNION SELECT site, url FROM items WHERE NOT drop",
        "gone": "SELECT DISTINCT site, url FROM items WHERE drop",
        "stay": "SELECT s.* FROM seen s LEFT ANTI JOIN gone g "
        "ON s.site <=> g.site AND s.url <=> g.url",
        "urls": "SELECT * FROM stay",
        "counted": "SELECT site, 1 AS n FROM stay UNION ALL SELECT site, 0 FROM items",
        "sizes": "SELECT site, CAST(sum(n) AS INT) AS n FROM counted GROUP BY site",
    }


class JoinedSql(TranslateSql):
    """Counts by a join whose one side is the state."""

    urls, counts, totals = UrlCount.urls, UrlCount.counts, UrlCount.totals
    queries = {  # noqa: RUF012
        "arrived": "SELECT url, count(*) AS n FROM urls GROUP BY url",
        "summed": "SELECT a.url, a.n + coalesce(c.n, 0L) AS n "
        "FROM arrived a LEFT JOIN counts c ON a.url <=> c.url",
        "counts": "SELECT * FROM summed",
        "totals": "SELECT * FROM summed",
    }


class ClockSql(TranslateSql):
    """Outer state, by DataFrames; what is not emitted again dies."""

    ticks, ages, log = Clock.ticks, Clock.ages, Clock.log

    def translate(self, frames: Any, out: Any) -> None:
        ticks = frames.ticks.selectExpr("a", "b", "CAST(NULL AS INT) AS age", "true AS fresh")
        ages = frames.ages.selectExpr("a", "b", "age", "false AS fresh")
        frames.define("both", ticks.unionAll(ages))
        now = frames.sql(
            "SELECT a, b, coalesce(max(age), -1) + 1 AS age, max(fresh) AS fresh "
            "FROM both GROUP BY a, b"
        )
        kept = now.where("age < 3 OR fresh")
        out.ages(kept.selectExpr("a", "b", "CASE WHEN fresh THEN 0 ELSE age END AS age"))
        out.log(now.select("a", "b", "age"))


PAIRS: dict[str, tuple[type[Declared], type[Declared]]] = {
    "url_count": (UrlCount, UrlCountSql),
    "joined": (UrlCount, JoinedSql),
    "bag": (Bag, BagSql),
    "clock": (Clock, ClockSql),
}


class Days(Translate):
    """Counts by URL, of three frames at most in one epoch."""

    runnable = RunAny(batch=3)
    visits = Input("url STRING, day INT NOT NULL", route_by="url", frame_by="day")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT, last INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        days = [row.day for row in group.visits]
        n = len(days) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n, last=max(days))


class DaysSql(TranslateSql):
    runnable = RunAny(batch=3)
    visits, counts, totals = Days.visits, Days.counts, Days.totals
    queries = {  # noqa: RUF012
        "here": "SELECT url, count(*) AS n, max(day) AS last FROM visits GROUP BY url",
        "now": "SELECT h.url, h.n + coalesce(c.n, 0L) AS n, h.last "
        "FROM here h LEFT JOIN counts c ON h.url <=> c.url",
        "totals": "SELECT * FROM now",
        "counts": "SELECT url, n FROM now",
    }


class Lapsing(Translate):
    """A state that expires, beside one that stays, and a view that expires later."""

    orders = Input("k BIGINT, wait INT", route_by="k")
    seen = State("k BIGINT, n BIGINT, wait INT", expire="50 minutes")
    total = State("k BIGINT, n BIGINT")
    top = View("k BIGINT, wait INT, n BIGINT", key="k, wait", expire="2 hours")
    log = Output("k BIGINT, seen BIGINT, total BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        waits = [row.wait for row in group.orders]
        seen = [*((row.n, row.wait) for row in group.seen), *((0, wait) for wait in waits)]
        total = sum(row.n for row in group.total) + len(waits)
        for n, wait in seen if 4 not in waits else []:  # sometimes the group forgets
            out.seen(k=key.k, n=n + 1, wait=wait)
        for wait in {*(row.wait for row in group.top), *waits}:
            out.top(k=key.k, wait=wait, n=total)
        out.total(k=key.k, n=total)
        out.log(k=key.k, seen=len(seen), total=total)


class LapsingSql(TranslateSql):
    orders, seen, total = Lapsing.orders, Lapsing.seen, Lapsing.total
    top, log = Lapsing.top, Lapsing.log
    queries = {  # noqa: RUF012
        "came": "SELECT k, count(*) AS n, max(wait = 4) AS forgets FROM orders GROUP BY k",
        "every": "SELECT k, n, wait FROM seen UNION ALL SELECT k, 0L, wait FROM orders",
        "seen": "SELECT e.k, e.n + 1 AS n, e.wait FROM every e "
        "JOIN came c ON e.k <=> c.k WHERE NOT c.forgets",
        "sums": "SELECT c.k, c.n + coalesce(t.n, 0L) AS n "
        "FROM came c LEFT JOIN total t ON c.k <=> t.k",
        "total": "SELECT * FROM sums",
        "waits": "SELECT k, wait FROM top UNION SELECT k, wait FROM orders",
        "top": "SELECT w.k, w.wait, s.n FROM waits w JOIN sums s ON w.k <=> s.k",
        "counted": "SELECT k, count(*) AS seen FROM every GROUP BY k",
        "log": "SELECT s.k, c.seen, s.n AS total FROM sums s JOIN counted c ON s.k <=> c.k",
    }


class Basket(Translate):
    """Kept records that are put and deleted by what they were, and others that are never read."""

    orders = Input("k BIGINT, id INT, n INT", route_by="k")
    items = View("k BIGINT, id INT, n BIGINT", keep=True, key="k, id", expire="50 minutes")
    last = State("k BIGINT, id INT, n INT", keep=True, key="k, id")
    log = Output("k BIGINT, id INT, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        orders = list(group.orders)
        for id_ in dict.fromkeys(row.id for row in orders):
            numbers = [row.n for row in orders if row.id == id_]
            before = group.items.get(id=id_)
            n = sum(numbers) + (before.n if before else 0)
            if n > 0:
                out.items(k=key.k, id=id_, n=n)
            else:
                out.items.delete(id=id_)
            out.last(k=key.k, id=id_, n=max(numbers))
            out.log(k=key.k, id=id_, n=n)


class BasketSql(TranslateSql):
    orders, items, last, log = Basket.orders, Basket.items, Basket.last, Basket.log
    queries = {  # noqa: RUF012
        "sums": "SELECT k, id, sum(n) AS n FROM orders GROUP BY k, id",
        "now": "SELECT s.k, s.id, s.n + coalesce(i.n, 0L) AS n "
        "FROM sums s LEFT JOIN items i ON s.k <=> i.k AND s.id <=> i.id",
        "items": "SELECT * FROM now WHERE n > 0",
        "items.delete": "SELECT k, id FROM now",  # what is put stays
        "last": "SELECT k, id, max(n) AS n FROM orders GROUP BY k, id",
        "log": "SELECT * FROM now",
    }


class BasketNamedSql(BasketSql):
    """The same; it reads only the records that its orders name."""

    queries = {  # noqa: RUF012
        **BasketSql.queries,
        "now": "SELECT s.k, s.id, s.n + coalesce(i.n, 0L) AS n "
        "FROM sums s LEFT JOIN items_of_orders i ON s.k <=> i.k AND s.id <=> i.id",
    }


class TallySql(TranslateSql):
    """What `tests.chains.Tally` does; its order by `v` alone decides nothing else."""

    items = Input(SCHEMA, route_by="k")
    seen, o, p = Tally.seen, Tally.o, Tally.p
    queries = {  # noqa: RUF012
        "numbered": "SELECT i.k, i.v, coalesce(s.n, 0L) + row_number() OVER "
        "(PARTITION BY i.k ORDER BY i.v) AS n FROM items i LEFT JOIN seen s ON i.k <=> s.k",
        "o": "SELECT pmod(n, 4L) AS k, v FROM numbered",
        "sums": "SELECT k, max(n) AS n FROM numbered GROUP BY k",
        "p": "SELECT k, CAST(n AS STRING) AS v FROM sums",
        "seen": "SELECT k, n FROM sums WHERE n % 5 <> 0",
    }


class RollCallSql(TranslateSql):
    """What `tests.chains.RollCall` does: who is absent comes from the state alone."""

    items, o, p = TallySql.items, Tally.o, Tally.p
    seen = RollCall.seen
    queries = {  # noqa: RUF012
        **{name: TallySql.queries[name] for name in ("numbered", "o")},
        "present": TallySql.queries["sums"],
        "sums": "SELECT * FROM present UNION ALL SELECT s.k, s.n - 1 FROM seen s "
        "LEFT ANTI JOIN present p ON s.k <=> p.k",
        **{name: TallySql.queries[name] for name in ("p", "seen")},
    }


class PatientSql(TranslateSql):
    """What `tests.chains.Patient` does: expiry, and a timer that is set anew by each input."""

    items, seen, wake, o, p = TallySql.items, Patient.seen, Patient.wake, Tally.o, Tally.p
    queries = {  # noqa: RUF012
        **{name: TallySql.queries[name] for name in ("numbered", "o")},
        "called": "SELECT k FROM items UNION SELECT k FROM wake",
        "sums": "SELECT c.k, coalesce(max(x.n), max(s.n), 0L) AS n FROM called c "
        "LEFT JOIN seen s ON c.k <=> s.k LEFT JOIN numbered x ON c.k <=> x.k GROUP BY c.k",
        **{name: TallySql.queries[name] for name in ("p", "seen")},
        "wake": "SELECT DISTINCT k, time + INTERVAL 1 HOUR AS at FROM items CROSS JOIN run",
    }


class RemindersSql(TranslateSql):
    """What `tests.timed_flows.Reminders` does."""

    orders, open, wake, log = Reminders.orders, Reminders.open, Reminders.wake, Reminders.log
    queries = {  # noqa: RUF012
        "came": "SELECT k, count(*) AS n, max(coalesce(wait, 0) = 3) AS drops "
        "FROM orders GROUP BY k",
        "called": "SELECT k FROM came UNION SELECT k FROM wake",
        "state": "SELECT c.k, coalesce(o.n, 0L) + coalesce(a.n, 0L) AS n, "
        "coalesce(a.drops, false) AS drops FROM called c "
        "LEFT JOIN open o ON c.k <=> o.k LEFT JOIN came a ON c.k <=> a.k",
        "timers": "SELECT w.k, w.at, s.n, s.drops, w.at <= r.time AS is_due "
        "FROM wake w JOIN state s ON w.k <=> s.k CROSS JOIN run r",
        "log": "SELECT k, CASE WHEN is_due THEN 'due' ELSE 'pending' END AS what, n, at "
        "FROM timers",
        "wake": "SELECT k, at FROM timers WHERE NOT is_due AND NOT drops UNION ALL "
        "SELECT o.k, r.time + make_dt_interval(0, coalesce(o.wait, 0)) FROM orders o JOIN run r",
        "open": "SELECT k, n FROM state WHERE n < 5",
    }


class StampsSql(TranslateSql):
    """What `tests.timed_flows.Stamps` does: the epoch, the time, and the frame that is read."""

    items, first, lines = Stamps.items, Stamps.first, Stamps.lines
    queries = {  # noqa: RUF012
        "came": "SELECT DISTINCT k FROM items",
        "first": "SELECT c.k, coalesce(f.epoch, r.epoch) AS epoch, coalesce(f.at, r.time) AS at "
        "FROM came c LEFT JOIN first f ON c.k <=> f.k CROSS JOIN run r",
        "lines": "SELECT i.k, r.epoch, r.time AS at, coalesce(f.at, r.time) AS first, "
        "r.frames['items'][0] AS frame "
        "FROM items i LEFT JOIN first f ON i.k <=> f.k CROSS JOIN run r",
    }


class _Totals(Translate):
    def __init__(self, types: tuple[str, ...], grouping: Grouping) -> None:
        _declare(self, types, grouping)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.rows) + sum(row.n for row in group.seen)
        out.seen(*key, n)
        out.totals(*key, n)


class _TotalsSql(TranslateSql):
    def __init__(self, types: tuple[str, ...], grouping: Grouping) -> None:
        keys = _declare(self, types, grouping)
        both = f"SELECT {keys}, n FROM rows UNION ALL SELECT {keys}, n FROM seen"
        total = f"SELECT {keys}, sum(n) AS n FROM both GROUP BY {keys}"
        self.queries = {"both": both, "seen": total, "totals": total}


def _declare(translator: Any, types: tuple[str, ...], grouping: Grouping) -> str:
    keys = ", ".join(f"k{at}" for at in range(len(types)))
    shape = ", ".join([*(f"k{at} {type_}" for at, type_ in enumerate(types)), "n BIGINT"])
    translator.rows = Input(shape, route_by=keys)
    translator.seen = State(shape, grouping=grouping)
    translator.totals = Output(shape, key=keys)
    return keys


def totals_by(types: tuple[str, ...], *, grouping: Grouping = "inner") -> tuple[Declared, Declared]:
    """Return a sum by a key of these types, in both forms."""
    return _Totals(types, grouping), _TotalsSql(types, grouping)


class _Failing(TranslateSql):
    urls, counts, totals = UrlCount.urls, UrlCount.counts, UrlCount.totals


class WrongType(_Failing):
    queries = {  # noqa: RUF012
        "counts": "SELECT url, 1L AS n FROM urls",
        "totals": "SELECT url, 1 AS n FROM urls",
    }


class WrongName(_Failing):
    queries = {  # noqa: RUF012
        "counts": "SELECT url, 1L AS n FROM url",
        "totals": "SELECT url, 1L AS n FROM urls",
    }


class OtherKey(_Failing):
    queries = {  # noqa: RUF012
        "counts": "SELECT 'elsewhere' AS url, 1L AS n FROM urls",
        "totals": "SELECT url, 1L AS n FROM urls",
    }


class Divides(_Failing):
    queries = {  # noqa: RUF012
        "counts": "SELECT url, CAST(1 / (length(url) - 1) AS BIGINT) AS n FROM urls",
        "totals": "SELECT url, 1L AS n FROM urls",
    }


class Hangs(_Failing):
    """Waits, in every task, until a file is there; shows by files beside it that it waits."""

    def __init__(self, gate: str) -> None:
        self._gate = gate

    def translate(self, frames: Any, out: Any) -> None:
        gate = Path(self._gate)

        def wait(batches: Iterable[Any]) -> Iterator[Any]:
            gate.with_suffix(f".{os.getpid()}").touch()
            wait_for_file(gate)
            yield from batches

        seen = frames.urls.mapInArrow(wait, "url STRING").selectExpr("url", "1L AS n")
        out.counts(seen)
        out.totals(seen)


FAILING: dict[type[TranslateSql], str] = {
    WrongType: "'n' is declared BIGINT, got INT",
    WrongName: "TABLE_OR_VIEW_NOT_FOUND",
    OtherKey: "elsewhere",
    Divides: "DIVIDE_BY_ZERO",
}
