"""Lines that Arrow parses give what they give one by one, or are left to be parsed one by one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cbp.model.flow.schema import Schema
from cbp.model.source.options import STRICT, ReadOptions, ValueRules
from controller.ingest.formats.bad_lines import Notes, Reading
from controller.ingest.formats.columns import BatchBuilder
from controller.ingest.formats.jsonl import JsonColumns, read_jsonl
from controller.ingest.formats.text import TextBlock
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from tests.sampling import examples

SCHEMA = Schema.parse(
    "s STRING, n BIGINT, i TINYINT, d DOUBLE, f FLOAT, m DECIMAL(9,2), b BOOLEAN, day DATE, "
    "at TIMESTAMP, raw BINARY, a ARRAY<DOUBLE>, t STRUCT<x: INT, y: STRING>, k INT NOT NULL"
)
IGNORE = ValueRules(ignore_unknown=True)
SOUND = {
    "s": ['"x"', '""', '"\\u00e9\\ud83d\\ude00"', '"\\u0000"', '"}{,[\\n"', '"}\\n{"'],
    "n": ["0", "-0", "9223372036854775807"],
    "i": ["127", "-128"],
    "d": ["1.5", "7", "9007199254740993", "1e-400", "5e-324", "1E5", "0.1"],
    "f": ["1.5", "0.1", "7", "16777217", "1.00000017881393432617187499", "1e-46"],
    "m": ["1", "1.5", "-1.50", '"2.25"', '"-3"', "1e2", "1234567.89", "0.10", '"0e-100000"'],
    "b": ["true", "false"],
    "day": ['"2024-02-29"', '"0999-12-31"'],
    "at": [
        '"2024-02-29T01:02:03.000004Z"',
        '"2024-02-29T01:02:03+01:00"',
        '"2024-02-29T01:02Z"',
        '"0001-01-01T00:00:00Z"',
    ],
    "raw": ['"YQ=="', '""'],
    "a": ["[]", "[1, 2.5, null]", "[1e3]"],
    "t": ["{}", '{"x": 1, "y": "q"}', '{"y":null}'],
    "k": ["1", "-2147483648"],
}
ODD = {
    "s": ['"\\ud800"', '"\\ude00"', '"a\tb"', "1", "{}", '{"s":"x"}'],
    "n": ["9223372036854775808", "1.0", "1e2", '"5"', "01", "+1", "1" * 5000],
    "i": ["128", "true", "1.5"],
    "d": ["-0", "-0.0", "1e400", "NaN", "-Infinity", '"NaN"', '"1"', "[1]", "1."],
    "f": ["-0", "-0.0", "3.5e38", "1e39", "NaN", '"Infinity"'],
    "m": [
        *("1.005", "12345678.9", '"1e0000002"', "1e0000002", '"0e100000"', f'"1e{10**18}"'),
        *('" 1"', '"NaN"', '"0x1"', '""'),
        *('"1e-2"', '"+1"', '".5"', '"1."', "-0", "NaN", '"١"'),
    ],
    "b": ["0", '"true"', "True"],
    "day": ['"2023-02-29"', '"0000-01-01"', '"2024-2-1"', "20240201", '"2024-02-29T00:00"'],
    "at": ['"2024-02-29 01:02:03"', '"2024-02-29"', '"2024-02-29T01:02:03.0000001Z"', "0"],
    "raw": ['"YQ"', '"é"', "1"],
    "a": ["[-0]", "[-0.0]", "[NaN]", "[[1]]", '["1"]', "1", "{}", "[1,]"],
    "t": ['{"x": 1, "x": 2}', '{"z": 1}', '{"x": 1.5}', "[]", '{"y":{"x":1}}'],
    "k": ["null", "2147483648"],
}
VALUES = {name: [*SOUND[name], *(["null"] if name != "k" else []), *ODD[name]] for name in SOUND}
UNKNOWN = ["1", '"x"', "null", "NaN", "-Infinity", '{"u": 1, "u": 2}', "[1]", "1e400", '"\\ud800"']
FIRST = st.sampled_from([("k", "1")] * 9 + [("k", "null"), ("unknown", "1")])
PAIRS = st.one_of(
    *(
        st.tuples(st.just(name), st.one_of(st.sampled_from(SOUND[name]), st.sampled_from(values)))
        for name, values in VALUES.items()
        if name != "k"
    ),
    st.tuples(st.just("unknown"), st.sampled_from(UNKNOWN)),
)
SPACE = st.sampled_from(["", "", "", " ", "\t", "\r"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return one line: an object whose values may be odd, or whose keys stand twice."""
    space = draw(SPACE)
    pairs = [draw(FIRST), *draw(st.lists(PAIRS, max_size=2))]
    end = draw(st.sampled_from([*["}"] * 14, "}\r", "", "},", "} ", '}{"k":1}', "}\n"]))
    inside = ",".join(f'"{name}"{space}:{value}' for name, value in pairs)
    return f"{{{space}{inside}{end}"


def columns(rules: ValueRules = STRICT, notes: Notes | None = None) -> JsonColumns:
    builder = BatchBuilder(SCHEMA, rules, text=False)
    reading = Reading(SCHEMA, ReadOptions(rules=rules), IngestLimits(), notes or Notes())
    return JsonColumns(reading, builder)


def is_parsed(text: str, rules: ValueRules = STRICT) -> bool:
    """Return whether Arrow's parser gives the records of some lines."""
    return columns(rules).batch(text, text.count("\n") + 1) is not None


def outcome(blocks: list[TextBlock], rules: ValueRules, fast_block_bytes_min: int) -> Any:
    """Return records and remarks of a file, or what is wrong with it."""
    limits = IngestLimits(batch_rows=2, fast_block_bytes_min=fast_block_bytes_min)
    reading = Reading(SCHEMA, ReadOptions(rules=rules), limits)
    bad, rows = reading.bad, list[str]()
    try:
        for batch in read_jsonl(blocks, reading):
            assert batch.schema == BatchBuilder(SCHEMA, text=False).schema
            rows += map(repr, batch.to_pylist())  # of 0.0 and -0.0 differs
        bad.end()
    except FileRejectedError as error:
        return error.arguments()
    return rows, reading.notes.to_json()


def cut(text: str, places: list[int]) -> list[TextBlock]:
    """Return lines as blocks that are cut behind some of them."""
    every = text.split("\n")
    ends = sorted({min(place, len(every)) for place in places} | {0, len(every)})
    return [TextBlock(first + 1, "\n".join(every[first:last])) for first, last in pairwise(ends)]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(lines(), min_size=1, max_size=5).map("\n".join),
    st.sampled_from([STRICT, IGNORE]),
    st.lists(st.integers(1, 5), max_size=2),
)
@example('{"k":1,"s":null,"\\u0073":"x"}', STRICT, [])
@example('{"k":1}{"k":1}\n{"k":1}', STRICT, [])
@example('{"k":1}\n\n{"k":1}', STRICT, [])
@example('{"k":1}{"k":2}\n\n{"k":3}', STRICT, [])
@example('{"k":1,"s":"}\n{"}', STRICT, [])
@example('{"k":1,"s":{"s":"x"}\n{"k":2}}', STRICT, [])
@example('{"k":1,"t":{}\n{"k":2}', STRICT, [])
@example('{"k":1,"t":{"x":1}\r\n{"k":2}}', STRICT, [])
@example('{"k":1,"a":[1}\n{"k":2]}', STRICT, [])
@example('{"k":1,"u":{"v":1}}\n{"k":1}', IGNORE, [])
@example('{"k":1,"u":"[{"}\n{"k":1,"u":1}', IGNORE, [])
@example('{"u":1}\n{"k":1}', IGNORE, [1])
@example('{"u":1}\n{"v":1}', IGNORE, [])
@example("{}\n{ }", STRICT, [])
@example('{"k":1}\r\n{"k":2}\r', STRICT, [])
@example('{"k":1,"s":"\r\n"}', STRICT, [])
def test_a_file_is_the_same_by_arrow_and_line_by_line(
    text: str, rules: ValueRules, places: list[int]
) -> None:
    """The same records and remarks, or the same mistakes, whatever lines are a block together."""
    blocks = cut(text, places)
    assert outcome(blocks, rules, 1) == outcome(blocks, rules, 1 << 30)


def test_sound_lines_are_parsed_by_arrow() -> None:
    """Otherwise the comparison would compare nothing: of each column sound values are taken."""
    for name, values in SOUND.items():
        for value in [*values, *(["null"] if name != "k" else [])]:
            text = f'{{"k" : 1,"{name}":{value}}}' if name != "k" else f'{{"k":{value}}}'
            assert is_parsed(f"{text}\n{text}"), text
            assert is_parsed(f"{text}\r\n{text}\r"), text
    notes = Notes()
    assert columns(IGNORE, notes).batch('{"k":1,"u":"x"}\n{"v":2,"k":3}', 2) is not None
    assert notes.to_json() == {"ignored_columns": ["u", "v"]}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param('{"k":1}{"k":2}\n{"k":3}', STRICT, id="two objects on a line"),
        pytest.param('{"k":1,\n"n":2}', STRICT, id="an object over two lines"),
        pytest.param('{"k":1}\n\n{"k":2}', STRICT, id="a blank line"),
        pytest.param('{"k":1,"k":2}', STRICT, id="a duplicate key"),
        pytest.param('{"k":1,"t":{"x":1,"x":2}}', STRICT, id="a duplicate key inside"),
        pytest.param('{"k":1,"d":NaN}', STRICT, id="NaN"),
        pytest.param('{"k":1,"a":[-Infinity]}', STRICT, id="infinity inside"),
        pytest.param('{"k":1,"u":NaN}', IGNORE, id="NaN that is ignored"),
        pytest.param('{"k":1,"d":-0}', STRICT, id="a zero with a sign"),
        pytest.param('{"k":1,"m":12345678.9}', STRICT, id="a decimal without room"),
        pytest.param('{"k":1,"u":{"v":1,"v":2}}', IGNORE, id="a duplicate key in what is ignored"),
        pytest.param('{"k":1,"u":' + "[" * 9 + "]" * 9 + "}", IGNORE, id="an array is ignored"),
        pytest.param('{"u":1}', IGNORE, id="no column at all"),
        pytest.param('{"n":1}', STRICT, id="a column that is required is missing"),
    ],
)
def test_what_arrow_cannot_promise_is_read_line_by_line(text: str, rules: ValueRules) -> None:
    """Arrow takes some of these, and would give other records than we do."""
    assert not is_parsed(text, rules)


@pytest.mark.parametrize("type_", ["MAP<STRING, INT>", "ARRAY<DATE>", "STRUCT<x: DECIMAL(3,1)>"])
def test_some_types_are_read_line_by_line(type_: str) -> None:
    """Arrow reads a map from pairs, and these values inside of others by other rules than ours."""
    schema = Schema.parse(f"k INT, c {type_}")
    builder = BatchBuilder(schema, text=False)
    reading = Reading(schema, ReadOptions(), IngestLimits())
    assert JsonColumns(reading, builder).batch('{"k":1}', 1) is None


@pytest.mark.parametrize("value", ['"x"', "NaN", "1.5"])
def test_a_wrong_line_behind_large_blocks_is_reported_by_its_number(value: str) -> None:
    """Arrow took the blocks before it; the block with the line is parsed line by line."""
    sound = [json.dumps({"k": n, "s": f"text {n}"}) for n in range(2_000)]
    wrong = [*sound, f'{{"k":{value}}}', *sound]
    blocks = [TextBlock(1, "\n".join(sound)), TextBlock(2_001, "\n".join(wrong))]
    reading = Reading(SCHEMA, ReadOptions(), IngestLimits(batch_rows=1_500))
    bad, batches = reading.bad, read_jsonl(blocks, reading)
    assert [batch.num_rows for batch in (next(batches), next(batches))] == [1_500, 500]

    def read_rest() -> None:
        list(batches)
        bad.end()

    with pytest.raises(FileRejectedError) as caught:
        read_rest()
    assert caught.value.line == 4_001
