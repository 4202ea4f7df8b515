"""Lines that are parsed together give what they give one by one: records, or the same mistakes."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cbp.model.dataflow.source_options import STRICT
from cbp.model.flow.schema import Schema
from controller.ingest.formats import jsonl
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.lines import TextBlock
from controller.ingest.formats.notes import Notes
from controller.ingest.rejection import FileRejectedError

SCHEMA = Schema.parse("a BIGINT, b STRING, c DECIMAL(9, 2)")

# What must not be taken for a line of its own, for the same key, or for a brace of an object.
PIECES = st.sampled_from(
    [
        *("{", "}", "[", "]", ",", '"', ":", " ", "\t", "\r", "\\", '\\"', "1", "-", "1.5", "NaN"),
        *("null", '"a"', '"b"', '"a":', '"a" :', '"b":"x"', '"a":1', '"c":1.25', '"\\u0061":'),
        *('"{', '}"', "},{"),
    ]
)
ODD = st.lists(PIECES, max_size=8).map("".join)
PLAIN = st.fixed_dictionaries(
    {}, optional={"a": st.integers(), "b": st.text(alphabet='x:{}" ,\\\n'), "c": st.just(1)}
).map(json.dumps)
LINES = st.lists(st.one_of(PLAIN, ODD), min_size=1, max_size=6)


def outcome(lines: list[str], *, together: bool) -> object:
    """Return the records, or what is said about the lines."""
    bad, decoders = BadLines(), jsonl._Decoders.of(SCHEMA)
    if together:
        return jsonl._objects(decoders, lines, 1, bad), bad._lines
    return jsonl._objects_by_line(decoders.strict, lines, 1, bad), bad._lines


@given(LINES)
@example(['{"a":[{"b":1}', '{"b":2}]}', '{"a":1},{"a":2}'])
@example(['{"a":"x}', '{","b":"y"}'])
@example(['{"a":1,"a":2}', '{"a":1}'])
@example(['{"a":1,"a" :2}', '{"a":"\\":"}'])
@example(['{"a":1,"\\u0061":2}'])
@example(['{"a":[1', "2]}"])
def test_lines_give_together_what_they_give_one_by_one(lines: list[str]) -> None:
    """Whatever stands in them: braces in strings, keys twice, values over two lines, two on one."""
    assert outcome(lines, together=True) == outcome(lines, together=False)


def test_plain_lines_are_parsed_together() -> None:
    """Otherwise the comparison above would compare nothing; numbers keep their digits."""
    lines = [f'{{"a":{n},"b" : "x{n}","c":{n}.10}}' for n in range(1500)]
    decoders = jsonl._Decoders.of(SCHEMA)
    rows = jsonl._plain_objects(decoders.quick, lines)
    assert rows is not None
    assert [str(row["c"]) for row in rows] == [f"{n}.10" for n in range(1500)]
    assert jsonl._plain_objects(decoders.quick, [*lines, '{"a":1,"a":2}']) is None


def test_the_number_of_a_wrong_line_is_its_own() -> None:
    """Also behind thousands of lines that were parsed together."""
    lines = ['{"a":1}'] * 2500
    lines[2200] = '{"a":1,"a":1}'
    bad = BadLines()
    batches = jsonl.read_jsonl(
        [TextBlock(11, "\n".join(lines))],
        SCHEMA,
        STRICT,
        batch_rows=1 << 16,
        notes=Notes(),
        bad=bad,
    )

    def read() -> None:
        list(batches)
        bad.end()

    with pytest.raises(FileRejectedError) as caught:
        read()
    assert (caught.value.rule, caught.value.line) == ("json_invalid", 2211)
