"""Look-ups in the test kit: tables given once or from an epoch on, and checks of splits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder, Input, Lookup, Output, State, Translate, View
from cbp.errors import DefinitionError, NotFoundError
from cbp.testing import check_split, run_dataflow, run_epochs
from tests.sampling import examples

CUSTOMERS = "customer STRING, name STRING"
ORDERS = "customer STRING, n BIGINT"


class Named(Translate):
    """Each order with the name of its customer, and the number of its customers at that time."""

    orders = Input(ORDERS, route_by="customer")
    customers = Lookup(CUSTOMERS, by="customer")
    settings = Lookup("factor BIGINT, came BOOLEAN", by=())
    named = Output("n BIGINT, names ARRAY<STRING>", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look them up."""
        factor = sum(row.factor for row in group.settings) or 1
        names = [row.name for row in group.customers]
        for order in group.orders:
            out.named(order.n * factor, names)


class Paired(Translate):
    """The sum of the orders with the newest name, whichever changes."""

    orders = Input(ORDERS, route_by="customer")
    customers = Lookup(CUSTOMERS, by="customer", key="customer", wake=True)
    paired = View("customer STRING, total BIGINT, name STRING", key="customer")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep the orders, so that their customer can come later."""
        total = sum(row.total for row in group.paired) + sum(row.n for row in group.orders)
        row = next(iter(group.customers), None)
        if total:
            out.paired(key.customer, total, row and row.name)


class Forgetful(Paired):
    """Pairs only what comes with an order: a customer that comes later is forgotten."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Give the old name again unless there are orders."""
        orders = [row.n for row in group.orders]
        known = [(row.total, row.name) for row in group.paired]
        row = next(iter(group.customers), None)
        total = sum(orders) + sum(total for total, _ in known)
        if total:
            out.paired(key.customer, total, row and row.name if orders else known[0][1])


class Changes(Translate):
    """What the changes of its look-up are."""

    customers = Lookup(CUSTOMERS, by="customer", wake=True)
    orders = Input(ORDERS, route_by="customer")
    seen = Output("customer STRING, name STRING, sign INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Write them."""
        for row in group.customers_changes:
            out.seen(row.customer, row.name, row.sign)


def named(epochs: Any, **more: Any) -> list[list[tuple[int, list[str]]]]:
    result = run_epochs(Named, epochs, **more)
    return [sorted((row.n, row.names) for row in epoch) for epoch in result.outputs["named"]]


def test_a_table_is_given_once() -> None:
    """Every epoch finds it; records are dicts or tuples, and one that is not given is empty."""
    orders = [[("a", 1), ("b", 2)], [("a", 3)]]
    table = [("a", "Al"), {"customer": "a", "name": "Bo"}, ("c", "Cy")]
    assert named(orders, lookups={"customers": table}) == [
        [(1, ["Al", "Bo"]), (2, [])],
        [(3, ["Al", "Bo"])],
    ]
    assert named(orders) == [[(1, []), (2, [])], [(3, [])]]


def test_a_table_holds_from_its_epoch_on() -> None:
    """It is the whole table: records that it does not have are gone, also if it has none."""
    epochs = [
        {"orders": [("a", 1)]},
        {"orders": [("a", 2)], "customers": [("a", "Al"), ("b", "Bo")]},
        {"orders": [("a", 3), ("b", 3)]},
        {"orders": [("a", 4), ("b", 4)], "customers": [("a", "Cy")]},
        {"orders": [("a", 5)], "customers": []},
    ]
    assert named(epochs, lookups={"customers": [("a", "first")]}) == [
        [(1, ["first"])],
        [(2, ["Al"])],
        [(3, ["Al"]), (3, ["Bo"])],
        [(4, []), (4, ["Cy"])],
        [(5, [])],
    ]


def test_every_group_is_given_a_table_without_a_key() -> None:
    """All its records, in every group; a column may have the name that the kit would choose."""
    epochs = [[("a", 1), ("b", 2)]]
    tables = {"settings": [(10, True), (10, False)]}
    assert named(epochs, lookups=tables) == [[(20, []), (40, [])]]


def test_the_result_is_the_stages_own() -> None:
    """The stages that keep the tables are not in it, and bring no epoch of their own."""
    result = run_epochs(Paired, [{"orders": [("a", 1)], "customers": [("a", "Al")]}, {}])
    assert set(result.outputs) == set(result.state) == {"paired"}
    assert list(result.figures) == ["stage"]
    assert [len(epoch) for epoch in result.outputs["paired"]] == [1, 0]


def test_changes_of_a_table_call_groups() -> None:
    """Only those whose records changed, with the signs of what changed."""
    epochs = [
        {"customers": [("a", "Al"), ("a", "Al"), ("b", "Bo")]},
        {"customers": [("a", "Cy"), ("b", "Bo")]},
        {"customers": [("b", "Bo")]},
        {"customers": [("b", "Bo")]},
    ]
    result = run_epochs(Changes, epochs)
    seen = [sorted(map(tuple, epoch)) for epoch in result.outputs["seen"]]
    assert seen == [
        [("a", "Al", 1), ("a", "Al", 1), ("b", "Bo", 1)],
        [("a", "Al", -1), ("a", "Al", -1), ("a", "Cy", 1)],
        [("a", "Cy", -1)],
        [],
    ]
    assert [figures["groups"] for figures in result.figures["stage"]] == [2, 1, 1, 0]


def test_an_unknown_table_is_refused() -> None:
    """Under either name."""
    with pytest.raises(NotFoundError, match="look-up"):
        run_epochs(Named, [[("a", 1)]], lookups={"customer": []})
    with pytest.raises(NotFoundError, match="customer"):
        run_epochs(Named, [{"orders": [], "customer": []}])


def test_a_split_with_one_table_is_checked() -> None:
    """Whether it comes with the first epoch or before; forgotten state is found as ever."""
    epochs: list[Any] = [{"orders": [("a", 1)]}, {"orders": [("a", 2)]}]
    table = {"customers": [("a", "Al")]}
    batch = check_split(Keeps, epochs, lookups=table)
    assert batch.state["totals"] == [("a", 3, "Al")]
    assert check_split(Keeps, [{**epochs[0], **table}, epochs[1]]).difference(batch) == ""
    with pytest.raises(AssertionError, match="one by one"):
        check_split(Loses, epochs, lookups=table)


class Keeps(Translate):
    """Keeps the sum of the orders, with the name of the customer."""

    orders = Input(ORDERS, route_by="customer")
    customers = Lookup(CUSTOMERS, by="customer")
    totals = State("customer STRING, n BIGINT, name STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add."""
        n = sum(row.n for row in group.orders) + self.before(group)
        row = group.customers.one()
        out.totals(key.customer, n, row and row.name)

    def before(self, group: Any) -> int:
        """Return the sum so far."""
        return sum(row.n for row in group.totals)


class Loses(Keeps):
    """Begins anew with each epoch."""

    def before(self, group: Any) -> int:
        """Return nothing."""
        return 0


def test_a_table_that_changes_and_wakes_nobody_has_no_split() -> None:
    """The refusal names the look-up and the epoch, and says what to do."""
    epochs = [{"orders": [("a", 1)]}, {"orders": [("a", 2)], "customers": [("a", "Al")]}]
    with pytest.raises(DefinitionError) as refused:
        check_split(Keeps, epochs)
    mistake = refused.value.mistake
    assert (mistake.code, mistake.where) == ("lookup_unwoken", "Keeps.customers")
    assert "epochs[1]" in mistake.message
    assert "wake=True" in mistake.message


TABLES = st.none() | st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
EPOCHS = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3))), TABLES), max_size=5
)


@settings(max_examples=examples(20), deadline=None)
@given(EPOCHS)
def test_a_waking_look_up_does_not_depend_on_the_split(days: list[tuple[Any, Any]]) -> None:
    """The result is the join of all orders with the last table."""
    epochs = [
        {"orders": orders, **({} if table is None else {"customers": list(table.items())})}
        for orders, table in days
    ]
    last: dict[str, str] = next((t for _, t in reversed(days) if t is not None), {})
    totals = Counter[str]()
    for orders, _ in days:
        for customer, n in orders:
            totals[customer] += n
    batch = check_split(Paired, epochs)
    assert {row.customer: (row.total, row.name) for row in batch.view("paired")} == {
        customer: (n, last.get(customer)) for customer, n in totals.items()
    }


def test_a_join_that_forgets_who_came_first_is_found() -> None:
    """Also where each epoch has orders and customers together: tables come last, too."""
    epochs = [{"orders": [("a", 1)], "customers": [("a", "Al")]}]
    with pytest.raises(AssertionError, match="the tables in an epoch after all input"):
        check_split(Forgetful, epochs)


def test_a_source_may_bring_nothing() -> None:
    """`None` is no increment; an empty list is one without records."""
    flow = DataflowBuilder("flow")
    flow.stage("keep", Total(), orders=flow.source("orders", ORDERS))
    result = run_dataflow(flow.build(), {"orders": [[("a", 1)], None, [], [("a", 2)]]})
    assert [len(epoch) for epoch in result.outputs["keep.totals"]] == [1, 0, 1]


class Total(Translate):
    """Writes the orders of each run."""

    orders = Input(ORDERS, route_by="customer")
    totals = Output(ORDERS)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add them up."""
        out.totals(key.customer, sum(row.n for row in group.orders))
