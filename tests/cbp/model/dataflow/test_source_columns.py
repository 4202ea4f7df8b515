"""What a source's format cannot fill is a mistake of the document, before any file comes."""

from __future__ import annotations

import pytest

from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.dataflow.node_mistakes import source_changes, source_mistakes
from cbp.model.flow.schema import Schema

TABLE = {"table": "t"}
LOG = "host STRING, time TIMESTAMP, status INT"


def codes(schema: str, format_: str, **options: str) -> list[tuple[str, str]]:
    source = SourceNode("s", Schema.parse(schema), format_, options)
    return [(mistake.code, mistake.where) for mistake in source_mistakes(source)]


@pytest.mark.parametrize(
    ("schema", "format_", "options"),
    [
        ("line STRING", "text", {}),
        ("n BIGINT, text STRING, f STRING", "text", {"file_name": "f", "line_number": "n"}),
        (LOG, "access_log", {}),
        (LOG, "access_log", {"layout": "Common", "final_newline": "optional"}),
        (f"{LOG}, n INT", "access_log", {"line_number": "n", "encoding": "latin-1"}),
        ("bytes BIGINT, user_agent STRING", "access_log", {}),
        ("id BIGINT, sign INT", "delta", {"table": "t"}),
        (
            "id BIGINT, w SMALLINT, how STRING",
            "delta",
            {**TABLE, "sign": "w", "change_type": "how"},
        ),
    ],
)
def test_columns_that_a_format_fills_are_no_mistake(
    schema: str, format_: str, options: dict[str, str]
) -> None:
    """The names of a text source's columns are the author's; an access log's are fixed."""
    assert codes(schema, format_, **options) == []


@pytest.mark.parametrize(
    ("schema", "format_", "options", "code"),
    [
        pytest.param("line BIGINT", "text", {}, "format_type", id="a number for the line"),
        pytest.param("a STRING, b STRING", "text", {}, "format_type", id="two lines"),
        pytest.param("f STRING", "text", {"file_name": "f"}, "format_type", id="no line"),
        pytest.param("a STRING", "text", {"file_name": "f"}, "option_invalid", id="no column"),
        pytest.param(
            *("a STRING, n STRING", "text", {"line_number": "n"}, "option_invalid"),
            id="a text for the number",
        ),
        pytest.param("a STRING", "text", {"header": "true"}, "option_invalid", id="CSV's option"),
        pytest.param("a STRING", "text", {"encoding": "utf-16"}, "option_invalid", id="encoding"),
        pytest.param("a STRING", "jsonl", {"encoding": "latin-1"}, "option_invalid", id="JSON"),
        pytest.param("ip STRING", "access_log", {}, "format_type", id="an unknown column"),
        pytest.param("status STRING", "access_log", {}, "format_type", id="a text for a number"),
        pytest.param(
            "referer STRING", "access_log", {"layout": "common"}, "format_type", id="not there"
        ),
        pytest.param(LOG, "access_log", {"layout": "nginx"}, "option_invalid", id="layout"),
        pytest.param("id INT, sign INT", "delta", {}, "option_invalid", id="no table"),
        pytest.param("id INT, sign INT", "delta", {"table": "../t"}, "option_invalid", id="out"),
        pytest.param("id INT, sign INT", "delta", {"table": "s3://t"}, "option_invalid", id="away"),
        pytest.param("id INT", "delta", TABLE, "option_invalid", id="no sign"),
        pytest.param("id INT, sign STRING", "delta", TABLE, "option_invalid", id="sign as text"),
        pytest.param("sign INT", "delta", TABLE, "format_type", id="nothing of the table"),
    ],
)
def test_columns_that_a_format_cannot_fill_are_told(
    schema: str, format_: str, options: dict[str, str], code: str
) -> None:
    """Each has its code and its place, and there is one mistake for one cause."""
    where = "sources.s.schema" if code == "format_type" else "sources.s.options"
    assert codes(schema, format_, **options) == [(code, where)]


@pytest.mark.parametrize(
    ("format_", "options", "ways"),
    [
        ("jsonl", {}, ["signed"]),
        ("delta", TABLE, ["signed"]),
        ("delta", {**TABLE, "change_type": "change_type"}, ["signed", "after"]),
        ("delta", {**TABLE, "change_type": "how"}, ["signed"]),
        ("delta", {**TABLE, "sign": "w"}, []),
    ],
)
def test_a_table_is_read_as_the_changes_of_a_view_by_the_names_of_its_columns(
    format_: str, options: dict[str, str], ways: list[str]
) -> None:
    """An input that reads signed records, or new ones, finds the columns that it goes by."""
    schema = Schema.parse("id INT, sign INT, w INT, change_type STRING, how STRING")
    assert [*source_changes(SourceNode("s", schema, format_, options))] == ways


def test_one_column_is_not_both_the_name_and_the_number() -> None:
    """The option's message is beside the one on the type, which no column could satisfy."""
    options = {"file_name": "f", "line_number": "f"}
    assert ("option_invalid", "sources.s.options") in codes("a STRING, f STRING", "text", **options)
