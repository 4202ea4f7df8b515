"""Records with what a looked-up table says of them, against a dict; and any split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import run_dataflow
from stages.translators.dimension_join import DimensionJoin
from stages.translators.dimension_join_arrow import DimensionJoinArrow
from stages.translators.latest import Latest
from stages.translators.top_k import TopK
from tests.sampling import examples
from tests.stages.ready_stages import comparable

Row = tuple[Any, ...]
Days = Sequence[tuple[Sequence[Row], Sequence[Row]]]

ORDERS = "id INT, shop STRING, part DOUBLE"
SHOPS = "shop STRING, name STRING, floor INT"
THERE = "there BOOLEAN"
FORMS = st.sampled_from([DimensionJoin, DimensionJoinArrow])
_SHOP = st.sampled_from(["a", "a", "b", None])
_THERE = st.sampled_from([True, True, None])
_ORDER = st.tuples(
    st.integers(0, 3), _SHOP, st.sampled_from([None, 1.0, 2.0, float("nan")]), _THERE
)
_DETAIL = st.tuples(_SHOP, st.sampled_from(["x", "y", None]), st.sampled_from([None, 1, 2]), _THERE)
DAYS = st.lists(
    st.tuples(st.lists(_ORDER, max_size=5), st.lists(_DETAIL, max_size=3)), min_size=2, max_size=5
)


def shop(stage: DimensionJoin) -> Dataflow:
    flow = DataflowBuilder("shop")
    views = {}
    for name, schema, key in (("orders", ORDERS, "id"), ("shops", SHOPS, "shop")):
        schema = f"{schema}, {THERE}"
        last = Latest(schema, key, gone="there")
        views[name] = flow.stage(f"last_{name}", last, rows=flow.source(name, schema)).latest
    flow.stage("with", stage, rows=views["orders"], dimension=views["shops"])
    return flow.build()


def arrivals(days: Days) -> dict[str, list[list[Row]]]:
    return {
        name: [list(day[side]) for day in days] for side, name in enumerate(("orders", "shops"))
    }


def after(days: Days, side: int, at: int) -> dict[Any, Row]:
    """Return what is there of a side after all days, by the column that is its key."""
    last = {row[at]: row for day in days for row in day[side]}
    return {key: row[:-1] for key, row in last.items() if row[-1]}


def expected(days: Days, how: str) -> list[Row]:
    """Return the join by a dict."""
    shops = after(days, 1, 0)
    rows = []
    for order in after(days, 0, 0).values():
        about = shops.get(order[1]) if order[1] is not None else None
        if about or how == "left":
            rows.append((*order, *(about[1:] if about else (None, None))))
    return rows


@settings(max_examples=examples(13))
@given(days=DAYS, how=st.sampled_from(["left", "inner"]), form=FORMS, counted=st.booleans())
def test_each_record_has_the_tables_record_of_now(
    days: Days, how: Any, form: type[DimensionJoin], counted: bool
) -> None:
    """After every day, while orders and shops come, change and go; a null matches nothing."""
    rows, key = ("shop STRING, part DOUBLE", "") if counted else (ORDERS, "id")
    stage = form(rows, SHOPS, "shop", how, key)
    for end in range(1, len(days) + 1):
        view = run_dataflow(shop(stage), arrivals(days[:end])).view("with.joined")
        wanted = Counter(comparable([row[counted:] for row in expected(days[:end], how)]))
        if counted:
            assert {row[:-1]: row[-1] for row in comparable(view)} == dict(wanted)
        else:
            assert Counter(comparable(view)) == wanted


@settings(max_examples=examples(5))
@given(days=DAYS, form=FORMS)
def test_the_join_does_not_depend_on_the_split(days: Days, form: type[DimensionJoin]) -> None:
    """Day by day, all at once, and as one batch: the same view and the same state."""
    stage = form(ORDERS, SHOPS, "shop", key="id")
    batch = [([row for day in days for row in day[0]], [row for day in days for row in day[1]])]
    results = [
        run_dataflow(shop(stage), arrivals(some), at_once=at_once)
        for some, at_once in ((days, False), (days, True), (batch, False))
    ]
    for result in results[1:]:
        for name in ("with.joined", "with.known"):
            assert comparable(result.state[name]) == comparable(results[0].state[name])


@pytest.mark.parametrize("form", [DimensionJoin, DimensionJoinArrow])
def test_a_table_with_several_records_of_a_key_is_refused(form: type[DimensionJoin]) -> None:
    """Which of them is meant cannot be known."""
    flow = DataflowBuilder("shop")
    orders = flow.stage("orders", Latest(ORDERS, "id"), rows=flow.source("left", ORDERS))
    shops = flow.stage("shops", Latest(SHOPS, "name"), rows=flow.source("right", SHOPS))
    top = flow.stage("top", TopK(SHOPS, "shop", key="name", by="floor"), rows=shops.latest).top
    stage = form(ORDERS, SHOPS, "shop", key="id")
    flow.stage("with", stage, rows=orders.latest, dimension=top)
    days: dict[str, Any] = {"left": [[(1, "a", 1.0)]], "right": [[("a", "x", 1), ("a", "y", 2)]]}
    with pytest.raises(AuthorCodeError) as error:
        run_dataflow(flow.build(), days)
    assert error.value.code == "lookup_several"
