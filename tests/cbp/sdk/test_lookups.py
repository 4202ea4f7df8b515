"""Declarations of look-ups: what they compile to, and every mistake with its code."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Lookup, Output, State, Translate, TranslateRecords, View
from cbp.errors import CbpError, DataflowInvalidError, DefinitionError
from cbp.model.dataflow.runnable import RunAll, RunAny
from cbp.model.dataflow.stage import LookupSpec
from cbp.sdk.translate import spec_of
from cbp.testing import run_dataflow

CUSTOMER_NAME = "customer, name"
CUSTOMERS = "customer STRING, name STRING"


class Keep(Translate):
    """Keeps the last name of each customer, as a view and as a state."""

    items = Input(CUSTOMERS, route_by="customer")
    current = View(CUSTOMERS, key="customer")
    names = State(CUSTOMERS)
    bag = View(CUSTOMERS)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep it, and in a bag all that there were."""
        items = list(group.items)
        for item in items[-1:]:
            out.current(*item)
            out.names(*item)
        for item in (*group.bag, *items):
            out.bag(*item)


class Orders(Translate):
    """Orders with the name of the customer."""

    orders = Input("customer STRING, id BIGINT", route_by="customer")
    customers: Any = Lookup(CUSTOMERS, by="customer")
    named = Output("id BIGINT, name STRING")

    def __init__(self, lookup: Lookup | None = None) -> None:
        if lookup is not None:
            self.customers = lookup

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look it up."""
        customer = group.customers.one()
        for order in group.orders:
            out.named(order.id, customer and customer.name)


def built(lookup: Lookup | None, table: str = "keep.current") -> Any:
    flow = DataflowBuilder("orders")
    flow.stage("keep", Keep(), items=flow.source("customers", CUSTOMERS))
    orders = flow.source("orders", "customer STRING, id BIGINT")
    flow.stage("join", Orders(lookup), orders=orders, customers=table)
    return flow.build()


def test_a_look_up_is_wired_like_an_input_and_is_none() -> None:
    """It has a table, and neither a connector nor a place in the order of the stages."""
    dataflow = built(None)
    (spec,) = dataflow.stages["join"].translator.lookups
    assert spec == LookupSpec("customers", spec.schema, ("customer",))
    assert dict(dataflow.stages["join"].lookups) == {"customers": "keep.current"}
    assert dict(dataflow.stages["join"].wiring) == {"orders": "orders"}
    assert list(dataflow.consumers("keep.current")) == []
    assert dataflow.stages["join"].runnable.function == RunAll()


def test_a_look_up_that_wakes_reads_the_changes_too() -> None:
    """They are an input for which the stage does not wait."""
    dataflow = built(Lookup(CUSTOMERS, by="customer", wake=True))
    node = dataflow.stages["join"]
    assert dict(node.wiring) == {"orders": "orders", "customers_changes": "keep.current"}
    assert node.translator.input("customers_changes").changes == "signed"
    assert node.runnable.function == RunAny()


@pytest.mark.parametrize(
    ("lookup", "table", "code"),
    [
        (Lookup(CUSTOMERS, by="customer"), "customers", "lookup_table_unknown"),
        (Lookup(CUSTOMERS, by="customer"), "keep.nothing", "lookup_table_unknown"),
        (Lookup(CUSTOMERS, by="customer"), "join.named", "lookup_table_unknown"),
        (Lookup(CUSTOMERS, by="name"), "keep.current", "lookup_key_mismatch"),
        (
            Lookup(CUSTOMERS, by="customer", key="customer, name"),
            "keep.names",
            "lookup_key_mismatch",
        ),
        (
            Lookup(CUSTOMERS, by="customer", key="customer, name"),
            "keep.current",
            "lookup_key_mismatch",
        ),
        (Lookup(CUSTOMERS, by="customer", key="customer"), "keep.bag", "lookup_key_mismatch"),
        (Lookup("customer STRING, name BIGINT", by="customer"), "keep.current", "schema_mismatch"),
        (Lookup("customer STRING, age INT", by="customer"), "keep.current", "schema_mismatch"),
        (Lookup(CUSTOMERS, by="customer", wake=True), "keep.names", "lookup_wake_needs_view"),
        (Lookup(CUSTOMERS, by="customer", wake=True), "keep.gone", "lookup_table_unknown"),
    ],
)
def test_a_wrong_table_is_refused(lookup: Lookup, table: str, code: str) -> None:
    """One mistake, at the look-up."""
    with pytest.raises(DataflowInvalidError) as caught:
        built(lookup, table)
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.where) == (code, "stages.join.inputs.customers")


class Names(Translate):
    """Counts the records of a customer at each change of them."""

    orders = Input("customer STRING, id BIGINT", route_by="customer")
    customers = Lookup(CUSTOMERS, by="customer", wake=True)
    named = Output("customer STRING, names BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count."""
        out.named(key.customer, sum(1 for _ in group.customers))


def test_the_records_of_a_bag_are_looked_up_by_their_group() -> None:
    """Equal ones as often as they are there; each that comes or goes wakes the group."""
    flow = DataflowBuilder("orders")
    flow.stage("keep", Keep(), items=flow.source("customers", CUSTOMERS))
    orders = flow.source("orders", "customer STRING, id BIGINT")
    flow.stage("join", Names(), orders=orders, customers="keep.bag")
    ann, bob = ("ann", "Ann"), ("bob", "Bob")
    arrivals: Any = [[ann, ann, bob], [ann]]
    result = run_dataflow(flow.build(), {"customers": arrivals})
    assert [sorted(epoch) for epoch in result.outputs["join.named"]] == [
        [("ann", 2), ("bob", 1)],
        [("ann", 3)],
    ]
    assert result.view("keep.bag") == [ann, ann, ann, bob]


def test_a_look_up_needs_a_table() -> None:
    """A stage whose look-up is not wired is refused."""
    flow = DataflowBuilder("orders")
    flow.stage("join", Orders(), orders=flow.source("orders", "customer STRING, id BIGINT"))
    with pytest.raises(DataflowInvalidError) as caught:
        flow.build()
    assert [mistake.code for mistake in caught.value.mistakes] == ["input_unwired"]


@pytest.mark.parametrize(
    ("lookup", "code"),
    [
        (Lookup(CUSTOMERS, by=""), "lookup_by_unknown"),
        (Lookup(CUSTOMERS, by=7), "lookup_by_invalid"),  # type: ignore[arg-type]
        (Lookup(CUSTOMERS, by="customers"), "lookup_by_unknown"),
        (Lookup(CUSTOMERS, by="customer", key="id"), "lookup_key_unknown"),
        (Lookup(CUSTOMERS, by="customer", key=["customer"]), "lookup_key_invalid"),  # type: ignore[arg-type]
        (Lookup(CUSTOMERS, by="customer", key="name"), "lookup_key_invalid"),
        (Lookup(CUSTOMERS, by=(), wake=True), "lookup_by_invalid"),
        (Lookup(CUSTOMERS, by=(), key="name"), "lookup_by_invalid"),
        (Lookup("customer BIGINT", by="customer"), "lookup_key_mismatch"),
        (Lookup(CUSTOMERS, by="customer, name"), "lookup_key_mismatch"),
    ],
)
def test_a_wrong_declaration_is_refused(lookup: Lookup, code: str) -> None:
    """The mistake names the look-up."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(Orders(lookup))
    assert (caught.value.mistake.code, caught.value.mistake.where) == (code, "Orders.customers")


class Single(TranslateRecords):
    """A record has no group."""

    orders = Input("customer STRING, id BIGINT")
    customers = Lookup(CUSTOMERS, by="customer")
    named = Output("id BIGINT")

    def translate(self, record: Any, out: Any) -> None:
        """Write it."""
        out.named(record.id)


def test_a_record_without_a_group_looks_up_nothing() -> None:
    """Without route_by there is no key to look up."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(Single())
    assert caught.value.mistake.code == "route_by_missing"


class Named(Orders):
    """Its look-up has the name of a function that each translator has."""

    translate = Lookup(CUSTOMERS, by="customer")  # type: ignore[assignment]


def test_a_look_up_is_no_function_of_the_translator() -> None:
    """A declaration that hides one is refused."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(Named())
    assert caught.value.mistake.code == "name_invalid"


class Two(Orders):
    """Asks for the only record where there are two."""

    customers = Lookup("name STRING, customer STRING", by="customer")


def test_the_only_record_of_several_is_the_authors_error() -> None:
    """The error is coded, and names the line."""

    class Bag(Keep):
        """Keeps every name."""

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Keep them."""
            for item in (*group.names, *group.items):
                out.names(*item)

    flow = DataflowBuilder("orders")
    bag = flow.stage("keep", Bag(), items=flow.source("customers", CUSTOMERS))
    orders = flow.source("orders", "customer STRING, id BIGINT")
    flow.stage("join", Two(), orders=orders, customers=bag.names)
    names = [("a", "x"), ("a", "y"), ("b", "z")]
    arrivals: dict[str, Any] = {"customers": [names], "orders": [[("b", 1)]]}
    result = run_dataflow(flow.build(), arrivals)
    assert [tuple(row) for row in result.outputs["join.named"][0]] == [(1, "z")]
    with pytest.raises(CbpError) as caught:
        run_dataflow(flow.build(), arrivals | {"orders": [[("a", 1)]]})
    assert caught.value.code == "lookup_several"
