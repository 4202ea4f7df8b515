"""Combiners: fewer records, the same result, and errors that name the combiner."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Input, Output, Translate, TranslateRecords, route
from cbp.engine.arrow import arrow_schema
from cbp.engine.combine import combined
from cbp.engine.layout import shuffle_layout
from cbp.engine.reference_stage import ReferenceStage
from cbp.errors import AuthorCodeError, DefinitionError
from tests import chains
from tests.chains import Sums, WrongSums

SPEC = Sums().spec()
Row = tuple[Any, ...]

_rows = st.tuples(
    st.sampled_from(["", "a", "ab", "b", None]),
    st.sampled_from([0.0, -0.0, math.nan, 1.5, None]),
    st.sampled_from(["kg", "m"]),
    st.integers(-5, 5),
)


def combine(rows: list[Row], spec: Any = SPEC) -> tuple[list[Row], list[int], list[int]]:
    """Return the combined records, their places and their counts."""
    schema = spec.inputs[0].schema
    columns = [dict(zip(schema.names, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(columns, schema=arrow_schema(schema))
    table = table.append_column("_seq", pa.array(range(len(rows)), pa.int64()))
    fewer, counts = combined(table, spec, shuffle_layout(spec), 0, stage="sums")
    places = fewer.column("_seq").to_pylist()
    return (
        [tuple(r[n] for n in schema.names) for r in fewer.to_pylist()],
        places,
        counts.to_pylist(),
    )


@settings(deadline=None)
@given(rows=st.lists(_rows, max_size=20), cuts=st.lists(st.integers(0, 20), max_size=4))
def test_whatever_is_combined_the_result_stays(rows: list[Row], cuts: list[int]) -> None:
    """Cut anywhere, combined part by part: same outputs, order and state as of the records."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [combine(rows[a:b]) for a, b in pairwise(edges) if a < b]
    fewer = [row for part, _, _ in parts for row in part]
    plain, short = ReferenceStage("sums", SPEC), ReferenceStage("sums", SPEC)
    expected, got = plain.run({"items": [rows]}), short.run({"items": [fewer]})
    assert repr(got) == repr(expected)
    assert repr(short.state) == repr(plain.state)
    assert sum(count for _, _, counts in parts for count in counts) == len(rows)


def test_records_of_one_group_become_few() -> None:
    """One record a group and unit, where its first stood, with the count of what it replaces."""
    rows = [("a", 1.0, "kg", n) for n in range(5)] + [("b", 1.0, "m", 7), ("ab", 1.0, "m", 9)]
    found, places, counts = combine(rows)
    assert found == [("a", 1.0, "kg", 10), ("ab", 1.0, "m", 9), ("b", 1.0, "m", 7)]
    assert (places, counts) == ([0, 1, 5], [1, 5, 1])


@pytest.mark.parametrize(
    "function",
    [chains.too_many, chains.other_key, chains.other_type, chains.fewer_columns, lambda _: []],
)
def test_a_broken_promise_names_the_combiner(function: Any) -> None:
    """Too many records, another key, type or shape, or none: the author is told where."""
    spec = WrongSums(function).spec()
    with pytest.raises(AuthorCodeError) as caught:
        combine([("a", 1.0, "kg", 1), ("a", 1.0, "kg", 2)], spec)
    details = caught.value.details
    assert details["function"] == "WrongSums.items.combine"
    assert details["place"].startswith((chains.__file__, __file__))
    assert details["inputs"]["items"]


@pytest.mark.parametrize(
    "declared",
    [
        Input("k INT, n INT", route_by="k", order_by="n", combine=list),
        Input("k INT, n INT", route_by=route(lambda r: [r.k], "INT"), combine=list),
        Input("k INT, n INT", route_by="k", combine="sum"),  # type: ignore[arg-type]
    ],
    ids=["order", "several groups", "no function"],
)
def test_what_cannot_be_combined_is_refused(declared: Input) -> None:
    """An order, several destinations, or no function: a coded mistake at definition."""

    class Wrong(Translate):
        key = "k INT"
        items = declared
        out = Output("k INT")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            pass

    with pytest.raises(DefinitionError) as caught:
        Wrong().spec()
    assert caught.value.mistake.code == "combine_invalid"


def test_a_record_wise_input_is_not_combined() -> None:
    """Nothing is shuffled there, so there is nothing to spare."""

    class Wrong(TranslateRecords):
        items = Input("k INT", combine=list)
        out = Output("k INT")

        def translate(self, record: Any, out: Any) -> None:
            pass

    with pytest.raises(DefinitionError) as caught:
        Wrong().spec()
    assert caught.value.mistake.code == "combine_invalid"
