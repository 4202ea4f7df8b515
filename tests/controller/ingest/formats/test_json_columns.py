"""Lines that Arrow parses give what they give one by one, or are left to be parsed one by one."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cbp.model.dataflow.source_options import STRICT
from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.column_conversion import BatchBuilder
from controller.ingest.formats.json_columns import JsonColumns
from controller.ingest.formats.jsonl import read_jsonl
from controller.ingest.formats.lines import TextBlock
from controller.ingest.formats.notes import Notes
from controller.ingest.rejection import FileRejectedError

SCHEMA = Schema.parse(
    "s STRING, n BIGINT, i TINYINT, d DOUBLE, b BOOLEAN, day DATE, at TIMESTAMP, k INT NOT NULL"
)
VALUES = {
    "s": ['"x"', '""', '"\\u00e9\\ud83d\\ude00"', '"\\u0000"', '"\\ud800"', '"\\ude00"', '"a\tb"'],
    "n": ["0", "-0", "9223372036854775807", "9223372036854775808", "1.0", "1e2", '"5"', "01"],
    "i": ["127", "-128", "128", "true"],
    "d": ["1.5", "-0", "-0.0", "7", "9007199254740993", "1e400", "1e-400", "NaN", "-Infinity"],
    "b": ["true", "false", "0", '"true"', "True"],
    "day": ['"2024-02-29"', '"2023-02-29"', '"0000-01-01"', '"2024-2-1"', "20240201"],
    "at": ['"2024-02-29T01:02:03.000004Z"', '"2024-02-29 01:02:03"', '"2024-02-29T01:02:03+01:00"'],
    "k": ["1", "-2147483648", "2147483648"],
}
VALUES = {name: [*values, "null"] for name, values in VALUES.items()}
PAIRS = st.one_of(
    *(
        st.tuples(st.just(name), st.sampled_from([values[0], *values]))
        for name, values in VALUES.items()
    ),
    st.just(("unknown", "1")),
)
SPACE = st.sampled_from(["", " ", "\t", "\r"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return one line: an object whose values may be odd, or whose keys stand twice."""
    space = draw(SPACE)
    pairs = [("k", "1")] * draw(st.sampled_from([1, 1, 1, 0])) + draw(st.lists(PAIRS, max_size=3))
    end = draw(st.sampled_from([*["}"] * 12, "", "},", "} ", '}{"k":1}', "}\n"]))
    inside = ",".join(f'"{name}"{space}:{value}' for name, value in pairs)
    return f"{{{space}{inside}{end}"


def one_by_one(text: str) -> pa.Table | None:
    """Return the records as they are read without Arrow's parser; `None` if a line is wrong."""
    bad = BadLines()
    blocks = [TextBlock(1, text)]
    batches = read_jsonl(blocks, SCHEMA, STRICT, batch_rows=7, notes=Notes(), bad=bad)
    try:
        read = list(batches)
        bad.end()
    except FileRejectedError:
        return None
    return pa.Table.from_batches(read, BatchBuilder(SCHEMA, STRICT, text=False).schema)


def by_arrow(text: str) -> pa.RecordBatch | None:
    """Return the records as Arrow's parser gives them."""
    builder = BatchBuilder(SCHEMA, STRICT, text=False)
    return JsonColumns(SCHEMA, builder, text_min=1).batch(text, text.count("\n") + 1)


@given(st.lists(lines(), min_size=1, max_size=4).map("\n".join))
@example('{"k":1,"d":NaN}')
@example('{"k":1,"d":-0}')
@example('{"k":1,"k":2}')
@example('{"k":1,"s":null,"\\u0073":"x"}')
@example('{"k":1}{"k":1}\n{"k":1}')
@example('{"k":1}{"k":2}')
@example('{"k":1}\n\n{"k":1}')
@example('{"k":1,\n"n":2}')
@example('{"k":1,"s":"}\n{"}')
@example('{"k":1,"s":"\\ude00"}')
@example('{"k":1}{"k":2}\n\n{"k":3}')
@example('{"k":1,"s":"}{"}')
@example('{"k":1,"s":{"s":"x"}\n{"k":2}}')
@example('{"k":1,"s":{}\n{"k":2}')
@example("{}\n{ }")
@example('{"n":1}')
def test_what_arrow_takes_is_what_each_line_gives(text: str) -> None:
    """A result of Arrow's is exactly the records of the lines, none of which is wrong."""
    batch = by_arrow(text)
    if batch is None:
        return
    expected = one_by_one(text)
    assert expected is not None
    assert repr(batch.to_pylist()) == repr(expected.to_pylist())  # tells 0.0 from -0.0
    assert batch.schema == expected.schema


def test_sound_lines_are_parsed_by_arrow() -> None:
    """Otherwise the comparison would compare nothing: of each column sound values are taken."""
    odd = {"s": 3, "n": 3, "i": 2, "d": 5, "b": 2, "day": 1, "at": 1, "k": 2}
    for name, values in VALUES.items():
        for value in [*values[: odd[name]], *(["null"] if name != "k" else [])]:
            if value not in ("-0", "-0.0") or name != "d":
                text = f'{{"k" : 1,"{name}":{value}}}' if name != "k" else f'{{"k":{value}}}'
                assert by_arrow(text) is not None, text


@pytest.mark.parametrize("value", ['"x"', "NaN", "1.5"])
def test_a_wrong_line_behind_large_blocks_is_told_by_its_number(value: str) -> None:
    """Arrow took the blocks before it; the block with the line is parsed line by line."""
    sound = [json.dumps({"k": n, "s": f"text {n}"}) for n in range(2_000)]
    wrong = [*sound, f'{{"k":{value}}}', *sound]
    bad = BadLines()
    blocks = [TextBlock(1, "\n".join(sound)), TextBlock(2_001, "\n".join(wrong))]
    batches = read_jsonl(blocks, SCHEMA, STRICT, batch_rows=1_500, notes=Notes(), bad=bad)
    assert [batch.num_rows for batch in (next(batches), next(batches))] == [1_500, 500]

    def read_rest() -> None:
        list(batches)
        bad.end()

    with pytest.raises(FileRejectedError) as caught:
        read_rest()
    assert caught.value.line == 4_001
