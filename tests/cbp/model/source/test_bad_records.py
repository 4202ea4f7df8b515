"""What a document may say of wrong records, and which of its parts an error names."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.errors import DataflowInvalidError
from cbp.model.source.bad_records import QUARANTINE_FILE, BadRecords


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("quarantine_file", QUARANTINE_FILE),
        ("reject_rows", BadRecords(100)),
        ({"reject_rows": {}}, BadRecords(100)),
        ({"reject_rows": {"count": 5, "share": 0.01}}, BadRecords(5, 0.01)),
    ],
)
def test_a_policy_reads_back_as_it_was_written(value: Any, policy: BadRecords) -> None:
    """Parsing and writing are inverses."""
    assert BadRecords.parse(value) == policy
    assert BadRecords.parse(policy.to_json()) == policy


@pytest.mark.parametrize(
    "value",
    [
        "skip",
        None,
        3,
        {"reject_rows": 3},
        {"reject_rows": {"count": 0}},
        {"reject_rows": {"count": 1001}},
        {"reject_rows": {"count": True}},
        {"reject_rows": {"share": 0}},
        {"reject_rows": {"share": 1.5}},
        {"reject_rows": {"rows": 3}},
        {"reject_rows": {}, "more": 1},
    ],
)
def test_what_is_no_policy_is_refused(value: Any) -> None:
    """With what came, and what is allowed."""
    with pytest.raises(ValueError, match=r"use quarantine_file|must be a(n integer| number)"):
        BadRecords.parse(value)


def test_a_builder_tells_the_place() -> None:
    """A mistake of the policy is one of the dataflow."""
    builder = DataflowBuilder("d")
    builder.source("s", "a STRING", on_bad_records="skip")
    with pytest.raises(DataflowInvalidError) as caught:
        builder.build()
    assert "on_bad_records_invalid" in [mistake.code for mistake in caught.value.mistakes]
