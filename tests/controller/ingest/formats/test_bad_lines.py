"""All wrong lines of a file are reported at once, and unknown names and open times are refused.

Up to 100 lines of a file are reported. Unknown columns, times without a zone and an open last line
of CSV are refused unless the source says otherwise.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.errors import DataflowInvalidError
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.dataflow.nodes import ONE_FILE, FileBatch
from cbp.model.flow.schema import Schema
from cbp.sdk.document import dataflow_from_document
from tests.controller.ingest.harness import Drop, accepted, lines, rejected

SCHEMA = "id BIGINT, name STRING NOT NULL"
AT = "at TIMESTAMP"


def reported(reason: dict[str, Any]) -> list[tuple[int, str | None, str]]:
    return [(one["line"], one["column"], one["code"]) for one in reason["lines"]]


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_all_wrong_json_lines_are_reported(tmp_path: Path) -> None:
    """Each wrong line of whatever kind is in the reason, in order; the first one leads."""
    data = (
        b'{"id": 1, "name": "a"}\n'
        b'{"id": "x", "name": "a"}\n'
        b"{\n"
        b"[]\n"
        b'{"id": 1}\n'
        b'{"id": 1, "name": "\xff"}\n'
        b'{"id": 9223372036854775808, "name": 7}\n'
        b'{"id": 1, "nmae": "a"}\n'
    )
    reason = rejected(data, tmp_path, SCHEMA)
    assert (reason["code"], reason["line"], reason["column"]) == ("value_type", 2, "id")
    assert reported(reason) == [
        (2, "id", "value_type"),
        (3, None, "json_invalid"),
        (4, None, "json_no_object"),
        (5, "name", "value_missing"),
        (6, None, "encoding"),
        (7, "id", "value_type"),
        (7, "name", "value_type"),
        (8, None, "column_unknown"),
        (8, "name", "value_missing"),
    ]
    assert reason["lines_more"] is False
    assert "did you mean 'name'?" in reason["lines"][7]["message"]


def test_advice_on_an_unknown_column_is_not_cut_for_a_wide_schema(tmp_path: Path) -> None:
    """The list of the columns is cut instead; it says how many there are."""
    names = [f"amount_in_euro_{number:02d}" for number in range(30)]
    data = b'{"amount_in_eur_00": 1}\n'
    reason = rejected(data, tmp_path, ", ".join(f"{name} BIGINT" for name in names))
    message = reason["lines"][0]["message"]
    assert "amount_in_euro_00, " in message
    assert " and 10 more (did you mean 'amount_in_euro_00'?)" in message
    assert message.endswith("the service adds such columns to the schema")


def test_all_wrong_csv_lines_are_reported(tmp_path: Path) -> None:
    """Rows that are too short and cells that do not fit are reported beside each other."""
    data = b'id,name\n1,a\nx,b\n2\n3,"a\nb"\ny,c\n'
    assert reported(rejected(data, tmp_path, SCHEMA, "csv")) == [
        (3, "id", "value_type"),
        (4, None, "csv_fields"),
        (7, "id", "value_type"),
    ]


def test_what_ends_the_reading_is_reported_with_the_lines_before_it(tmp_path: Path) -> None:
    """A quote that is never closed hides what is behind it, not what is before it."""
    reason = rejected(b'id,name\nx,a\n1,"b\n', tmp_path, SCHEMA, "csv")
    assert reported(reason) == [(2, "id", "value_type"), (3, None, "csv_quote")]
    assert reason["lines_more"] is True


def test_all_wrong_parquet_rows_are_reported(tmp_path: Path) -> None:
    """Rows that do not fit are reported over row groups and columns."""
    table = pa.table({"id": [1, 2**40, 3, 2**41], "name": ["a", "b", None, "d"]})
    data = parquet(table, row_group_size=2)
    assert reported(rejected(data, tmp_path, "id INT, name STRING NOT NULL", "parquet")) == [
        (2, "id", "value_range"),
        (3, "name", "value_missing"),
        (4, "id", "value_range"),
    ]


def test_a_hundred_lines_are_reported_and_that_there_are_more(tmp_path: Path) -> None:
    """A reason is bounded: the first hundred, whatever the file holds."""
    reason = rejected(b'{"id": "x", "name": "%s"}\n' % (b"n" * 500) * 5000, tmp_path, SCHEMA)
    assert [one["line"] for one in reason["lines"]] == list(range(1, 101))
    assert reason["lines_more"] is True
    assert len(json.dumps(reason)) < 100_000


DEVICES = pa.table({"id": [1, 2], "device": ["a", None], "at": [1.5, 2.0]})


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("format_", "data"),
    [
        ("jsonl", b'{"id": 1, "device": "a", "at": 1.5}\n{"id": 2, "at": 2.0}\n'),
        ("csv", b"id,device,at\n1,a,1.5\n2,b,2.0\n"),
        ("parquet", parquet(DEVICES)),
    ],
)
def test_new_columns_are_proposed_with_their_types(
    format_: str, data: bytes, together: bool, tmp_path: Path
) -> None:
    """All that the schema lacks, as it is spelled there, and what admits the file afterwards."""
    batch = FileBatch() if together else ONE_FILE
    reason = rejected(data, tmp_path, "id BIGINT, name STRING", format_, batch=batch)
    assert reason["code"] == "column_unknown"
    assert reason["new_columns"] == ["device STRING", "at DOUBLE"]
    assert "device STRING, at DOUBLE" in reason["message"]
    assert "cbp quarantine add-columns DATAFLOW orders" in reason["message"]
    schema = ", ".join(["id BIGINT, name STRING", *reason["new_columns"]])
    first, _ = accepted(data, tmp_path, schema, format_)
    assert first == {"id": 1, "name": None, "device": "a", "at": 1.5}


def test_nothing_is_proposed_of_a_file_of_another_format(tmp_path: Path) -> None:
    """A guess at another format would name columns that the source's reader cannot give."""
    reason = rejected(b"id,more\nx\n", tmp_path, SCHEMA, "csv")
    assert reason["code"] == "column_unknown"
    assert "new_columns" not in reason


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        ("jsonl", b'{"id": 1, "name": "a", "other": 1}\n'),
        ("csv", b"id,name,other\n1,a,1\n"),
        ("parquet", parquet(pa.table({"id": [1], "name": ["a"], "other": [1]}))),
    ],
)
def test_an_unknown_column_is_refused_unless_the_source_ignores_it(
    format_: str, data: bytes, tmp_path: Path
) -> None:
    """A misspelt name would become nulls; the reason says what to do."""
    reason = rejected(data, tmp_path, SCHEMA, format_)
    assert reason["code"] == "column_unknown"
    assert "ignore" in reason["message"]
    rows = accepted(data, tmp_path, SCHEMA, format_, options={"unknown": "ignore"})
    assert rows == [{"id": 1, "name": "a"}]


def test_unknown_keys_inside_of_a_struct_are_refused(tmp_path: Path) -> None:
    """The same holds at any depth."""
    data, schema = b'{"s": {"a": 1, "b": 2}}\n', "s STRUCT<a: INT>"
    assert rejected(data, tmp_path, schema)["code"] == "value_type"
    assert accepted(data, tmp_path, schema, options={"unknown": "ignore"}) == [{"s": {"a": 1}}]


def test_a_file_with_none_of_the_columns_is_refused_even_so(tmp_path: Path) -> None:
    """Who ignores unknown keys does not want a file of nulls."""
    options = {"unknown": "ignore"}
    reason = rejected(b'{}\n{"URL": 1}\n', tmp_path, "url STRING", options=options)
    assert (reason["code"], reason["line"]) == ("column_missing", 2)
    assert accepted(b'{}\n{"URL": 1}\n{"url": "a"}\n', tmp_path, "url STRING", options=options)
    assert len(accepted(b"{}\n", tmp_path, "url STRING")) == 1


NAIVE = datetime(2024, 2, 29, 12, 0)  # noqa: DTZ001 - that is what is tested
TIMES = [
    ("jsonl", b'{"at": "2024-02-29T12:00:00"}\n'),
    ("jsonl", b'{"at": "2024-02-29 12:00"}\n'),
    ("csv", b"at\n2024-02-29T12:00:00\n"),
    ("parquet", parquet(pa.table({"at": pa.array([NAIVE], pa.timestamp("us"))}))),
    ("parquet", parquet(pa.table({"at": pa.array([NAIVE], pa.timestamp("ns"))}))),
    (
        "parquet",
        parquet(
            pa.table({"at": pa.array([NAIVE], pa.timestamp("ns"))}),
            use_deprecated_int96_timestamps=True,
        ),
    ),
]


@pytest.mark.parametrize(("format_", "data"), TIMES)
def test_a_time_without_a_zone_needs_one_from_its_source(
    format_: str, data: bytes, tmp_path: Path
) -> None:
    """Nobody guesses which moment it is; the reason names the option."""
    reason = rejected(data, tmp_path, AT, format_)
    assert reason["code"] == ("column_type" if format_ == "parquet" else "value_type")
    assert "timezone" in reason["message"]
    for zone, hour in (("UTC", 12), ("+02:00", 10), ("America/New_York", 17)):
        rows = accepted(data, tmp_path, AT, format_, options={"timezone": zone})
        assert rows == [{"at": datetime(2024, 2, 29, hour, tzinfo=UTC)}]


def test_a_time_that_a_zone_has_twice_or_never_is_refused(tmp_path: Path) -> None:
    """Where clocks are changed, an hour comes twice and another never."""
    options = {"timezone": "Europe/Berlin"}
    for text in ("2024-03-31T02:30:00", "2024-10-27T02:30:00"):
        data = json.dumps({"at": text}).encode() + b"\n"
        assert rejected(data, tmp_path, AT, options=options)["code"] == "value_type"
        moment = datetime.fromisoformat(text)
        table = pa.table({"at": pa.array([moment], pa.timestamp("us"))})
        reason = rejected(parquet(table), tmp_path, AT, "parquet", options=options)
        assert (reason["code"], reason["line"]) == ("value_range", 1)


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("csv", {"header": "maybe"}),
        ("csv", {"header": 1}),
        ("csv", {"header": None}),
        ("csv", {"delimiter": ["a"]}),
        ("csv", {"delimiter": ""}),
        ("csv", {"null": "a,b"}),
        ("csv", {"null": 0}),
        ("csv", {"final_newline": "never"}),
        ("jsonl", {"header": "true"}),
        ("jsonl", {"unknown": "yes"}),
        ("jsonl", {"timezone": "Nowhere/City"}),
        ("jsonl", {"timezone": "../../etc/passwd"}),
        ("jsonl", {"timezone": "+99:00"}),
        ("jsonl", {"timezone": "Europe"}),
        ("parquet", {"timezone": 2}),
        ("parquet", {"timezone": {}}),
    ],
)
def test_a_wrong_option_is_refused_with_its_place(format_: str, options: dict[str, Any]) -> None:
    """Every value of every option is checked where a dataflow is, in a document and in code."""
    source = SourceNode("s", Schema.parse("a STRING"), format_, options)
    with pytest.raises(DataflowInvalidError) as caught:
        Dataflow("d", {"s": source}, {}).check()
    assert "option_invalid" in [mistake.code for mistake in caught.value.mistakes]
    document = {
        "name": "d",
        "sources": {"s": {"schema": "a STRING", "format": format_, "options": options}},
        "stages": {},
    }
    with pytest.raises(DataflowInvalidError) as caught:
        dataflow_from_document(document, lambda name, parameters: pytest.fail("no stage"))
    assert any(mistake.where.startswith("sources.s.options") for mistake in caught.value.mistakes)


def test_what_yaml_makes_of_true_and_false_is_taken(tmp_path: Path) -> None:
    """`header: false` without quotes means what it says, and is kept as text."""
    document = {
        "name": "d",
        "sources": {"s": {"schema": "a STRING", "format": "csv", "options": {"header": False}}},
        "stages": {},
    }
    with pytest.raises(DataflowInvalidError) as caught:
        dataflow_from_document(document, lambda name, parameters: pytest.fail("no stage"))
    assert {mistake.code for mistake in caught.value.mistakes} == {"stages_missing"}


def test_the_drop_folder_shows_what_a_producer_has_to_mend(tmp_path: Path) -> None:
    """The claim of a refused file has the same lines as the file beside it in quarantine."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(3) + b"x\ny\n")
    drop.scan()
    (claim,) = drop.store.claim_rows.values()
    assert claim.reason == drop.reasons()[0]
    assert [one["line"] for one in claim.reason["lines"]] == [4, 5]
