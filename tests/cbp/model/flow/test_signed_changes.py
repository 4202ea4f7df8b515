"""Changes of a view: signed records, and what they sum up to."""

from __future__ import annotations

from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import SIGNS, changes_schema, consolidated, split_change


def test_changes_have_the_columns_of_the_view_a_type_and_a_sign() -> None:
    """The columns of changes come last."""
    schema = changes_schema(Schema.parse("url STRING, n BIGINT"))
    assert str(schema) == "url STRING, n BIGINT, change_type STRING, sign INT"
    assert split_change(("a", 1, "delete", -1)) == (("a", 1), -1)


def test_a_record_that_came_and_went_sums_up_to_nothing() -> None:
    """A sum below zero stays: it shows that a change is missing."""
    told = [("a", "insert"), ("b", "insert"), ("a", "delete"), ("b", "update_before"),
            ("c", "update_after"), ("d", "delete")]  # fmt: skip
    sums = consolidated((record, SIGNS[kind]) for record, kind in told)
    assert sums == {"c": 1, "d": -1}
