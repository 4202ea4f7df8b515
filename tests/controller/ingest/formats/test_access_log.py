"""The format `access_log`: lines of Apache and NGINX as typed columns, or refused with the part."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.controller.ingest.harness import accepted, rejected

SCHEMA = (
    "host STRING NOT NULL, identity STRING, user STRING, time TIMESTAMP NOT NULL, request STRING, "
    "method STRING, path STRING, protocol STRING, status INT NOT NULL, bytes BIGINT, "
    "referer STRING, user_agent STRING"
)
COMMON = "host STRING, time TIMESTAMP, path STRING, status SMALLINT, bytes BIGINT"
LINE = (
    '203.0.113.7 - ann b. [10/Oct/2026:13:55:36 +0200] "GET /a?b=c HTTP/1.1" 200 2326 '
    '"https://example.org/" "Mozilla/5.0 (\\"x\\")"\n'
)
EMPTY = '::1 - - [29/Feb/2024:00:00:00 +0000] "-" 408 - "-" "-"\n'
SCANNER = '::1 - - [29/Feb/2024:00:00:00 -0330] "\\x16\\x03\\x01" 400 157 "-" "-"\n'
SHORT = '::1 - - [29/Feb/2024:00:00:00 +0000] "GET / HTTP/1.0" 304 -\n'


def rows(data: str, root: Path, schema: str = SCHEMA, **options: str) -> list[dict[str, Any]]:
    return accepted(data.encode(), root, schema, "access_log", options=options)


def test_a_combined_line_is_typed(tmp_path: Path):
    """Times are moments, numbers are numbers, escapes stay as they were logged."""
    (row,) = rows(LINE, tmp_path)
    assert row == {
        "host": "203.0.113.7",
        "identity": None,
        "user": "ann b.",
        "time": datetime(2026, 10, 10, 11, 55, 36, tzinfo=UTC),
        "request": "GET /a?b=c HTTP/1.1",
        "method": "GET",
        "path": "/a?b=c",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": 2326,
        "referer": "https://example.org/",
        "user_agent": 'Mozilla/5.0 (\\"x\\")',
    }


def test_a_request_that_is_none_of_http_is_a_record(tmp_path: Path):
    """A time-out and a scanner's bytes are in every log; only what is not there is null."""
    first, second = rows(EMPTY + "\r\n" + SCANNER, tmp_path)
    assert (first["request"], first["method"], first["status"], first["bytes"]) == (
        *(None, None),
        *(408, None),
    )
    assert (second["request"], second["path"]) == ("\\x16\\x03\\x01", None)
    assert second["time"] == datetime(2024, 2, 29, 3, 30, tzinfo=UTC)


def test_a_path_with_spaces_is_whole(tmp_path: Path):
    """NGINX logs what the client sent, encoded or not."""
    line = LINE.replace("/a?b=c", "/a b c")
    assert rows(line, tmp_path, "method STRING, path STRING, protocol STRING") == [
        {"method": "GET", "path": "/a b c", "protocol": "HTTP/1.1"}
    ]


def test_the_common_layout_and_only_some_columns(tmp_path: Path):
    """A source declares the columns that it needs, and its place if it wants it."""
    schema = f"{COMMON}, number BIGINT"
    (row,) = rows(SHORT, tmp_path, schema, layout="common", line_number="number")
    assert list(row.values()) == ["::1", datetime(2024, 2, 29, tzinfo=UTC), "/", 304, None, 1]


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        pytest.param(SHORT, "access_log_invalid", "layout: common", id="common layout"),
        pytest.param(LINE[:60] + "\n", "access_log_invalid", "a request in quotes", id="cut"),
        pytest.param(
            LINE.replace("200 2326", "2OO 2326"), "access_log_invalid", "a status", id="status"
        ),
        pytest.param(LINE[:-1] + ' "-"\n', "access_log_invalid", "the end of the line", id="more"),
        pytest.param(
            LINE.replace("10/Oct", "31/Feb"),
            "value_type",
            "a valid date and time",
            id="no such day",
        ),
        pytest.param(LINE.replace("10/Oct", "10/Okt"), "value_type", "10/Okt", id="month"),
        pytest.param(LINE.replace(" 2326", " " + "9" * 19), "value_type", "BIGINT", id="size"),
        pytest.param(LINE.replace("203.0.113.7", "-"), "value_missing", "STRING", id="no host"),
        pytest.param("GET / HTTP/1.1\n", "access_log_invalid", "a user", id="another log"),
    ],
)
def test_a_wrong_line_says_which_part_was_expected(
    line: str, rule: str, words: str, tmp_path: Path
):
    """One wrong line among many is found with its number, and nothing is read in part."""
    data = (LINE * 1500 + line + LINE).encode()
    reason = rejected(data, tmp_path, SCHEMA, "access_log")
    assert (reason["code"], reason["line"]) == (rule, 1501)
    assert words in reason["message"]


def test_a_line_is_never_matched_in_quadratic_time(tmp_path: Path):
    """Quotes, brackets and escapes in any number end at once."""
    for part in ("[", '"', "\\", " ", "- ", '\\"', "[10/Oct/2026:13:55:36 +0200] "):
        reason = rejected((part * 60_000 + "x\n").encode(), tmp_path, SCHEMA, "access_log")
        assert reason["code"] == "access_log_invalid"


def test_a_log_that_was_cut_is_refused(tmp_path: Path):
    """A last line that is whole by its form may still be cut in its last number."""
    cut = SHORT.replace(" -\n", " 23")
    reason = rejected(cut.encode(), tmp_path, COMMON, "access_log", options={"layout": "common"})
    assert reason["code"] == "line_end"
