"""An author may change the lists, maps and structs of a record in place: nobody else sees it.

What the engine keeps, compares or gives to another group is what was stored, whatever became
of the objects that an author was given or emitted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, UserDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cbp import ALL, DataflowBuilder, Input, Output, State, Translate, TranslateArrow, route
from cbp.engine.columnar.row_codec import copies_maker
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.errors import AuthorCodeError
from cbp.model.flow.schema import Schema
from cbp.testing import run_epochs
from tests.bench.candidates.ours.blackbox import LocalBlackboxExecutor
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver

NESTED = (
    "k STRING, n INT, items ARRAY<STRING>, deep ARRAY<ARRAY<INT>>, "
    "both STRUCT<a: INT, more: ARRAY<INT>>, counts MAP<STRING, BIGINT>, of MAP<STRING, ARRAY<INT>>"
)


def change(row: Any) -> None:
    """Change everything of a record that can be changed."""
    if row.items is not None:
        row.items.append("x")
    for inner in row.deep or ():
        inner.append(7)
    if row.both is not None:
        row.both["a"] = (row.both["a"] or 0) + 1
        row.both["more"].append(row.both["a"])
    if row.counts is not None:
        row.counts["x"] = row.counts.get("x", 0) + 1
    for inner in (row.of or {}).values():
        inner.append(1)


class Changes(Translate):
    """Changes what it reads, and keeps it; so does one that reads its state in part only."""

    key = "k STRING"
    rows = Input(NESTED, route_by="k")
    kept = State(NESTED)
    every = State(f"{NESTED}, more INT", grouping="outer", order_by="n")
    seen = Output("k STRING, items ARRAY<STRING>, n INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.rows:
            change(row)
            out.kept(*row)
            out.every(*row, more=None)
            change(row)
            out.seen(key.k, row.items, row.n)
        for row in group.kept:
            change(row)
            out.kept(*row)
            change(row)
        for n, row in enumerate(group.every):
            change(row)
            out.every(*row)
            if n == 5:
                break


def record(k: str, n: int, **more: Any) -> dict[str, Any]:
    """Return a record with something in every column."""
    return {
        "k": k,
        "n": n,
        "items": ["a", None],
        "deep": [[1], [], [2, 3]],
        "both": {"a": n, "more": [1]},
        "counts": {"y": 1},
        "of": {"z": [0]},
        **more,
    }


NOTHING = dict.fromkeys(("items", "deep", "both", "counts", "of"))


@pytest.mark.parametrize("rows", [1, 3, 9], ids=["single", "several", "large"])
@pytest.mark.parametrize("mask", [-1, NARROW], ids=["hash", "colliding"])
def test_state_changed_in_place_is_kept_as_it_is_emitted(
    rows: int, mask: int, tmp_path: Path
) -> None:
    """A record that was changed in place and emitted again is another record, in every column."""
    limits = small_limits()
    keys = "a" if rows == 9 else "abc"
    first = [record(k, n) for k in keys for n in range(rows)]
    epochs = [first, [record("a", 0, **NOTHING)], [record("b", 1)], [record("a", 2)]]
    engine = LocalEngine(cache=f"{tmp_path}/cache", hash_mask=mask, limits=limits)
    check(tmp_path, engine, epochs, mask=mask)


def test_the_black_box_keeps_what_is_emitted_too(tmp_path: Path) -> None:
    """State that arrives with the input is compared with what arrived."""
    engine = DirectEngine(LocalBlackboxExecutor(), cache=f"{tmp_path}/cache")
    check(tmp_path, engine, [[record("a", 0), record("b", 0)], [record("a", 1)], [record("a", 2)]])


def check(tmp_path: Path, engine: Any, epochs: list[Any], *, mask: int = -1) -> None:
    """Run `Changes` beside the reference."""
    builder = DataflowBuilder("flow")
    builder.stage("stage", Changes(), buckets=4, rows=builder.source("s_rows", NESTED))
    dataflow = builder.build()
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, [{"rows": rows} for rows in epochs], ordered=mask == -1)
    assert max(len(row["items"] or ()) for row in driver.state("stage", "kept")) > 4


class Shares(Translate):
    """Changes what several groups get."""

    key = "k STRING"
    rows = Input(NESTED, route_by=route(lambda row: [ALL, "a", "b", row.items.pop()], "STRING"))
    seen = Output("k STRING, items ARRAY<STRING>, deep ARRAY<ARRAY<INT>>, of MAP<STRING, BIGINT>")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.rows:
            change(row)
            out.seen(key.k, row.items, row.deep, row.counts)


class Passes(Translate):
    """Changes what another stage reads too, and emits it as it came to be."""

    rows = Input(NESTED)
    seen = Output(NESTED)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.rows:
            change(row)
            out.seen(*row)


@pytest.mark.parametrize("fused", [False, True])
def test_what_several_read_is_changed_for_none_of_them(fused: bool, tmp_path: Path) -> None:
    """A record of several groups, or of several stages, is each one's own; also for `route_by`."""
    builder = DataflowBuilder("flow")
    source = builder.source("s_rows", NESTED)
    builder.stage("shares", Shares(), buckets=4, rows=source)
    first = builder.stage("first", Passes(), rows=source)
    builder.stage("left", Passes(), rows=first.seen)
    builder.stage("right", Passes(), rows=first.seen)
    dataflow = builder.build()
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), dataflow, tmp_path / "t", fused=fused)
    rows = [record("a", n, items=["a", "c"]) for n in range(3)]
    assert_same(dataflow, driver, [{"rows": rows}, {"rows": rows[:1]}])
    (left, *_), (right, *_) = driver.outputs("left.seen"), driver.outputs("right.seen")
    assert [row["deep"] for row in left] == [row["deep"] for row in right]
    assert left[0]["deep"] == [[1, 7, 7], [7, 7], [2, 3, 7, 7]]


class Fails(Translate):
    """Changes what it reads, and emits what does not fit."""

    rows = Input("k STRING, items ARRAY<STRING>", route_by="k")
    kept = State("k STRING, items ARRAY<STRING>")
    seen = Output("n INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in [*group.rows, *group.kept]:
            out.kept(row.k, row.items)
            if row.items.pop() == "wrong":
                out.seen("no number")


class FailsAlone(Translate):
    """The same of single records."""

    rows = Input("k STRING, items ARRAY<STRING>")
    seen = Output("n INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.rows:
            if row.items.pop() == "wrong":
                out.seen("no number")


@pytest.mark.parametrize("translator", [Fails, FailsAlone])
def test_the_error_names_the_line_and_what_came(translator: Any, tmp_path: Path) -> None:
    """A call is made again on what came, not on what the first call made of it."""
    builder = DataflowBuilder("flow")
    source = builder.source("rows", "k STRING, items ARRAY<STRING>")
    builder.stage("stage", translator(), rows=source)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), builder.build(), tmp_path / "t")
    driver.feed("rows", [{"k": "b", "items": ["x"]}, {"k": "a", "items": ["a", "wrong"]}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "author_code_failed"
    assert "test_in_place.py" in str(caught.value.details["place"])
    assert caught.value.details["inputs"]["rows"] == ["('a', ['a', 'wrong'])"]


class UserFloats(list[float]):
    """A list of an author's own."""


class GoesOn(Translate):
    """Emits values of every kind that can be changed, and goes on with them."""

    rows = Input("k STRING", route_by="k")
    seen = Output(
        "of MAP<STRING, BIGINT>, b BINARY, both STRUCT<a: ARRAY<INT>, m: MAP<STRING, INT>>, "
        "deep ARRAY<ARRAY<INT>>, plain ARRAY<INT>, subclass ARRAY<DOUBLE>"
    )

    def translate(self, key: Any, group: Any, out: Any) -> None:
        counted: Counter[str] = Counter()
        shared: dict[str, int] = OrderedDict()
        numbers, block = [0], bytearray(b"0")
        for n in range(3):
            both = ([n], MappingProxyType(shared)) if n else UserDict(a=numbers, m=shared)
            plain, subclass = numbers if n else None, UserFloats(map(float, numbers))
            out.seen(counted, memoryview(block), both, (numbers, tuple(numbers)), plain, subclass)
            subclass.append(0.5)
            counted["x"] += 1
            shared["y"] = n
            numbers.append(n)
            block[0] += 1


def test_whatever_is_emitted_is_emitted_as_it_is_then(tmp_path: Path) -> None:
    """Subclasses of dict and list, views of them, tuples with lists: all as in the test kit."""
    builder = DataflowBuilder("flow")
    builder.stage("stage", GoesOn(), rows=builder.source("s_rows", "k STRING"))
    dataflow = builder.build()
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), dataflow, tmp_path / "t")
    assert_same(dataflow, driver, [{"rows": [{"k": "a"}]}])
    seen = driver.outputs("stage.seen")[0]
    assert [row["b"] for row in seen] == [b"0", b"1", b"2"]
    assert [row["plain"] for row in seen] == [None, [0, 0], [0, 0, 1]]
    assert [row["subclass"] for row in seen] == [[0.0], [0.0, 0.0], [0.0, 0.0, 1.0]]


class Counts(Translate):
    """Emits numbers that can be changed."""

    rows = Input("k STRING", route_by="k")
    seen = Output("n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        number = np.zeros((), np.int64)
        out.seen(number)
        number += 1
        out.seen(number)


def test_an_array_of_one_number_is_no_number(tmp_path: Path) -> None:
    """NumPy's arrays can be changed behind their emission; the kit and the engine refuse them."""
    with pytest.raises(AuthorCodeError):
        run_epochs(Counts, [["a"]])
    builder = DataflowBuilder("flow")
    builder.stage("stage", Counts(), rows=builder.source("rows", "k STRING"))
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), builder.build(), tmp_path / "t")
    driver.feed("rows", [{"k": "a"}])
    with pytest.raises(AuthorCodeError):
        driver.run_until_idle()


class Drains(Translate):
    """Its combiner takes away what it is given, and changes it."""

    @staticmethod
    def added(rows: list[Any]) -> list[Any]:
        actual = rows.pop()
        while rows:
            actual.items.extend(rows.pop().items)
        return [actual]

    rows = Input("k STRING, items ARRAY<STRING>", route_by="k", combine=added)
    seen = Output("k STRING, items ARRAY<STRING>")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.seen(key.k, sorted(item for row in group.rows for item in row.items))


def test_a_combiner_may_empty_the_list_that_it_is_given(tmp_path: Path) -> None:
    """Records that it replaced are counted by what came, not by what is left of the list."""
    builder = DataflowBuilder("flow")
    schema = "k STRING, items ARRAY<STRING>"
    builder.stage("stage", Drains(), buckets=4, rows=builder.source("s_rows", schema))
    dataflow = builder.build()
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), dataflow, tmp_path / "t")
    rows = [{"k": "ab"[n % 2], "items": [str(n)]} for n in range(7)]
    assert_same(dataflow, driver, [{"rows": rows}])
    assert driver.figures[-1]["records_combined"] == 5


def test_records_without_nested_columns_are_not_copied() -> None:
    """Only lists and dicts can be changed: other records cost nothing more."""
    assert copies_maker("kept", Schema.parse("k STRING, n BIGINT, b BINARY, t TIMESTAMP")) is None


class Tables(TranslateArrow):
    """Emits NumPy's numbers, and goes on with them; changes what it is given, if asked to."""

    rows = Input("k STRING, n BIGINT", route_by="k")
    kept = State("k STRING, n BIGINT, all ARRAY<BIGINT>")
    seen = Output("k STRING, n BIGINT")
    change: Any = None

    def translate(self, groups: Any, out: Any) -> None:
        if self.change is not None:
            self.change(groups, out)
        numbers = groups.sums("rows", "n") + groups.sums("kept", "n")
        keys = groups.keys.column("k")
        out.seen({"k": keys, "n": numbers})
        ends = np.arange(len(numbers) + 1, dtype=np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(numbers))
        frame = pa.table({"n": numbers}).to_pandas()
        out.kept(pa.table({"k": keys, "n": numbers, "all": lists}))
        numbers += 1000
        frame["n"] = numbers
        out.seen(frame.assign(k=keys.to_pylist()))
        numbers += 1000


def of_tables(tmp_path: Path, translator: Tables) -> tuple[Any, Driver]:
    builder = DataflowBuilder("flow")
    source = builder.source("s_rows", "k STRING, n BIGINT")
    builder.stage("stage", translator, buckets=4, rows=source)
    dataflow = builder.build()
    return dataflow, Driver(LocalEngine(cache=f"{tmp_path}/c"), dataflow, tmp_path / "t")


def test_tables_are_emitted_as_they_are_then(tmp_path: Path) -> None:
    """Arrow shares memory with NumPy and pandas: what is emitted does not."""
    dataflow, driver = of_tables(tmp_path, Tables())
    rows = [{"k": k, "n": n} for n, k in enumerate("abcab")]
    assert_same(dataflow, driver, [{"rows": rows}, {"rows": rows[:2]}], ordered=False)
    assert {row["n"] for row in driver.state("stage", "kept")} == {3, 6, 2}


def test_what_a_table_form_is_given_cannot_be_changed(tmp_path: Path) -> None:
    """Tables and offsets are compared with what was emitted: to set them is an author's error."""

    def sets(groups: Any, out: Any) -> None:
        groups.kept = groups.kept.slice(0, 0)

    def moves(groups: Any, out: Any) -> None:
        groups.offsets("kept")[:] = 0

    def writes(groups: Any, out: Any) -> None:
        groups.rows.column("n").to_numpy()[:] = 0

    for change in (sets, moves, writes):
        translator = Tables()
        translator.change = change
        _, driver = of_tables(tmp_path / change.__name__, translator)
        driver.feed("s_rows", [{"k": "a", "n": 1}])
        with pytest.raises(AuthorCodeError) as caught:
            driver.run_until_idle()
        assert caught.value.code == "author_code_failed"
        line = int(caught.value.details["place"].rpartition(":")[2])
        assert line == change.__code__.co_firstlineno + 1
