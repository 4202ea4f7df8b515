"""The checks at the end of the demo: one wrong record is enough to fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cbp import DataflowBuilder, Input, Output, State, Translate, View
from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from controller.demo.results.checks import against_reference, from_scratch, readers_agree, reference
from controller.demo.results.tables import EPOCH, TableRef, read_polars, tables_of

PAGES = [[{"url": "a"}, {"url": "b"}], [{"url": "a"}]]


class Count(Translate):
    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT", key="url")
    seen = Output("url STRING")
    told = Output("url STRING, n BIGINT", history=True)
    shown = View("url STRING, n BIGINT", key="url", not_compared="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.counts)
        for record in group.urls:
            n += 1
            out.seen(url=record.url)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)
        out.told(url=key.url, n=n)
        out.shown(url=key.url, n=n)


def build() -> Dataflow:
    flow = DataflowBuilder("counts")
    flow.stage("count", Count(), urls=flow.source("urls", "url STRING"))
    return flow.build()


Records = dict[str, list[dict[str, Any]]]


def right() -> Records:
    """What the tables must hold after both increments."""
    totals = [
        {"url": "a", "n": 1, EPOCH: 0},
        {"url": "b", "n": 1, EPOCH: 0},
        {"url": "a", "n": 2, EPOCH: 1},
    ]
    changes = [
        {"url": "a", "n": 1, "change_type": "insert", "sign": 1, EPOCH: 0},
        {"url": "b", "n": 1, "change_type": "insert", "sign": 1, EPOCH: 0},
        {"url": "a", "n": 1, "change_type": "update_before", "sign": -1, EPOCH: 1},
        {"url": "a", "n": 2, "change_type": "update_after", "sign": 1, EPOCH: 1},
    ]
    counts = [{"url": "a", "n": 2, "_bucket": 0}, {"url": "b", "n": 1, "_bucket": 0}]
    return {
        "count.counts": counts,
        "count.shown": counts,
        "count.shown (changes)": changes,
        "count.totals": totals,
        "count.told": totals,
        "count.seen": [{"url": r["url"], EPOCH: r[EPOCH]} for r in totals],
    }


def write(folder: Path, records: Records) -> list[TableRef]:
    tables = tables_of(build(), str(folder))
    for table in tables:
        write_deltalake(table.path, pa.Table.from_pylist(records[table.label]))
    return tables


def once(increments: Sequence[Sequence[dict[str, str]]]) -> ReferenceEngine:
    return reference(build(), "urls", increments)


@pytest.fixture(params=["plain", "with a space"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_the_right_tables_pass(folder: Path):
    """All checks hold for what the reference engine computes, wherever it lies."""
    tables = write(folder, right())
    assert against_reference(tables, once(PAGES)).ok
    assert from_scratch(tables, once([[*PAGES[0], *PAGES[1]]])).ok
    assert readers_agree(tables).ok


WRONG: dict[str, tuple[str, int, dict[str, Any]]] = {
    "a state record": ("count.counts", 0, {"url": "a", "n": 3}),
    "a last value": ("count.totals", 2, {"url": "a", "n": 9}),
    "an epoch of a history": ("count.told", 2, {"url": "a", "n": 2, EPOCH: 0}),
    "one of all records": ("count.seen", 1, {"url": "c"}),
    "a record of a view": ("count.shown", 0, {"n": 3}),
    "an epoch of a change": ("count.shown (changes)", 3, {EPOCH: 0}),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_wrong_record_fails(tmp_path: Path, what: str):
    """A difference of one record is found, and named with its table."""
    table, index, change = WRONG[what]
    records = right()
    records[table] = [dict(record) for record in records[table]]
    records[table][index] |= change
    check = against_reference(write(tmp_path, records), once(PAGES))
    assert not check.ok
    assert {one.table for one in check.differences} == {table}


@pytest.mark.parametrize("table", ["count.counts", "count.totals", "count.seen", "count.shown"])
def test_a_missing_record_fails_against_one_run_from_scratch(tmp_path: Path, table: str):
    """A record that was lost on the way is found without knowing the increments."""
    records = right()
    records[table] = records[table][1:2]
    assert not from_scratch(write(tmp_path, records), once([[*PAGES[0], *PAGES[1]]])).ok


def test_from_scratch_leaves_out_what_depends_on_the_split(tmp_path: Path):
    """Changes, and columns that are declared not to be compared: in one run they are others."""
    records = right()
    records["count.shown"] = [record | {"n": 9} for record in records["count.shown"]]
    records["count.shown (changes)"] = records["count.shown (changes)"][:1]
    assert from_scratch(write(tmp_path, records), once([[*PAGES[0], *PAGES[1]]])).ok


def test_a_record_twice_fails(tmp_path: Path):
    """Records are counted, not only looked for."""
    records = right()
    records["count.counts"] = [*records["count.counts"], records["count.counts"][1]]
    (difference,) = against_reference(write(tmp_path, records), once(PAGES)).differences
    assert (difference.expected, difference.found) == (1, 2)


def test_an_overwritten_value_does_not_count(tmp_path: Path):
    """Only the last value per key is the result of an output with a key."""
    records = right()
    records["count.totals"] = records["count.totals"][1:]
    assert against_reference(write(tmp_path, records), once(PAGES)).ok


def test_comparing_nothing_proves_nothing():
    """A check over no tables does not hold."""
    assert not readers_agree([]).ok


def test_bookkeeping_columns_are_left_out(tmp_path: Path):
    """What the service keeps for itself is not part of a record."""
    (state, *_) = write(tmp_path, right())
    assert sorted(read_polars(state)) == [("a", 2), ("b", 1)]
