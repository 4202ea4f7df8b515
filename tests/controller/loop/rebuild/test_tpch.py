"""TPC-H Q1 and Q3 while orders, customers and lineitems come, change and go, against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cbp import Input, Translate, View
from cbp.model.verification import Request
from controller.loop import LoopLimits
from stages.translators.join import Join
from stages.translators.latest_change import LatestChange
from tests.controller.loop.rebuild.beside_world import Beside

pytestmark = pytest.mark.usefixtures("without_syncs")

SEED, STEPS = 7, 20
MONEY = "DECIMAL(15,2)"
CUSTOMERS = "custkey BIGINT, mktsegment STRING, cts BIGINT"
ORDERS = "orderkey BIGINT, custkey BIGINT, orderdate DATE, shippriority INT, ots BIGINT"
LINES = (
    f"orderkey BIGINT, linenumber INT, quantity {MONEY}, extendedprice {MONEY}, discount {MONEY}, "
    f"tax {MONEY}, returnflag STRING, linestatus STRING, shipdate DATE, lts BIGINT"
)
KEYS = {"customers": ("custkey",), "orders": ("orderkey",), "lines": ("orderkey", "linenumber")}
SCHEMAS = {"customers": CUSTOMERS, "orders": ORDERS, "lines": LINES}
SHIPPED_BY, ORDERED_BEFORE, SEGMENT = date(1998, 9, 2), date(1995, 3, 15), "BUILDING"
SUMS = (
    f"quantity {MONEY.replace('15', '38')}, price DECIMAL(38,2), discounted DECIMAL(38,4), "
    "charge DECIMAL(38,6), discount DECIMAL(38,2), n BIGINT"
)
Row = tuple[Any, ...]


class Q1(Translate):
    """Sums of the lines that were shipped by a day, per flag and status."""

    lines = Input(f"{LINES}, sign INT", route_by="returnflag, linestatus", changes="signed")
    sums = View(f"returnflag STRING, linestatus STRING, {SUMS}", key="returnflag, linestatus")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        known = next(iter(group.sums), None)
        sums = [Decimal(0)] * 5 + [0] if known is None else list(known)[2:]
        for one in group.lines:
            if one.shipdate <= SHIPPED_BY:
                less = one.extendedprice * (1 - one.discount)
                values = (
                    one.quantity, one.extendedprice, less, less * (1 + one.tax), one.discount, 1,
                )  # fmt: skip
                sums = [total + one.sign * value for total, value in zip(sums, values, strict=True)]
        if sums[-1]:
            out.sums(*key, *sums)


class Q3(Translate):
    """Revenue of the open lines per order of a segment, with as many lines as it has."""

    lines = Input(
        "orderkey BIGINT, custkey BIGINT, orderdate DATE, shippriority INT, ots BIGINT, "
        "mktsegment STRING, cts BIGINT, "
        f"{LINES.removeprefix('orderkey BIGINT, ')}, sign INT",
        route_by="orderkey",
        changes="signed",
    )
    orders = View(
        "orderkey BIGINT, revenue DECIMAL(38,4), n BIGINT, orderdate DATE, shippriority INT",
        key="orderkey",
    )

    def translate(self, key: Any, group: Any, out: Any) -> None:
        known = next(iter(group.orders), None)
        revenue, n = (Decimal(0), 0) if known is None else (known.revenue, known.n)
        newest = None if known is None else (known.orderdate, known.shippriority)
        for one in group.lines:
            if (
                one.mktsegment == SEGMENT
                and one.orderdate < ORDERED_BEFORE
                and one.shipdate > ORDERED_BEFORE
            ):
                revenue += one.sign * one.extendedprice * (1 - one.discount)
                n += one.sign
                newest = (one.orderdate, one.shippriority) if one.sign > 0 else newest
        if n and newest is not None:
            out.orders(key.orderkey, revenue, n, *newest)


TRANSLATORS: dict[str, Any] = {
    "follow_customers": lambda: LatestChange(f"op STRING, {CUSTOMERS}", "custkey", "cts"),
    "follow_orders": lambda: LatestChange(f"op STRING, {ORDERS}", "orderkey", "ots"),
    "follow_lines": lambda: LatestChange(f"op STRING, {LINES}", "orderkey, linenumber", "lts"),
    "with_customers": lambda: Join(
        ORDERS, CUSTOMERS, on="custkey", left_key="orderkey", right_key="custkey"
    ),
    "with_lines": lambda: Join(
        "orderkey BIGINT, custkey BIGINT, orderdate DATE, shippriority INT, ots BIGINT, "
        "mktsegment STRING, cts BIGINT",
        LINES,
        on="orderkey",
        left_key="custkey, orderkey",
        right_key="orderkey, linenumber",
    ),
    "q1": Q1,
    "q3": Q3,
}


def document() -> dict[str, Any]:
    def stage(translator: str, **inputs: str) -> dict[str, Any]:
        return {"translator": translator, "inputs": inputs, "buckets": 2}

    return {
        "name": "d",
        "sources": {name: {"schema": f"op STRING, {ddl}"} for name, ddl in SCHEMAS.items()},
        "stages": {
            **{f"now_{name}": stage(f"follow_{name}", changes=name) for name in SCHEMAS},
            "bought": stage(
                "with_customers", left="now_orders.latest", right="now_customers.latest"
            ),
            "sold": stage("with_lines", left="bought.joined", right="now_lines.latest"),
            "q1": stage("q1", lines="now_lines.latest"),
            "q3": stage("q3", lines="sold.joined"),
        },
    }


class Shop:
    """What is true: the records that are there, by key, and the messages that say so.

    Args:
        seed: Of the history.
    """

    def __init__(self, seed: int) -> None:
        self.dice, self.sequence = random.Random(seed), 0
        self.there: dict[str, dict[Row, Row]] = {name: {} for name in KEYS}
        self.late: list[tuple[str, Row]] = []

    def step(self) -> dict[str, list[Row]]:
        """Change some records; return the messages by table, some late, some twice, shuffled."""
        said = self.late
        for _ in range(6):
            said += self._customer()
        for _ in range(12):
            said += self._order()
        for _ in range(8):
            said += self._removed()
        self.dice.shuffle(said)
        self.late = [one for one in said if self.dice.random() < 0.1 and self._is_old(one)]
        said = [one for one in said if one not in self.late]
        said += self.dice.sample(said, 3)
        return {name: [row for table, row in said if table == name] for name in KEYS}

    def _is_old(self, message: tuple[str, Row]) -> bool:
        """Tell whether a later message of its key is said now: then it may come later still."""
        name, row = message
        key = row[1 : 1 + len(KEYS[name])]
        now = self.there[name].get(key)
        return now is not None and now[-1] != row[-1]

    def _put(self, name: str, row: Row) -> tuple[str, Row]:
        self.sequence += 1
        key = row[: len(KEYS[name])]
        op = "u" if key in self.there[name] else "c"
        self.there[name][key] = (*row, self.sequence)
        return name, (op, *row, self.sequence)

    def _drop(self, name: str, key: Row) -> tuple[str, Row]:
        self.sequence += 1
        return name, ("d", *self.there[name].pop(key)[:-1], self.sequence)

    def _customer(self) -> Iterator[tuple[str, Row]]:
        segment = self.dice.choice([SEGMENT, SEGMENT, "MACHINERY"])
        yield self._put("customers", (self.dice.randrange(12), segment))

    def _order(self) -> Iterator[tuple[str, Row]]:
        key, dice = self.dice.randrange(40), self.dice
        day = ORDERED_BEFORE + timedelta(dice.randrange(-60, 20))
        yield self._put("orders", (key, dice.randrange(12), day, dice.randrange(2)))
        for number in range(dice.randrange(1, 4)):
            money = [Decimal(dice.randrange(1, 9999)) / 100 for _ in range(2)]
            rates = [Decimal(dice.randrange(0, 11)) / 100 for _ in range(2)]
            flags = dice.choice(["A", "N", "R"]), dice.choice(["O", "F"])
            shipped = day + timedelta(dice.choice([5, 60, 90, 1500]))
            yield self._put("lines", (key, number, *money, *rates, *flags, shipped))

    def _removed(self) -> Iterator[tuple[str, Row]]:
        name = self.dice.choice(["customers", "orders", "orders", "lines", "lines"])
        if not self.there[name]:
            return
        key = self.dice.choice(sorted(self.there[name]))
        yield self._drop(name, key)
        if name == "orders" and self.dice.random() < 0.7:
            for line in [one for one in self.there["lines"] if one[0] == key[0]]:
                yield self._drop("lines", line)

    def tables(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Fill DuckDB's tables anew with what is there."""
        for name, ddl in SCHEMAS.items():
            connection.execute(f"CREATE OR REPLACE TABLE {name} ({ddl})")
            if rows := list(self.there[name].values()):
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)


Q1_SQL = f"""
SELECT returnflag, linestatus, sum(quantity), sum(extendedprice),
    sum(extendedprice * (1 - discount)), sum(extendedprice * (1 - discount) * (1 + tax)),
    avg(quantity), avg(extendedprice), avg(discount), count(*)
FROM lines WHERE shipdate <= DATE '{SHIPPED_BY}'
GROUP BY returnflag, linestatus ORDER BY returnflag, linestatus
"""
Q3_SQL = f"""
SELECT orderkey, sum(extendedprice * (1 - discount)) AS revenue, orderdate, shippriority
FROM customers JOIN orders USING (custkey) JOIN lines USING (orderkey)
WHERE mktsegment = '{SEGMENT}' AND orderdate < DATE '{ORDERED_BEFORE}'
    AND shipdate > DATE '{ORDERED_BEFORE}'
GROUP BY orderkey, orderdate, shippriority ORDER BY revenue DESC, orderdate, orderkey LIMIT 10
"""
Q1_OF_VIEW = """
SELECT returnflag, linestatus, quantity, price, discounted, charge,
    quantity::DOUBLE / n, price::DOUBLE / n, discount::DOUBLE / n, n
FROM q1 ORDER BY returnflag, linestatus
"""
Q3_OF_VIEW = """
SELECT orderkey, revenue, orderdate, shippriority FROM q3
ORDER BY revenue DESC, orderdate, orderkey LIMIT 10
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path, limits=LoopLimits(), collect_every=10**6)
    made.translators |= TRANSLATORS
    made.restart()
    yield made
    made.close()


def read(world: Beside, stage: str, view: str) -> pa.Table:
    record, node = world.store.dataflow("d"), world.controller.dataflow("d").stages[stage]
    rows = [dict(row) for row in world.engine.records.read_state(record.folder, node, view)]
    names = node.translator.state(view).schema.names
    return pa.table({name: [row[name] for row in rows] for name in names})


def require_right(world: Beside, shop: Shop) -> int:
    """Compare both answers with DuckDB's; return how many orders Q3 has."""
    with duckdb.connect() as connection:
        shop.tables(connection)
        q1, q3 = read(world, "q1", "sums"), read(world, "q3", "orders")
        for name, table in (("q1", q1), ("q3", q3)):
            connection.register(name, table)
        for right, ours in ((Q1_SQL, Q1_OF_VIEW), (Q3_SQL, Q3_OF_VIEW)):
            expected = connection.execute(right).fetchall()
            actual = connection.execute(ours).fetchall() if q3.num_rows or "q1" in ours else []
            assert len(actual) == len(expected)
            for left, other in zip(chain(*actual), chain(*expected), strict=True):
                near = pytest.approx(other) if isinstance(other, float) else other
                assert left == near, "only averages are floats"
        return int(q3.num_rows)


def test_q1_and_q3_are_right_after_each_of_twenty_steps(world: Beside) -> None:
    """Inserts, updates and deletes of all three, late and twice; `verify` and a rebuild agree."""
    world.controller.register(document())
    shop, found = Shop(SEED), 0
    for _ in range(STEPS):
        for name, rows in shop.step().items():
            if rows:
                world.arrive("d", name, *rows)
        world.clock.advance(1)
        world.ticks()
        found += require_right(world, shop)
    assert found > STEPS, "Q3 has answers"
    verification = world.controller.verifications.start("d", Request())
    assert world.controller.verifications.show(verification.id).status == "equal"
    job = world.build(document())
    assert {(one.added, one.gone, one.changed) for one in job.tables} == {(0, 0, 0)}
    world.swap(job)
    for name, rows in shop.step().items():
        world.arrive("d", name, *rows)
    world.ticks()
    require_right(world, shop)
