"""Combiners: fewer records, the same result, and errors that name the combiner.

A combiner changes no result, wherever its input is cut, and loses no record unnoticed.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import (
    DataflowBuilder,
    Input,
    Loopback,
    Output,
    State,
    Translate,
    TranslateArrow,
    TranslateRecords,
    by,
    route,
)
from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.reference.stage import ReferenceStage
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.shuffle.combine import combined
from cbp.engine.shuffle.layout import FlowRoute, shuffle_layout
from cbp.engine.shuffle.merged_records import merge_records, merged_table
from cbp.errors import AuthorCodeError, DefinitionError
from cbp.testing import check_split, run_epochs
from tests import chains
from tests.bench.candidates.ours.blackbox import LocalBlackboxExecutor
from tests.cbp.engine.epochs import assert_same
from tests.chains import Sums, WrongSums
from tests.driver import Driver

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
    fewer, counts = combined(table, FlowRoute("sums", spec, shuffle_layout(spec), 0, 1, -1, 0))
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
    actual, places, counts = combine(rows)
    assert actual == [("a", 1.0, "kg", 10), ("ab", 1.0, "m", 9), ("b", 1.0, "m", 7)]
    assert (places, counts) == ([0, 1, 5], [1, 5, 1])


@pytest.mark.parametrize(
    "function",
    [chains.too_many, chains.other_key, chains.other_type, chains.fewer_columns, lambda _: []],
)
def test_a_broken_promise_names_the_combiner(function: Any) -> None:
    """Too many records, another key, type or shape, or none: the error names the author's line."""
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
        Input("k INT, n INT", route_by="k", combine={}),
        Input("k INT, n INT", route_by="k", combine={"m": "sum"}),
        Input("k INT, n INT", route_by="k", combine={"k": "min"}),
        Input("k INT, n INT", route_by="k", combine={"n": "mean"}),  # type: ignore[dict-item]
        Input("k INT, n INT", route_by=by(lambda r: r.k, "INT"), combine={"n": "sum"}),
        Input("k INT, n DOUBLE", route_by="k", combine={"n": "sum"}),
        Input("k INT, n STRING", route_by="k", combine={"n": "max"}),
        Input("k INT, n INT, at ARRAY<INT>", route_by="k", combine={"n": "sum"}),
    ],
    ids=[
        "order",
        "several groups",
        "no function",
        "no column",
        "unknown column",
        "the key",
        "unknown rule",
        "computed key",
        "sum of floats",
        "no order",
        "nested",
    ],
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


def test_small_runs_combine_too(tmp_path: Path) -> None:
    """Without a shuffle, combiners run as with one: one record of each group is left."""
    seen: list[int] = []

    class Total(Translate):
        items = Input(
            "k STRING, n BIGINT",
            route_by="k",
            combine=lambda rows: [(rows[0].k, sum(row.n for row in rows))],
        )
        totals = Output("k STRING, n BIGINT", key="k")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            items = list(group.items)
            seen.append(len(items))
            out.totals(key.k, sum(row.n for row in items))

    builder = DataflowBuilder("flow")
    builder.stage("stage", Total(), items=builder.source("items", "k STRING, n BIGINT"))
    driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), builder.build(), tmp_path / "t")
    driver.feed("items", [{"k": "ab"[n % 2], "n": n} for n in range(10)])
    driver.run_until_idle()
    assert seen == [1, 1]
    assert driver.figures[-1]["records_in"] == 10
    assert driver.figures[-1]["records_combined"] == 8


def added(rows: list[Any]) -> list[Any]:
    """Add up messages of one group."""
    return [rows[0]._replace(n=sum(row.n for row in rows))]


class Sends(Translate):
    """Groups send messages to each other, which are added up on their way."""

    items = Input("k STRING, n BIGINT", route_by="k")
    mail = Loopback("k STRING, n BIGINT", route_by="k", combine=added)
    sums = State("k STRING, n BIGINT")
    heard = Output("k STRING, n BIGINT, one BOOLEAN")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for item in group.items:
            for to in ("a", "b", item.k):
                out.mail(to, item.n)
        mail = list(group.mail)
        out.sums(key.k, sum(row.n for row in [*group.sums, *mail]))
        out.heard(key.k, sum(row.n for row in mail), len(mail) == 1)


class SendsTables(TranslateArrow):
    """The same by Arrow tables."""

    items = Input("k STRING, n BIGINT", route_by="k")
    mail = Loopback("k STRING, n BIGINT", route_by="k", combine=added)
    heard = Output("k STRING, n BIGINT, one BOOLEAN")

    def translate(self, groups: Any, out: Any) -> None:
        out.mail(groups.items)
        out.mail(groups.items)
        one = (groups.sizes("mail") == 1).tolist()
        sums = groups.sums("mail", "n").tolist()
        out.heard({"k": groups.keys.column("k"), "n": sums, "one": one})


@pytest.mark.parametrize("translator", [Sends, SendsTables])
@pytest.mark.parametrize("engine", ["local", "black box"])
def test_messages_are_combined_too(translator: Any, engine: str, tmp_path: Path) -> None:
    """Every engine adds up the messages of a group to one, whatever the form of the stage."""
    builder = DataflowBuilder("flow")
    source = builder.source("s_items", "k STRING, n BIGINT")
    builder.stage("stage", translator(), buckets=4, items=source)
    dataflow = builder.build()
    executor = LocalExecutor() if engine == "local" else LocalBlackboxExecutor()
    driver = Driver(DirectEngine(executor, cache=f"{tmp_path}/cache"), dataflow, tmp_path / "t")
    rows = [{"k": "abcd"[n % 4], "n": n} for n in range(12)]
    # Tables of several calls come one behind the other.
    ordered = translator is Sends
    assert_same(dataflow, driver, [{"items": rows}, {"items": rows[:3]}], ordered=ordered)
    heard = [row for epoch in driver.outputs("stage.heard") for row in epoch if row["n"]]
    assert len(heard) > 4
    assert all(row["one"] for row in heard)
    assert sum(figures.get("records_combined", 0) for figures in driver.figures) > 10


SCHEMA = (
    "k BIGINT, w DOUBLE, s STRING, big BIGINT, small TINYINT, least DOUBLE, most FLOAT, day DATE"
)


class Merges(Translate):
    """Records are merged by columns of all types."""

    items = Input(
        SCHEMA,
        route_by="k",
        combine={
            "big": "sum",
            "small": "sum",
            "least": "min",
            "most": "max",
            "day": "max",
        },
    )
    out = Output("k BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.out(key.k)


_floats = st.sampled_from([0.0, -0.0, math.nan, 1.5, -2.0, math.inf, None])
_records = st.tuples(
    st.sampled_from([1, 2, None]),
    st.sampled_from([0.0, -0.0, math.nan, 1.5, None]),
    st.sampled_from(["a", "", None]),
    st.sampled_from([0, 1, -1, 2**61, -(2**61), 2**63 - 1, None]),
    st.sampled_from([0, 1, -1, 100, -100, None]),
    _floats,
    _floats,
    st.sampled_from([date(2024, 1, 1), date(1969, 1, 1), None]),
)


@settings(deadline=None)
@given(rows=st.lists(_records, max_size=12))
def test_columns_are_merged_as_records_are(rows: list[Row]) -> None:
    """Same records in the same order as the rule in Python gives; none is lost from the counts."""
    spec = Merges().spec()
    (input_,) = spec.inputs
    groups: dict[Any, list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault(row[0], []).append(at)
    expected = [merge_records([rows[at] for at in places], input_) for places in groups.values()]
    actual, _, counts = combine(rows, spec)
    by_key = [[row for row in actual if row[0] == key] for key in groups]
    assert repr(by_key) == repr(expected)
    assert sum(counts) == len(rows)
    assert len(counts) == len(actual)


class MergesNumbers(Translate):
    """Records are merged whose columns are all whole numbers."""

    items = Input(
        "k BIGINT, w INT, big BIGINT, small TINYINT, least INT, most BIGINT",
        route_by="k",
        combine={"big": "sum", "small": "sum", "least": "min", "most": "max"},
    )
    out = Output("k BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.out(key.k)


_numbers = st.tuples(
    st.integers(1, 3),
    st.sampled_from([0, -1]),
    st.sampled_from([0, 1, -1, 5, 2**60, -(2**60), 2**63 - 1, -(2**63)]),
    st.sampled_from([0, 1, -1, 60, -60]),
    st.integers(-9, 9),
    st.sampled_from([0, 2**63 - 1, -(2**63)]),
)


@settings(deadline=None)
@given(rows=st.lists(_numbers, max_size=12))
def test_whole_numbers_are_merged_as_records_are(rows: list[Row]) -> None:
    """Same records in the same order as the rule in Python gives; a sum that is too large: none."""
    spec = MergesNumbers().spec()
    (input_,) = spec.inputs
    columns = [dict(zip(input_.schema.names, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(columns, schema=arrow_schema(input_.schema))
    expected, done = merge_records(rows, input_), merged_table(table, input_)
    if done is None:
        assert any(abs(row[2]) > 5 or abs(row[3]) > 1 for row in rows)
        return
    merged, counts = done
    assert [tuple(record.values()) for record in merged.to_pylist()] == expected
    sizes = Counter(row[:2] for row in rows)
    assert counts.to_pylist() == [sizes[row[:2]] for row in expected]


@settings(deadline=None)
@given(rows=st.lists(_records, max_size=12), dice=st.randoms(use_true_random=False))
def test_the_order_of_merging_changes_no_sum(rows: list[Row], dice: Any) -> None:
    """Merged at once, or part by part in any order: sums, least and greatest values are equal."""
    (input_,) = Merges().spec().inputs

    whole = merge_records(rows, input_)
    mixed = [*rows]
    dice.shuffle(mixed)
    cut = len(mixed) // 2
    parts = [*merge_records(mixed[:cut], input_), *merge_records(mixed[cut:], input_)]
    for records in (whole, parts, merge_records(parts, input_)):
        assert sums_of(records) == sums_of(rows)


def sums_of(records: list[Row]) -> list[Any]:
    """Return what merging keeps: exact sums, and the least or greatest number."""
    if not records:
        return []
    columns = [
        [value for value in column if value is not None and value == value]
        for column in zip(*records, strict=True)
    ]
    return [
        sum(columns[3]),
        sum(columns[4]),
        min(columns[5], default=None),
        max(columns[6], default=None),
        max(columns[7], default=None),
    ]


def test_a_combiner_of_messages_that_loses_some_is_found() -> None:
    """The kit runs combiners of loopbacks on parts of a group, too."""

    class Loses(Sends):
        mail = Loopback("k STRING, n BIGINT", route_by="k", combine=lambda rows: rows[:1])

    with pytest.raises(AssertionError, match="combined"):
        check_split(Loses, [[("a", 1), ("b", 2)], [("a", 3), ("c", 4)]])


def test_a_combiner_that_gives_another_key_is_refused_in_the_kit_too() -> None:
    """What a combiner gives is of the group that it was given, in the kit as in the engines."""

    class Moves(Sends):
        mail = Loopback(
            "k STRING, n BIGINT", route_by="k", combine=lambda rows: [rows[0]._replace(k="x")]
        )

    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(Moves, [[("a", 1), ("b", 2)]])
    assert caught.value.code == "author_code_failed"
    assert caught.value.details["function"] == "Moves.mail.combine"
