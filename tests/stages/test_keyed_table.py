"""`keyed_table`: a table whose rows come and go is kept by its key, and looked up by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder, Input, Lookup, Output, Translate
from cbp.errors import CbpError, DefinitionError
from cbp.testing import check_split, run_dataflow, run_epochs
from stages.translators.keyed_table import KeyedTable
from tests.sampling import examples

SCHEMA = "country STRING, name STRING, rate DOUBLE"
NAN = float("nan")


class Named(Translate):
    """Each order with the name of its country at that moment."""

    orders = Input("country STRING, id BIGINT", route_by="country")
    countries = Lookup("country STRING, name STRING", by="country")
    named = Output("id BIGINT, name STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit each order once, as the table was."""
        about = group.countries.one()
        for order in group.orders:
            out.named(order.id, about and about.name)


def changes(tables: list[dict[str, tuple[Any, ...]]]) -> list[list[tuple[Any, ...]]]:
    """Return what leads from each table to the next, additions first, as Delta may tell them."""
    epochs, before = [], dict[str, tuple[Any, ...]]()
    for table in tables:
        come = [(key, *row, 1) for key, row in table.items() if before.get(key) != row]
        gone = [(key, *row, -1) for key, row in before.items() if table.get(key) != row]
        epochs.append(come + gone)
        before = table
    return epochs


TABLES = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([1.0, 2.5, None, NAN])),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(30), deadline=None)
@given(TABLES)
def test_the_view_is_the_newest_table(tables: list[dict[str, tuple[Any, ...]]]) -> None:
    """However its changes are split; a row that comes before the one it replaces goes is kept."""
    result = check_split(KeyedTable(SCHEMA, "country"), changes(tables))
    right = sorted(repr((key, *row)) for key, row in tables[-1].items())
    assert sorted(repr(tuple(row)) for row in result.view("table")) == right


def test_two_rows_of_one_key_are_an_error() -> None:
    """Nothing says which of them counts."""
    with pytest.raises(CbpError) as caught:
        run_epochs(KeyedTable(SCHEMA, "country"), [[("a", "x", 1.0, 1), ("a", "y", 1.0, 1)]])
    assert caught.value.code == "view_key_twice"


def test_a_row_that_goes_and_is_not_there_takes_nothing_away() -> None:
    """As after a version that an operator discarded."""
    epochs = [[("a", "x", 1.0, 1)], [("a", "y", 1.0, -1), ("b", "x", 1.0, -1)]]
    result = run_epochs(KeyedTable(SCHEMA, "country"), epochs)
    assert [tuple(row) for row in result.view("table")] == [("a", "x", 1.0)]


def test_a_key_that_is_no_column_is_refused() -> None:
    """With the parameter that names it."""
    with pytest.raises(DefinitionError) as caught:
        KeyedTable(SCHEMA, "land")
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.where) == ("parameter_invalid", "keyed_table.key")


def test_orders_find_their_row_by_the_key() -> None:
    """A look-up reads the table as it was when the order came; no order is called for a change."""
    flow = DataflowBuilder("shop")
    rows = flow.source("rows", f"{SCHEMA}, sign INT")
    orders = flow.source("orders", "country STRING, id BIGINT")
    table = flow.stage("table", KeyedTable(SCHEMA, "country"), rows=rows)
    flow.stage("named", Named(), orders=orders, countries=table.table)
    result = run_dataflow(
        flow.build(),
        {
            "rows": [[("a", "x", 1.0, 1)], [("a", "x", 1.0, -1), ("a", "y", 1.0, 1)], []],
            "orders": [[("a", 1)], [("a", 2), ("b", 3)], [("a", 4)]],
        },
    )
    named = [tuple(row) for epoch in result.outputs["named.named"] for row in epoch]
    assert named == [(1, "x"), (2, "y"), (3, None), (4, "y")]
