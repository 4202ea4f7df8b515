"""Orders with customers against a dict of customers, and without a look at others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import run_dataflow
from stages.translators.latest import Latest
from stages.translators.orders_with_customers import OrdersWithCustomers
from tests.driver import Driver
from tests.sampling import examples

CUSTOMERS = "customer STRING, name STRING, country STRING"
_WHO = st.sampled_from(["ann", "bob", "cid"])
DAYS = st.lists(
    st.tuples(
        st.lists(st.tuples(_WHO, st.sampled_from(["A", "B", None]), st.just("de")), max_size=4),
        st.lists(st.tuples(st.integers(0, 9), _WHO, st.just(1.0)), max_size=4),
    ),
    min_size=1,
    max_size=5,
)
"""What comes on each day: customers (without a name, one that is gone), and orders."""


def shop() -> Dataflow:
    flow = DataflowBuilder("shop")
    rows = flow.source("customers", CUSTOMERS)
    customers = flow.stage("keep", Latest(CUSTOMERS, "customer", gone="name"), rows=rows)
    orders = flow.source("orders", "order BIGINT, customer STRING, total DOUBLE")
    flow.stage("with", OrdersWithCustomers(), orders=orders, customers=customers.latest)
    return flow.build()


def oracle(days: list[tuple[Any, Any]]) -> list[list[tuple[Any, ...]]]:
    """Return the orders of each day with the customers of that day."""
    known: dict[str, tuple[Any, ...]] = {}
    result = []
    for customers, orders in days:
        known |= {who: (name, country) for who, name, country in customers}
        nobody = (None, None)
        about = {who: row if row[0] is not None else nobody for who, row in known.items()}
        result.append(sorted((*order, *about.get(order[1], nobody)) for order in orders))
    return result


@settings(max_examples=examples(20), deadline=None)
@given(days=DAYS)
def test_each_order_has_the_customer_of_its_day(days: list[tuple[Any, Any]]) -> None:
    """A customer that changes or goes is another one for later orders only."""
    arrivals = {"customers": [c for c, _ in days], "orders": [o for _, o in days]}
    result = run_dataflow(shop(), arrivals)
    came = [sorted(map(tuple, epoch)) for epoch in result.outputs["with.enriched"]]
    assert came == oracle(days)


def test_a_customer_that_nobody_orders_from_costs_nothing(tmp_path: Path) -> None:
    """No group is called for customers, and a run finds as many records as it has customers."""
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), shop(), tmp_path / "t")
    many = [{"customer": f"c{n}", "name": "A", "country": "de"} for n in range(500)]
    driver.feed("customers", many)
    driver.run_until_idle()
    assert driver.epochs == {"keep": 1, "with": 0}
    driver.feed("orders", [{"order": 1, "customer": "c7", "total": 1.0}])
    driver.run_until_idle()
    assert driver.figures[-1]["groups"] == 1
    assert driver.figures[-1]["bytes_shuffled"] < 200
    assert [row["name"] for row in driver.outputs("with.enriched")[0]] == ["A"]
