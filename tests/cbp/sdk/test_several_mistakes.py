"""All mistakes of a definition are reported at once, so that the author mends them in one try."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Lookup, Output, State, Translate, dataflow_from_document
from cbp.errors import DataflowInvalidError, DefinitionError
from cbp.model.flow.schema import Schema
from tests.cbp.sdk.test_translate import UrlCount, groupwise


def codes(translator: Translate) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as caught:
        translator.spec()
    assert caught.value.mistakes[0] == caught.value.mistake
    return [(one.code, one.where.removeprefix("Made.")) for one in caught.value.mistakes]


def test_every_declaration_of_a_class_is_read() -> None:
    """A wrong one hides neither the function's mistake nor those of the others; none is twice."""
    made = groupwise(
        translate=lambda self, key, group: None,
        urls=Input("url TEXTT, n NUMBR", route_by="link"),
        counts=State("url STRNG"),
        totals=Output("url STRING", key="nope"),
        names=Lookup("name STRINGG", by="name"),
    )
    assert codes(made) == [
        ("translate_parameters", "translate"),
        ("type_unknown", "urls"),
        ("type_unknown", "urls"),
        ("key_unknown", "totals"),
        ("type_unknown", "counts"),
        ("type_unknown", "names"),
    ]


def test_what_needs_the_key_is_reported_together() -> None:
    """States, look-ups and the rule; what only follows from another mistake is left out."""
    urls = Input("url STRING", route_by="url")
    made = groupwise(
        urls=urls,
        a=State("url STRING", grouping="x"),  # type: ignore[arg-type]
        b=State("link STRING"),
        runnable=5,
    )
    assert codes(made) == [
        ("grouping_unknown", "a"),
        ("state_key_missing", "b"),
        ("runnable_invalid", "runnable"),
    ]
    only = groupwise(urls=Input("url STRINGG", route_by="url"), counts=State("url STRING"))
    assert codes(only) == [("type_unknown", "urls")]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("x TEXTT, y NUMBR", ["'x'", "'y'"]),
        ("a MAP<VARIANT, INT>, _b INT, c VARCHARR(20, 2), d INT", ["'a'", "'_b'", "'c'"]),
        ("a ARRAY<ARRAY<X>>, b Y", ["'a'", "'b'"]),
        ("a X, , b Y", ["'a'", "a column name"]),
    ],
)
def test_every_column_of_a_schema_is_read(text: str, columns: list[str]) -> None:
    """As long as it is clear where the next one begins."""
    with pytest.raises(DefinitionError) as caught:
        Schema.parse(text)
    found = caught.value.mistakes
    assert len(found) == len(columns)
    assert all(column in one.message for column, one in zip(columns, found, strict=True))
    assert [one["message"] for one in caught.value.details["mistakes"]] == [
        one.message for one in found
    ]


def test_a_source_without_columns_is_checked_all_the_same() -> None:
    """Its format and options do not depend on its schema; in a document and in the builder."""
    source = {"schema": "url TEXTT", "format": "cvs", "duplicates": "maybe"}
    wanted = [
        ("type_unknown", "sources.urls.schema"),
        ("format_unknown", "sources.urls.format"),
        ("duplicates_invalid", "sources.urls.duplicates"),
    ]
    stages = {"count": {"translator": "count", "inputs": {"urls": "urls"}}}
    with pytest.raises(DataflowInvalidError) as caught:
        dataflow_from_document(
            {"name": "clicks", "sources": {"urls": source}, "stages": stages},
            lambda name, parameters: UrlCount(),
        )
    assert [(one.code, one.where) for one in caught.value.mistakes] == wanted


def test_the_builder_reports_all_mistakes_of_its_translators() -> None:
    """Those of a class are not cut to the first one."""
    flow = DataflowBuilder("clicks")
    wrong: Any = groupwise(urls=Input("url TEXTT", route_by="url"), top=Output("url TEXTT"))
    flow.stage("count", wrong, urls=flow.source("urls", "url STRING"))
    with pytest.raises(DataflowInvalidError) as caught:
        flow.build()
    assert [one.where for one in caught.value.mistakes][:2] == ["Made.urls", "Made.top"]
