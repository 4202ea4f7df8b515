"""Settings that a new version of a document gives a node: named, with both values."""

from __future__ import annotations

from typing import Any

import pytest

from cbp.model.version.setting_changes import OF_SOURCES, OF_STAGES, setting_changes
from cbp.sdk import document


def of_stage(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    old, new = ({"stages": {"sum": {"translator": "sum", **one}}} for one in (before, after))
    return setting_changes(old, new, "stages").get("sum", ())


def test_each_setting_is_named_with_both_values() -> None:
    """In words that a document could have; a setting that is left out has its default."""
    assert of_stage({}, {"on_error": "set_aside", "set_aside_max": 100}) == (
        "on_error: stop -> set_aside",
        "set_aside_max: 1000 -> 100",
    )
    assert of_stage({"run_seconds_max": 5}, {}) == ("run_seconds_max: 5 -> default",)
    assert of_stage({}, {"limits": {"out": {"records": 5}}}) == (
        'limits: default -> {"out": {"records": 5}}',
    )


def test_a_default_that_is_written_out_is_no_change() -> None:
    """It means the same."""
    written = {"on_error": "stop", "set_aside_max": 1000, "fuse": True, "keep": {}}
    assert of_stage({}, written) == of_stage(written, {}) == ()


def test_only_nodes_of_both_documents_are_compared() -> None:
    """A node that is new or gone is one whole change."""
    before = {"sources": {"a": {"schema": "x INT"}, "b": {"schema": "x INT"}}}
    after = {"sources": {"a": {"schema": "x INT", "nested": True}, "c": {"nested": True}}}
    assert setting_changes(before, after, "sources") == {"a": ("nested: false -> true",)}
    assert setting_changes({}, {}, "sources") == {}


@pytest.mark.parametrize(
    ("all_", "settings", "shape"),
    [
        (document._STAGE, OF_STAGES, {"translator", "parameters", "inputs", "buckets", "runnable"}),
        (document._SOURCE, OF_SOURCES, {"schema", "format", "options"}),
    ],
    ids=["stages", "sources"],
)
def test_every_key_of_a_document_is_a_setting_or_a_difference(
    all_: set[str], settings: dict[str, Any], shape: set[str]
) -> None:
    """A new key cannot be forgotten: a change that no plan shows is one that nobody checks."""
    assert settings.keys() | shape == all_
    assert not settings.keys() & shape
