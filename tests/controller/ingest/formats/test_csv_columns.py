"""Records that Arrow parses give what they give one by one, or are left to be read one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cbp.model.dataflow.source_options import ReadOptions
from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import Reading
from controller.ingest.formats.columns import BatchBuilder
from controller.ingest.formats.csv_records import CsvColumns, read_csv
from controller.ingest.formats.text import TextBlock
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from tests.sampling import examples

SCHEMA = Schema.parse(
    "s STRING, n BIGINT, d DOUBLE, f FLOAT, m DECIMAL(9,2), b BOOLEAN, day DATE, at TIMESTAMP"
)
HEADER = ",".join(SCHEMA.names)
SOUND = [
    ["x", '"x"', '""', '"a,b"', '"a""b"', '""""', '"l\nm"', "é", " s "],
    ["0", "-0", "007", "+1", "9223372036854775807", '"5"', ""],
    ["1.5", "7", ".5", "1.", "-0", "9007199254740993", "1e0000005", "NaN"],
    ["0.1", "16777217", "1.00000017881393432617187499", "-Infinity"],
    ["1", "-1.50", "1.500", "001", "1e2", "-0"],
    ["true", "FALSE", ""],
    ["2024-02-29", "0999-12-31"],
    ["2024-02-29T01:02:03.000004Z", "2024-02-29 01:02:03Z", "2024-02-29T01:02:03+01:00"],
]
ODD = [
    ['"x', '"x"y', 'x"y', "a\rb", '"a\rb"', "\ufeff", "", "NA", '"NA"'],
    ["9223372036854775808", " 1", "0x1f", "1_0", "-", "1-1", "١", "1.0"],
    ["1e400", "inf", "nan", " 1", "1e", "1.5.2", "-", ".", "9" * 400],
    ["3.5e38", "1e39", "-inf", "9" * 40],
    ["1.005", "12345678.9", "0e1000000000000000000", "1-1", "."],
    ["1", "t", " true"],
    ["2023-02-29", "0000-01-01", "2024-2-1", "2024-02-29T00:00"],
    ["2024-02-29", "2024-02-29T01:02:03.0000001Z", "2024-02-29T01:02:03", "0000-01-01T00:00:00Z"],
]
OPTIONS = [{}, {"timezone": "UTC"}, {"null": "NA"}, {"quote": ""}, {"final_newline": "optional"}]


@st.composite
def records(draw: st.DrawFn) -> str:
    """Return one record; at most one of its cells, or its number of cells, may be odd."""
    cells = [draw(st.sampled_from(values)) for values in SOUND]
    at = draw(st.integers(0, 2 * len(cells)))
    if at < len(cells):
        cells[at] = draw(st.sampled_from(ODD[at]))
    elif draw(st.integers(0, 9)) == 0:
        cells = draw(st.sampled_from([cells[1:], [*cells, "x"], [""], ["\r"]]))
    return ",".join(cells)


def outcome(blocks: list[TextBlock], schema: Schema, options: dict[str, str], fast: int) -> Any:
    """Return records and remarks of a file, or what is wrong with it."""
    limits = IngestLimits(batch_rows=2, fast_block_bytes_min=fast)
    reading = Reading(schema, ReadOptions.parse("csv", options), limits)
    bad, rows = reading.bad, list[str]()
    try:
        for batch in read_csv(blocks, reading):
            assert batch.schema == BatchBuilder(schema, text=True).schema
            rows += map(repr, batch.to_pylist())  # of 0.0 and -0.0 differs
        bad.end()
    except FileRejectedError as error:
        return error.arguments()
    return rows, reading.notes.to_json()


def cut(text: str, places: list[int]) -> list[TextBlock]:
    """Return lines as blocks that are cut behind some of them."""
    every = text.split("\n")
    open_end = every[-1] != ""
    every = every if open_end else every[:-1]
    ends = sorted({min(place, len(every)) for place in places} | {0, len(every)})
    return [
        TextBlock(first + 1, "\n".join(every[first:last]), not open_end or last < len(every))
        for first, last in pairwise(ends)
    ]


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(records(), min_size=1, max_size=4),
    st.sampled_from(["\n", "\n", "\r\n", "\n\n"]),
    st.sampled_from(OPTIONS),
    st.lists(st.integers(1, 5), max_size=2),
)
@example(["x,1,,,,,,", "\ufeffx,1,,,,,,"], "\n", {}, [2])
@example(['"x\r\ny",1,,,,,,'], "\r\n", {}, [])
@example(['"x",1,,,,,,', 'x"",1,,,,,,'], "\n", {}, [])
@example(['""",""",1,,,,,,', '"""",1,,,,,,'], "\n", {}, [])
@example(['"a"",1,,,,,,', '"b,1,,,,,,'], "\n", {}, [])
def test_a_file_is_the_same_by_arrow_and_record_by_record(
    rows: list[str], end: str, options: dict[str, str], places: list[int]
) -> None:
    """The same records and remarks, or the same mistakes, whatever lines are a block together."""
    blocks = cut("".join(row + end for row in (HEADER, *rows)), places)
    assert outcome(blocks, SCHEMA, options, 1) == outcome(blocks, SCHEMA, options, 1 << 30)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.text('a,"\n\r \ufeffé', max_size=12),
    st.sampled_from(["c STRING", "c STRING, o STRING"]),
    st.sampled_from([{"header": "false"}, {"header": "false", "final_newline": "optional"}]),
    st.lists(st.integers(1, 5), max_size=2),
)
def test_any_text_is_the_same_by_arrow_and_record_by_record(
    text: str, schema: str, options: dict[str, str], places: list[int]
) -> None:
    """Quotes, line ends and blank lines wherever they stand, in one column and in two."""
    blocks = cut(text, places)
    parsed = Schema.parse(schema)
    assert outcome(blocks, parsed, options, 1) == outcome(blocks, parsed, options, 1 << 30)


def is_parsed(text: str, options: dict[str, str] | None = None, schema: Schema = SCHEMA) -> bool:
    """Return whether Arrow's parser gives the records of some lines."""
    read = ReadOptions.parse("csv", options or {})
    builder = BatchBuilder(schema, read.rules, text=True)
    places = list(range(len(schema)))
    return CsvColumns(read.csv, builder, places, len(schema)).batch(text) is not None


def test_sound_records_are_parsed_by_arrow() -> None:
    """Otherwise the comparison would compare nothing: of each column sound values are taken."""
    for at, values in enumerate(SOUND):
        for value in values:
            text = "," * at + value + "," * (len(SOUND) - 1 - at)
            assert is_parsed(f"{text}\n{text}"), text
            assert is_parsed(f"{text}\r\n{text}\r"), text


TWO = Schema.parse("c STRING, o STRING")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        pytest.param('"a"b,c', {}, id="text behind a closing quote"),
        pytest.param('a"b,c"', {}, id="a quote inside of an unquoted cell"),
        pytest.param('a,"b', {}, id="an open quote"),
        pytest.param("a,b\rc,d", {}, id="CR without LF"),
        pytest.param('a,"b\r"', {}, id="CR without LF in quotes"),
        pytest.param("a,b\n\nc,d", {}, id="a blank line"),
        pytest.param("\r\na,b", {}, id="a blank line first"),
        pytest.param("a,b\n", {}, id="a blank line last"),
        pytest.param("\ufeffa,b", {}, id="a mark"),
        pytest.param("a;b", {}, id="another width"),
        pytest.param("aéb", {"delimiter": "é"}, id="a delimiter beyond ASCII"),
        pytest.param("éaé,b", {"quote": "é"}, id="a quote beyond ASCII"),
    ],
)
def test_what_arrow_cannot_promise_is_read_record_by_record(
    text: str, options: dict[str, str]
) -> None:
    """Arrow takes some of these, and would give other records than we do."""
    assert not is_parsed(text, options, TWO)


@pytest.mark.parametrize("column", range(1, len(ODD)))
def test_what_is_no_value_is_read_record_by_record(column: int) -> None:
    """Arrow takes some of these for a value of the type."""
    for value in ODD[column]:
        assert not is_parsed("," * column + value + "," * (len(SOUND) - 1 - column)), value


def test_a_wrong_record_behind_large_blocks_is_reported_by_its_line() -> None:
    """Arrow took the blocks before it; the block with the record is read record by record."""
    sound = [f"text {n},{n}" for n in range(2_000)]
    blocks = [
        TextBlock(1, "\n".join(["s,n", *sound])),
        TextBlock(2_002, "\n".join([*sound, "x,y", *sound])),
    ]
    schema = Schema.parse("n BIGINT, s STRING")
    reading = Reading(schema, ReadOptions(), IngestLimits(batch_rows=1_500))
    bad, batches = reading.bad, read_csv(blocks, reading)
    assert [batch.num_rows for batch in (next(batches), next(batches))] == [1_500, 500]

    def read_rest() -> None:
        list(batches)
        bad.end()

    with pytest.raises(FileRejectedError) as caught:
        read_rest()
    assert (caught.value.line, caught.value.column) == (4_002, "n")
