"""On which line each record begins: exact where it is known, and never wrong."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.interface.runs import Dropped
from controller.ingest.formats.bad_lines import PAIRS_MAX, LineMap


def lines_of(*parts: Sequence[int]) -> list[int | None]:
    made = LineMap()
    for part in parts:
        made.add(part)
    records = sum(map(len, parts))
    file = Dropped("f", records, tuple(made.pairs))
    return [file.line(record) for record in range(records)]


@given(steps=st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=8))
def test_every_record_has_its_line(steps: list[list[int]]) -> None:
    """Whatever lines lie between records, and however they come in batches."""
    line, parts = 1, []
    for part in steps:
        lines = []
        for step in part:
            line += step
            lines.append(line)
        parts.append(lines)
    assert lines_of(*parts) == [line for part in parts for line in part]


def test_a_file_without_gaps_needs_one_pair() -> None:
    """The header of a CSV file is a first line of 2."""
    made = LineMap()
    made.add(range(2, 1_002))
    made.add(list(range(1_002, 2_002)))
    assert made.pairs == [(0, 2)]


def test_beyond_the_limit_lines_are_unknown() -> None:
    """Rather no line than a wrong one."""
    odd = range(1, 4 * PAIRS_MAX, 2)
    lines = lines_of(list(odd), [4 * PAIRS_MAX + 7])
    assert lines[:PAIRS_MAX] == list(odd)[:PAIRS_MAX]
    assert set(lines[PAIRS_MAX:]) == {None}


def test_lines_that_are_not_known_are_left_out() -> None:
    """What follows them has its lines again."""
    made = LineMap()
    made.add(range(2, 5))
    made.skip(4)
    made.skip(1)
    made.add(range(20, 22))
    assert made.pairs == [(0, 2), (3, 0), (8, 20)]
    file = Dropped("f", 10, tuple(made.pairs))
    assert [file.line(record) for record in (2, 3, 7, 8, 9)] == [4, None, None, 20, 21]
