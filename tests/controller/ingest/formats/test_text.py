"""The format `text`: every line of a file is one record, whole, in order, and at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.ingest.limits import IngestLimits
from tests.controller.ingest.harness import Drop, accepted, rejected

LINE = "line STRING"
PLACED = "line STRING, file STRING, number BIGINT"
PLACES = {"file_name": "file", "line_number": "number"}


def texts(data: bytes, root: Path, **options: str) -> list[str]:
    return [row["line"] for row in accepted(data, root, LINE, "text", options=options)]


def test_each_line_is_a_record(tmp_path: Path):
    """Empty lines, blanks and characters that other formats give a meaning are text."""
    data = 'a,b\n\n  "x\n{"id": 1}\né漢😀\r\ntab\there\n'.encode()
    expected = ["a,b", "", '  "x', '{"id": 1}', "é漢😀", "tab\there"]
    assert texts(data, tmp_path) == expected


def test_lines_end_with_lf_or_crlf_and_a_mark_is_no_text(tmp_path: Path):
    """One CR before the LF belongs to the line's end; any other is the author's text."""
    assert texts(b"\xef\xbb\xbfa\r\nb\r\r\nc\rd\n", tmp_path) == ["a", "b\r", "c\rd"]


def test_a_record_has_the_name_of_its_file_and_the_number_of_its_line(tmp_path: Path):
    """Numbers go on over blocks and batches, and count from 1 in each file."""
    drop = Drop(
        tmp_path, PLACED, "text", options=PLACES, limits=IngestLimits(batch_rows=7, group_files=2)
    )
    drop.put("a.log", b"".join(b"line %d\n" % i for i in range(1, 101)))
    drop.put(b"\xff.log", b"only\n")
    assert drop.scan().accepted == 2
    rows = [tuple(row.values()) for row in drop.rows()]
    expected: list[tuple[Any, ...]] = [(f"line {i}", "a.log", i) for i in range(1, 101)]
    assert sorted(rows, key=str) == sorted([*expected, ("only", "\\xff.log", 1)], key=str)


def test_the_last_line_needs_its_end_unless_the_source_says_so(tmp_path: Path):
    """A file that was cut inside its last line is not taken as whole."""
    reason = rejected(b"a\nb", tmp_path, LINE, "text")
    assert (reason["code"], reason["line"]) == ("line_end", 2)
    assert texts(b"a\nb", tmp_path, final_newline="optional") == ["a", "b"]
    assert texts(b"", tmp_path) == []


@pytest.mark.parametrize(
    ("data", "options", "rule", "line"),
    [
        pytest.param(b"a\nb\0c\n", {}, "nul_byte", 2, id="NUL"),
        pytest.param(b"a\n\xe9\n", {}, "encoding", 2, id="Latin-1 for UTF-8"),
        pytest.param("a\n".encode("utf-16"), {}, "encoding", 1, id="UTF-16"),
        pytest.param(b"a\n\x81\n", {"encoding": "windows-1252"}, "encoding", 2, id="no character"),
        pytest.param(
            b"\xef\xbb\xbfa\n", {"encoding": "latin-1"}, "encoding", 1, id="UTF-8 for Latin-1"
        ),
        pytest.param(b"a\n" + b"x" * 3000 + b"\n", {}, "line_too_long", 2, id="long line"),
        pytest.param(b"PAR1 and more\n", {}, "format_mismatch", None, id="Parquet"),
    ],
)
def test_what_is_no_text_is_refused_at_its_line(
    data: bytes, options: dict[str, str], rule: str, line: int | None, tmp_path: Path
):
    """No character is guessed, replaced or left out."""
    limits = IngestLimits(line_bytes_max=2000)
    reason = rejected(data, tmp_path, LINE, "text", options=options, limits=limits)
    assert (reason["code"], reason["line"]) == (rule, line)


@pytest.mark.parametrize("encoding", ["latin-1", "windows-1252", "iso-8859-15"])
def test_a_declared_encoding_is_used(encoding: str, tmp_path: Path):
    """The same text comes from each encoding; CSV has the option too."""
    data = "é\nÜ\n".encode(encoding)
    assert texts(data, tmp_path, encoding=encoding) == ["é", "Ü"]
    rows = accepted(b"line\n" + data, tmp_path, LINE, "csv", options={"encoding": encoding})
    assert [row["line"] for row in rows] == ["é", "Ü"]


def test_a_line_number_that_its_column_cannot_hold_is_a_mistake_of_the_line():
    """An INT ends at 2,147,483,647; no number wraps, and nothing fails without a reason."""
    from cbp.engine.columnar.arrow_types import arrow_schema
    from cbp.model.dataflow.source_options import LineOptions
    from cbp.model.flow.schema import Schema
    from controller.ingest.formats.bad_lines import BadLines
    from controller.ingest.formats.columns import OriginColumns

    schema, bad = Schema.parse("number INT"), BadLines()
    origin = OriginColumns(schema, LineOptions(line_number="number"), "f")
    assert origin.batch({}, [2**31 - 1, 2**31], arrow_schema(schema), bad) is None
    assert [(one.rule, one.line) for one in bad.error(more=False).lines] == [("value_type", 2**31)]
