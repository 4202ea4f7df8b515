"""Schemas that grow: which old records survive, column by column."""

from __future__ import annotations

import pytest

from cbp.model.flow.schema import Schema
from cbp.model.flow.schema_evolution import compare, is_widened, refused

KINDS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP")
WIDENED = {
    ("TINYINT", "SMALLINT"), ("TINYINT", "INT"), ("TINYINT", "BIGINT"), ("SMALLINT", "INT"),
    ("SMALLINT", "BIGINT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE"), ("TINYINT", "DOUBLE"),
    ("SMALLINT", "DOUBLE"), ("INT", "DOUBLE"),
}  # fmt: skip


def types(text: str) -> list[str]:
    """Return what changed between two schemas, as text; refused ones marked."""
    before, after = (Schema.parse(part) for part in text.split("=>"))
    changes = compare(before, after)
    wrong = refused(changes)
    return [f"{'!' if change in wrong else ''}{change}" for change in changes]


def test_only_types_that_hold_every_old_value_are_wider() -> None:
    """BIGINT is no wider than DOUBLE's 53 bits, and nothing is wider than itself."""
    actual = {
        (a, b)
        for a in KINDS
        for b in KINDS
        if is_widened(Schema.parse(f"c {a}")["c"].type, Schema.parse(f"c {b}")["c"].type)
    }
    assert actual == WIDENED


@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        ("DECIMAL(10,2)", "DECIMAL(12,2)", True),
        ("DECIMAL(10,2)", "DECIMAL(12,4)", True),
        ("DECIMAL(10,2)", "DECIMAL(10,4)", False),
        ("DECIMAL(10,2)", "DECIMAL(12,1)", False),
        ("DECIMAL(10,2)", "DECIMAL(10,2)", False),
    ],
)
def test_a_decimal_is_wider_with_no_digit_less_on_either_side(
    before: str, after: str, wider: bool
) -> None:
    """Digits before the point and behind it may both become more, none fewer."""
    old, new = (Schema.parse(f"c {text}")["c"].type for text in (before, after))
    assert is_widened(old, new) is wider


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a INT => a INT", []),
        ("a INT => b STRING, a INT", ["+ b STRING"]),
        ("a INT => a INT, b STRING NOT NULL",
         ["!+ b STRING NOT NULL (old records would have no value)"]),
        ("a INT, b INT => a BIGINT", ["!- b INT", "a INT -> BIGINT (widened)"]),
        ("a BIGINT => a INT", ["!a BIGINT -> INT (narrowed)"]),
        ("a INT NOT NULL => a INT", ["a INT NOT NULL -> INT (loosened)"]),
        ("a INT => a INT NOT NULL", ["!a INT -> INT NOT NULL (tightened)"]),
        ("a ARRAY<INT> => a ARRAY<BIGINT>", ["!a ARRAY<INT> -> ARRAY<BIGINT> (narrowed)"]),
    ],
)  # fmt: skip
def test_every_difference_is_told_by_its_column(text: str, shown: list[str]) -> None:
    """Added, widened and loosened columns are accepted; what is refused names both types."""
    assert types(text) == shown
