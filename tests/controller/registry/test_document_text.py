"""A document as text for people is read back as the same document."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.registry.library import LINES_MAX, difference, document_text
from controller.registry.text import parse_document

TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(["", "no", "0o17", "1e3", "0x1f", "010", "~", "2026-01-01", "a: b", "#"]),
    st.from_regex(r"[-+.0-9a-fox_e]{1,8}", fullmatch=True),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), TEXTS)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(document=st.dictionaries(TEXTS, VALUES, max_size=4))
def test_a_document_survives_its_text(document: dict[str, Any]) -> None:
    """Also texts that YAML 1.2 reads as numbers, and YAML 1.1 does not."""
    read, duplicates = parse_document(document_text(document), "application/yaml")
    assert (read, duplicates) == (document, ())


def test_fields_stand_as_people_write_them() -> None:
    """A stage begins with its translator, whatever the order in which it is stored."""
    document = {"stages": {"z": {"inputs": {}, "translator": "t"}, "b": 2}, "name": "a"}
    text = "name: a\nstages:\n  z:\n    translator: t\n    inputs: {}\n  b: 2\n"
    assert document_text(document) == text


def test_a_difference_is_bounded() -> None:
    """Only the lines around a change; nothing at all of documents that are too long."""
    before = "\n".join(map(str, range(100)))
    lines = difference(before, before.replace("50", "x"))
    assert lines is not None
    assert ("-50" in lines, "+x" in lines, len(lines)) == (True, True, 9)
    assert difference("a\n" * (LINES_MAX + 1), "") is None
    assert difference(before, before) == []
