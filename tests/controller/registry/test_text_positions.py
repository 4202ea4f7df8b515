"""TextPositions: every mistake of a document has the line and column of what it is about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import Mistake
from controller.registry.text_positions import TextPositions

YAML = "application/yaml"
DOCUMENT = """\
# a comment
name: clicks
sources:
  urls: {schema: url STRING, format: jsonl}
stages:
  count:
    translator: url_cuont
    inputs:
      urls: urls
      a.b: "c"
    buckets: [1,
      2]
  count: 3
"""


@pytest.mark.parametrize(
    ("path", "code", "place"),
    [
        ("name", "name_invalid", (2, 7)),
        ("document.name", "field_unknown", (2, 1)),
        ("sources.urls.format", "document_invalid", (4, 38)),
        ("sources.urls.keep", "keep_invalid", (4, 3)),
        ("stages.count", "name_twice", (13, 3)),
        ("stages.count", "document_invalid", (13, 10)),
        ("stages.other.inputs.urls", "flow_unknown", (5, 1)),
        ("stages", "stages_missing", (5, 1)),
        ("document", "document_invalid", (2, 1)),
        ("line 3, column 7", "document_syntax", (3, 7)),
    ],
)
def test_a_mistake_has_the_place_of_what_it_is_about(
    path: str, code: str, place: tuple[int, int]
) -> None:
    """A value's own place, a name's if the name is wrong; else the nearest thing that is there."""
    assert TextPositions(DOCUMENT, YAML).of_mistake(Mistake(code, path, "is wrong")) == place


def test_names_with_dots_and_items_of_lists_have_places() -> None:
    """A path is ambiguous where names hold dots: the longest name that is there wins."""
    places = TextPositions(DOCUMENT.replace("  count: 3\n", ""), YAML)
    assert places.of("stages.count.inputs.a.b", key=False) == (10, 12)
    assert places.of("stages.count.inputs.a.c", key=False) == (8, 5)
    assert places.of("stages.count.buckets.1", key=False) == (12, 7)
    assert places.of("stages.count.buckets", key=False) == (11, 5)
    assert places.of("stages.count.translator", key=False) == (7, 17)


def test_json_with_tabs_has_places() -> None:
    """JSON may hold tabs between its tokens, each of which is one column."""
    text = '{\n\t"name": "a",\n\t"stages":\t{"s": {"translator": 1}}}'
    places = TextPositions(text, "application/json")
    assert places.of("name", key=False) == (2, 10)
    assert places.of("stages.s.translator", key=True) == (3, 19)


def test_a_damaged_text_has_the_places_before_the_damage() -> None:
    """Nothing is raised; what follows the damage is looked for at the nearest name."""
    places = TextPositions("name: a\nstages: {s: 1, t: ]\n", YAML)
    assert places.of("name", key=False) == (1, 7)
    assert places.of("stages.s.inputs", key=False) == (2, 10)


@given(
    text=st.text(alphabet="ab:{}[]&*!|>-'\" \n\t,#%", max_size=60), path=st.text("ab.", max_size=8)
)
def test_any_text_and_path_have_a_place(text: str, path: str) -> None:
    """Whatever the text, a place is inside it, or its start."""
    for kind in (YAML, "application/json"):
        line, column = TextPositions(text, kind).of(path, key=False)
        assert 1 <= line <= text.count("\n") + 1
        assert column >= 1
