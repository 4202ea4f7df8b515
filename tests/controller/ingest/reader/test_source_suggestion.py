"""What `cbp infer` suggests is read by the service's own reader, and what is doubtful is shown."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from controller.cli.main import app
from controller.cli.records.infer import declaration, source_name
from controller.ingest.reader.source_suggestion import Suggestion, suggest_source
from tests.controller.ingest.formats.avro_files import file, number, text
from tests.controller.ingest.harness import accepted

LOG = '::1 - - [29/Feb/2024:00:00:00 +0000] "GET / HTTP/1.0" 304 -'


def suggest(data: bytes, root: Path, records: int = 10_000) -> Suggestion:
    path = root / "file"
    path.write_bytes(data)
    return suggest_source(path, records=records)


def parquet() -> bytes:
    sink = io.BytesIO()
    pl.DataFrame({"id": [1, None], "s": ["a", "b"], "l": [[1.5], []]}).write_parquet(sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "format_", "schema", "options"),
    [
        pytest.param(
            b'{"id": 1, "s": "a", "t": "2024-02-29T12:00:00Z"}\n{"id": 2, "x": 0.5, "s": null}\n',
            "jsonl",
            "id BIGINT NOT NULL, s STRING, t TIMESTAMP, x DOUBLE",
            {},
            id="jsonl",
        ),
        pytest.param(
            b'{"a": [1], "o": {"x": true}, "d": "2024-02-29", "m": {"a b": 1}}\n',
            "jsonl",
            "a ARRAY<BIGINT> NOT NULL, o STRUCT<x: BOOLEAN> NOT NULL, d DATE NOT NULL, "
            "m MAP<STRING, BIGINT> NOT NULL",
            {},
            id="nested",
        ),
        pytest.param(
            gzip.compress(b"id;name;day\n1;a;2024-02-29\n2;;2024-03-01\n"),
            "csv",
            "id BIGINT NOT NULL, name STRING, day DATE NOT NULL",
            {"delimiter": ";"},
            id="csv, packed",
        ),
        pytest.param(
            b"1,2.5\n3,4\n",
            "csv",
            "c1 BIGINT NOT NULL, c2 DOUBLE NOT NULL",
            {"header": "false"},
            id="no header",
        ),
        pytest.param(
            b"t,n\n2024-02-29 12:00:00,1", "csv", "t TIMESTAMP NOT NULL, n BIGINT NOT NULL",
            {"timezone": "UTC", "final_newline": "optional"},
            id="no zone, no last line end",
        ),
        pytest.param(
            "naïve text\n".encode("windows-1252"), "text", "line STRING NOT NULL",
            {"encoding": "windows-1252"},
            id="text",
        ),
        pytest.param(
            parquet(), "parquet", "id BIGINT, s STRING, l ARRAY<DOUBLE>", {}, id="parquet"
        ),
        pytest.param(
            file({"id": "long", "s": ["null", "string"]}, [number(1) + number(1) + text("x")]),
            "avro",
            "id BIGINT NOT NULL, s STRING",
            {},
            id="avro",
        ),
    ],
)  # fmt: skip
def test_a_suggestion_takes_the_file_in(
    data: bytes, format_: str, schema: str, options: dict[str, str], tmp_path: Path
) -> None:
    """The types are the narrowest that hold the sample, and a source so declared accepts it."""
    made = suggest(data, tmp_path)
    assert (made.format, made.schema, dict(made.options)) == (format_, schema, options)
    assert not [doubt for doubt in made.doubts if "refused" in doubt]
    assert accepted(data, tmp_path, schema, format_, options=options)


def test_an_access_log_is_known_by_its_lines(tmp_path: Path) -> None:
    """All of its columns, in both layouts; other lines make it text."""
    made = suggest(f"{LOG}\n".encode() * 3, tmp_path)
    assert (made.format, dict(made.options)) == ("access_log", {"layout": "common"})
    made = suggest(f'{LOG} "-" "curl"\n'.encode(), tmp_path)
    assert (made.format, dict(made.options)) == ("access_log", {})
    assert "time TIMESTAMP NOT NULL" in made.schema
    assert suggest(f"{LOG}\noops\n".encode(), tmp_path).format == "text"


@pytest.mark.parametrize(
    ("record", "head", "format_"),
    [(LOG, "", "access_log"), (f'{LOG} "-" "x"', "", "access_log"), ('{"a": 1}', "", "jsonl"),
     ("1,x", "n,s\n", "csv")],
)  # fmt: skip
@pytest.mark.parametrize("first", [2, 50])
def test_a_few_broken_lines_do_not_change_the_format(
    record: str, head: str, format_: str, first: int, tmp_path: Path
) -> None:
    """A comment counts them with the first one's line, and the policy takes in the others."""
    lines = [*head.splitlines(), *[record] * 99]
    for at in (first - 1, 70, 80):
        lines[at] = "oops"
    data = "".join(f"{line}\n" for line in lines).encode()
    made = suggest(data, tmp_path)
    assert (made.format, made.misfits) == (format_, 3)
    (doubt,) = [one for one in made.doubts if "oops" not in one and "line" in one]
    assert "3 of 99 lines are no" in doubt
    assert f"the first is line {first};" in doubt
    assert "on_bad_records: " in declaration("a", made.to_json(), "file")
    policy = made.to_json()["on_bad_records"]
    schema, options = made.schema, made.options
    assert accepted(data, tmp_path, schema, format_, options=options, on_bad_records=policy)


def test_many_broken_lines_are_another_format(tmp_path: Path) -> None:
    """More than one line in twenty: then nothing is put aside."""
    for broken, format_ in ((5, "access_log"), (6, "text")):
        made = suggest(f"{LOG}\n".encode() * (100 - broken) + b"oops\n" * broken, tmp_path)
        assert (made.format, bool(made.misfits)) == (format_, format_ == "access_log")
    made = suggest(f"{LOG}\n".encode() * 1_900 + b"oops\n" * 60, tmp_path)
    assert made.to_json()["on_bad_records"] == {"reject_rows": {"count": 1000, "share": 1.0}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1}\n{"a": "x"}\n', "several kinds"),
        (b'{"a": null}\n', "null or empty"),
        (b'{"a": 1}\n{"a": 0.5}\n', "are whole numbers"),
        (b'{"a": 1}\n{oops\n', "the file would be refused: line 2"),
        (b'{"a": 1, "b c": 2}\n', "is not a valid column name"),
        (b"zip,n\n01234,1\n", "begin with 0"),
        (b"a,b\n1,0\n0,1\n", "only the values 0 and 1"),
        (b"day,n\n29/02/2024,1\n", "look like dates"),
        (b"day,n\n2024-02-29T10:00:00,1\n", "no zone"),
        (b"1,2\n", "does not look like column names"),
        (b"", "no records"),
    ],
)
def test_what_is_doubtful_is_reported(data: bytes, words: str, tmp_path: Path) -> None:
    """Each guess that could be another one has a sentence."""
    assert any(words in doubt for doubt in suggest(data, tmp_path).to_json()["doubts"])


def test_a_sample_has_limits(tmp_path: Path) -> None:
    """Most records that are looked at; the suggestion says that there are more."""
    made = suggest(b'{"a": 1}\n' * 100 + b'{"a": "x"}\n', tmp_path, records=100)
    assert (made.schema, made.records, made.whole) == ("a BIGINT NOT NULL", 100, False)
    line = json.dumps({"a": "x" * 1000}).encode() + b"\n"
    made = suggest(line * 10_000, tmp_path, records=1_000_000)
    assert made.records < 10_000
    assert not made.whole


def test_the_command_prints_what_a_document_takes(tmp_path: Path) -> None:
    """YAML to paste, with doubts as comments, and JSON of the same."""
    path = tmp_path / "2026 Visits.csv.gz"
    path.write_bytes(gzip.compress(b'id,"b c"\n1,01\n'))
    made: Any = json.loads(CliRunner().invoke(app, ["infer", str(path), "--json"]).output)
    assert made["name"] == source_name(path) == "s_2026_visits"
    printed = CliRunner().invoke(app, ["infer", str(path), "--name", "visits"]).output
    assert printed == declaration("visits", made, path.name)
    assert "# check: " in printed
    document = yaml.safe_load(printed) | {
        "name": "d", "stages": {"count": {"translator": "t", "inputs": {}}},
    }  # fmt: skip
    assert document["sources"]["visits"]["options"]["unknown"] == "ignore"
