"""Views in the model: how their changes are compared, and which new versions go on with them."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate, View
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import closeness, output_view, view_difference
from cbp.model.dataflow.stage import OutputSpec
from cbp.model.flow.schema import Schema
from cbp.model.verification import comparisons
from cbp.model.version.dataflow_shape import DataflowShape, shape_of
from cbp.model.version.version_change import Choice, compare_versions
from tests.view_dataflows import shelf_dataflow


def test_changes_are_compared_by_their_sums_also_where_records_are_not() -> None:
    """All input at once gives fewer changes, and the same sums; what follows them is left out."""
    for split in ("increments", "at_once"):
        found = {
            one.table: (one.kind, one.left_out) for one in comparisons(shelf_dataflow(), split)
        }
        assert found["state/shelf.shelf"] == ("state", "")
        assert found["flows/shelf.shelf"] == ("changes", "")
        assert found["flows/balance.balances"] == ("changes", "")
        kind, why = found["flows/log.lines"]
        assert (kind, bool(why)) == ("records", split == "at_once")


def difference(mine: list[Any], its: list[Any], **spec: Any) -> str:
    columns = "url STRING, score DOUBLE, round INT, change_type STRING, sign INT"
    output = OutputSpec("top", Schema.parse(columns), view="top", **spec)
    close = closeness(output, ())
    return view_difference(
        output_view(output, [mine], close), output_view(output, [its], close), close
    )


def test_two_ways_to_the_same_records_are_equal() -> None:
    """However often a record came and went; NaN is NaN."""
    nan = float("nan")
    short = [("a", nan, 1, "insert", 1)]
    long = [
        ("a", 1.0, 0, "insert", 1),
        ("a", 1.0, 0, "update_before", -1),
        ("a", nan, 1, "update_after", 1),
    ]
    assert difference(short, long) == ""
    assert difference(short, long[:-1])
    assert difference(short, [*long, ("b", 0.0, 0, "delete", -1)])
    assert difference([], [("b", 0.0, 0, "delete", -1)])
    assert difference([("b", 0.0, 0, "insert", 1)], [("b", 0.0, 0, "delete", -1)])


def test_changes_are_compared_as_closely_as_the_view_says() -> None:
    """Within its tolerance, and without the columns that it leaves out."""
    mine, its = [("a", 1.0, 1, "insert", 1)], [("a", 1.0 + 1e-12, 7, "insert", 1)]
    assert difference(mine, its)
    assert difference(mine, its, tolerance=1e-9)
    assert difference(mine, its, tolerance=1e-9, not_compared=("round",)) == ""
    gone = [("a", 1.0, 1, "delete", -1)]
    assert difference(mine, gone, tolerance=1e-9, not_compared=("round",))


class Count(Translate):
    words = Input("word STRING, n INT", route_by="word")
    totals = View("word STRING, n INT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


def count(**declared: Any) -> Dataflow:
    made = type("Count", (Count,), {"__module__": __name__, **declared})
    builder = DataflowBuilder("flow")
    builder.stage("a", made(), words=builder.source("words", "word STRING, n INT"))
    return builder.build()


WIDE = View("word STRING, n INT", key="word, n")
PLAIN = State("word STRING, n INT")
LOG = Output("word STRING, n INT")
KEYED = Output("word STRING, n INT", key="word")
CODES = ("view_changed", "second_key_changed", "view_not_fillable")


@pytest.mark.parametrize(
    ("before", "after", "kept", "rebuilt"),
    [
        ({}, {}, [], []),
        ({}, {"totals": WIDE}, ["states"], []),
        ({"totals": WIDE}, {}, ["states"], []),
        ({"totals": PLAIN}, {}, ["states"], []),
        ({}, {"totals": PLAIN}, ["states"], []),
        ({"totals": LOG}, {}, ["states"], []),
        ({"totals": KEYED}, {}, [], []),
        ({"totals": KEYED}, {"totals": WIDE}, ["states"], []),
        ({"totals": Output("word STRING, n INT", key="word", history=True)}, {}, ["states"], []),
        ({"totals": Output("word STRING, n SMALLINT", key="word")}, {}, ["states"], []),
        (
            {"totals": Output("word STRING, n INT", key="word", latest_by="n")},
            {},
            ["states"],
            [],
        ),
        ({}, {"totals": LOG}, ["outputs"], ["outputs"]),
        ({"totals": LOG}, {"totals": LOG, "more": WIDE}, [], []),
    ],
)
def test_a_version_does_not_mix_a_view_with_what_it_is_not(
    before: dict[str, Any], after: dict[str, Any], kept: list[str], rebuilt: list[str]
) -> None:
    """Records that stay are of the same key; a flow has changes, or records, from end to end."""
    old, new = shape_of(count(**before)), shape_of(count(**after))
    assert DataflowShape.from_json(new.to_json()) == new
    for choice, expected in (("keep", kept), ("rebuild", rebuilt)):
        plan = compare_versions(old, new, Choice(**{choice: frozenset("a")}))
        found = [one.where for one in plan.refused if one.code in CODES]
        assert found == [f"stages.a.{what}.totals" for what in expected]
        assert bool(plan.refused) == bool(expected)
