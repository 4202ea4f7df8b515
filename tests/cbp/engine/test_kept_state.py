"""Kept state on the direct engine: the reference's records, at the cost of what is touched.

`test_direct.py` holds the same for short runs that hypothesis draws (`ledger`).
"""

from __future__ import annotations

import gc
import random
from ast import literal_eval
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.engine.kernel.kept_groups import KeptSource
from cbp.engine.state.lookup import IndexedFile
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import CbpError
from cbp.model.flow.schema import Schema
from tests import flows, kept_flows
from tests.cbp.engine.epochs import NARROW, assert_same, dataflow_of
from tests.cbp.engine.kept_runs import ledger_driver, ledger_of, merging_limits, orders_of, put


@pytest.mark.part(every=3)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize(("seed", "view"), [(0, False), (1, True), (2, True)])
def test_long_runs_equal_the_reference(
    seed: int, view: bool, hash_mask: int, tmp_path: Path
) -> None:
    """Also where files are merged, split and copied all the time; a view's changes, too."""
    chance = random.Random(seed)
    dataflow = ledger_of(kept_flows.LedgerView() if view else kept_flows.Ledger())
    driver = ledger_driver(tmp_path, dataflow, hash_mask=hash_mask, limits=merging_limits())
    epochs = [{"orders": orders_of(chance, records=chance.randrange(1, 25))} for _ in range(15)]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)
    if view:
        changes = [change for epoch in driver.outputs("stage.items") for change in epoch]
        assert {change["change_type"] for change in changes} == set(CHANGE_TYPES)
    assert max(figures["state_written"] for figures in driver.figures) > 3


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_one_record_per_group_equals_the_reference(hash_mask: int, tmp_path: Path) -> None:
    """A second key without columns; also of groups that share a hash."""
    builder = DataflowBuilder("single")
    urls = builder.source("s_urls", "url STRING, n BIGINT")
    builder.stage("stage", flows.Single(), buckets=4, urls=urls)
    dataflow, chance = builder.build(), random.Random(0)
    driver = ledger_driver(tmp_path, dataflow, hash_mask=hash_mask, limits=merging_limits())
    epochs = [
        {
            "urls": [
                {"url": chance.choice(["a", "b", "l", None, "f"]), "n": chance.choice([None, 1, 2])}
                for _ in range(chance.randrange(1, 9))
            ]
        }
        for _ in range(12)
    ]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)


class Shelves(Translate):
    """Kept state without floats and lists, whose keys some inputs name."""

    puts = Input("shelf STRING, name STRING, n INT", route_by="shelf")
    asks = Input("shelf STRING, id BIGINT, name STRING", route_by="shelf")
    others = Input("shelf STRING, name STRING, id INT", route_by="shelf")
    items = State("shelf STRING, name STRING, n INT", keep=True, key="shelf, name")
    log = Output("shelf STRING, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look up and put what the inputs name, and what they do not name."""
        found = [group.items.get(name=name) for name in (None, "x0", "other")]
        asked = [row.name for row in group.asks]
        found += [group.items.get(name) for name in asked]
        for row in group.puts:
            found.append(group.items.get(row.name))
            if row.n is None:
                out.items.delete(row.name)
            else:
                out.items(*row)
        found += [group.items.get(str(row.id)) for row in group.others]
        found += group.items.range(name="x1")
        out.log(key.shelf, str([item and tuple(item) for item in found]))


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("few", [False, True])
def test_records_that_inputs_name_equal_the_reference(
    few: bool, hash_mask: int, tmp_path: Path
) -> None:
    """They are found together for many groups; absent, deleted, repeated and null names, too."""
    builder, chance = DataflowBuilder("shelves"), random.Random(few)
    inputs = Shelves().spec().inputs
    sources = {i.name: builder.source(f"s_{i.name}", str(i.schema)) for i in inputs}
    builder.stage("stage", Shelves(), buckets=4, **sources)
    dataflow = builder.build()
    limits = merging_limits() if few else EngineLimits(state_fanout=2, small_file_rows=0)
    driver = ledger_driver(tmp_path, dataflow, hash_mask=hash_mask, limits=limits)
    names = [None, "", "other", "ä", *(f"x{at}" for at in range(8)), *map(str, range(3))]

    def rows(values: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        many = chance.randrange(1, 9 if few else 200)
        shelves = [f"s{chance.randrange(3 if few else 40)}" for _ in range(many)]
        return [{"shelf": shelf, "name": chance.choice(names), **values()} for shelf in shelves]

    epochs = [
        {
            "puts": rows(lambda: {"n": chance.choice([None, 1, 2, 3])}),
            "asks": rows(lambda: {"id": 0}),
            "others": rows(lambda: {"id": chance.randrange(4)}),
        }
        for _ in range(8)
    ]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)


def test_only_what_inputs_name_is_read_of_many_groups(tmp_path: Path) -> None:
    """Together, not group by group: no group is listed for the records that are looked up in it."""
    builder = DataflowBuilder("shelves")
    sources = {i.name: builder.source(i.name, str(i.schema)) for i in Shelves().spec().inputs}
    builder.stage("stage", Shelves(), buckets=2, **sources)
    driver = ledger_driver(tmp_path, builder.build())
    every = [{"shelf": f"s{at % 40}", "name": f"n{at}", "n": 1} for at in range(20_000)]
    for puts in (every, [{**row, "n": 2} for row in every[:8_000]]):
        for name, rows in {"puts": puts, "asks": [], "others": []}.items():
            driver.feed(name, rows)
        driver.run_until_idle()
    figures = driver.figures[-1]
    assert (figures["state_written"], figures["state_removed"]) == (8_000, 8_000)
    # A list of a group, which searches one by one lead to, reads all its records.
    assert 0 < figures["bytes_read"] < 8_000 * 60


class TooLate(Translate):
    """Puts a record that does not fit, and another one in its place."""

    items = Input("k STRING, first BIGINT, then BIGINT", route_by="k")
    kept = State("k STRING, id INT, n INT NOT NULL", keep=True, key="k, id")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Put both."""
        for item in group.items:
            out.kept(key.k, 1, item.first)
            out.kept(key.k, 1, item.then)


@pytest.mark.parametrize("value", [1 << 40, None], ids=["too large", "null"])
@pytest.mark.parametrize("first", [True, False])
def test_a_record_that_does_not_fit_is_refused_whatever_follows(
    value: int | None, first: bool, tmp_path: Path
) -> None:
    """Also where the call puts another one in its place; the error names the line."""
    builder = DataflowBuilder("late")
    items = builder.source("items", "k STRING, first BIGINT, then BIGINT")
    builder.stage("stage", TooLate(), items=items)
    driver = ledger_driver(tmp_path, builder.build())
    driver.feed("items", [{"k": "a", "first": 1, "then": 2}])
    driver.run_until_idle()
    wrong = {"first": value, "then": 2} if first else {"first": 2, "then": value}
    driver.feed("items", [{"k": "b", "first": 1, "then": 2}, {"k": "a", **wrong}])
    with pytest.raises(CbpError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "author_code_failed"


def test_files_are_written_in_the_second_order(tmp_path: Path) -> None:
    """New and merged files alike, so that a look-up sorts nothing."""
    driver = ledger_driver(tmp_path, limits=merging_limits())
    chance = random.Random(3)
    columns = Schema.parse("k STRING, part DOUBLE, name STRING")
    for _ in range(24):
        driver.feed("s_orders", orders_of(chance, records=chance.randrange(1, 25)))
    driver.run_until_idle()
    merged = 0
    for path in (tmp_path / "t/state/stage.items").rglob("*.parquet"):
        (batch,) = pq.read_table(path).combine_chunks().to_batches()
        assert IndexedFile(batch).second_order(columns).is_sorted
        merged += batch.num_rows > 8
    assert merged > 3


def test_what_is_not_published_yet_is_read(tmp_path: Path) -> None:
    """A run sees what the recorded runs before it put and deleted."""
    driver = ledger_driver(tmp_path)
    driver.publish_every = 4
    hows = ["get", "put", "get", "delete", "get", "put", "get", "all"]
    for n, how in enumerate(hows):
        driver.feed("s_orders", [put("a", 1.0, n=n, how=how), put("a", 2.0 + n)])
    driver.run_until_idle()
    driver.publish()
    lines = [line["line"] for epoch in driver.outputs("stage.log") for line in epoch]
    assert lines[:4] == [
        "get [None]",
        "get [(1.0, 'a', '', 1, [1])]",
        "get [None]",
        "get [(1.0, 'a', '', 5, [5])]",
    ]
    assert lines[4].count("'a'") == len(hows)


def test_one_more_record_reads_and_writes_one(tmp_path: Path) -> None:
    """What a call does not touch of its group is neither read nor written."""
    driver = ledger_driver(tmp_path)
    driver.feed("s_orders", [put("a", at) for at in range(5_000)])
    driver.run_until_idle()
    driver.feed("s_orders", [put("a", 9_999.0), put("a", 7.0, n=1), put("a", 8.0, how="delete")])
    driver.feed("s_orders", [put("a", 9.0, how="get"), put("a", 11.0, how="first")])
    driver.feed("s_orders", [put("a", 0.0, how="last")])
    driver.run_until_idle()
    writes, reads, last = driver.figures[-3:]
    assert 0 < last["bytes_read"] < 4_000
    assert (writes["state_written"], writes["state_removed"]) == (2, 2)
    assert (reads["state_written"], reads["state_removed"]) == (0, 0)
    assert writes["bytes_read"] < 200
    assert 0 < reads["bytes_read"] < 4_000


def test_a_range_of_many_chunks_is_read_from_both_ends(tmp_path: Path) -> None:
    """Each record comes once, in either direction."""
    driver = ledger_driver(tmp_path)
    driver.feed("s_orders", [put("a", at) for at in range(150)])
    driver.run_until_idle()
    every = {**put("a", 0.0, how="from"), "n": None}
    driver.feed("s_orders", [every, {**every, "how": "down"}])
    driver.run_until_idle()
    lines = [line["line"].partition(" ")[2] for line in driver.outputs("stage.log")[-1]]
    forth, back = (literal_eval(line) for line in lines)
    assert [row[0] for row in forth] == list(range(150))
    assert back == forth[::-1]


def test_a_record_that_is_put_unchanged_is_not_written(tmp_path: Path) -> None:
    """Equal is equal as records are compared: also NaN, and a zero of the other sign."""
    driver = ledger_driver(tmp_path)
    same = [put("a", 0.0, n=1), put("a", float("nan"), n=2), {**put("a", 1.0), "name": None}]
    for epoch in (same, same, [put("a", -0.0, n=1)], [put("a", 5.0, how="delete")]):
        driver.feed("s_orders", epoch)
    driver.run_until_idle()
    assert [each["state_written"] for each in driver.figures] == [3, 0, 0, 0]
    assert [each["state_removed"] for each in driver.figures] == [0, 0, 0, 0]


CHANGE_TYPES = ("insert", "update_before", "update_after", "delete")


class Lists(Translate):
    """An earlier version: the same table, emitted as a whole, in the order of arrival."""

    key = "k STRING"
    orders = Input("k STRING, how STRING, part DOUBLE, name STRING, n INT", route_by="k")
    items = State("part DOUBLE, k STRING, name STRING, n INT, parts ARRAY<INT>")
    log = Output("k STRING, line STRING", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        kept = list(group.items)
        for row in [*kept, *group.orders]:
            out.items(k=key.k, part=row.part, name=row.name, n=row.n, parts=None)


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_files_of_an_earlier_version_are_read_in_order(hash_mask: int, tmp_path: Path) -> None:
    """Their rows lie in no order of the second key; nothing but the cost depends on that."""
    driver = ledger_driver(tmp_path, ledger_of(Lists()), hash_mask=hash_mask)
    chance = random.Random(1)
    parts = [*chance.sample(range(200), 200), None, float("nan")]
    driver.feed("s_orders", [put(chance.choice(["b", "l"]), part) for part in parts])
    driver.run_until_idle()
    before = driver.state("stage", "items")
    driver.dataflow = dataflow_of("ledger")
    asked = before[3], before[100]
    for row in asked:
        driver.feed("s_orders", [put(row["k"], row["part"], how=how) for how in ("get", "delete")])
    driver.feed("s_orders", [put("b", 0.0, how="all")])
    driver.run_until_idle()
    (got,), (other,), (every,) = driver.outputs("stage.log")[1:]
    for line, row in zip((got, other), asked, strict=True):
        assert line["line"] == f"get [({row['part']!r}, {row['k']!r}, '', 0, None)]"
    left = [row["part"] for row in before if row["k"] == "b" and row not in asked]
    left.sort(key=lambda part: (part is not None, part != part, part or 0.0))
    assert every["line"] == f"all {[(part, 'b', '', 0, None) for part in left]}"


class Windows(Translate):
    """Reads its state in all ways, and counts the windows whose records are in memory."""

    puts = Input("k INT, n INT", route_by="k")
    kept = State("k INT, n INT", keep=True, key="k, n")
    windows = Output("count INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look at what is in memory once a window is done."""
        before = [row.n for row in group.kept]
        for row in group.puts:
            assert group.kept.get(n=row.n) is None
            out.kept(*row)
        assert [row.n for row in group.kept.range(reverse=True)] == before[::-1]
        out.windows(sum(isinstance(one, KeptSource) for one in gc.get_objects()))


def test_a_window_is_freed_before_the_next_one(tmp_path: Path) -> None:
    """Without a collection of cycles, which is off in a task: memory is that of two windows."""
    builder = DataflowBuilder("windows")
    puts = builder.source("puts", "k INT, n INT")
    builder.stage("stage", Windows(), buckets=2, puts=puts)
    limits = replace(EngineLimits(), window_rows=4)
    driver = ledger_driver(tmp_path, builder.build(), limits=limits)
    for n in range(2):
        driver.feed("puts", [{"k": k, "n": n} for k in range(40)])
        driver.run_until_idle()
    counts = [row["count"] for epoch in driver.outputs("stage.windows") for row in epoch]
    assert len(counts) == 80
    assert max(counts) <= 2
