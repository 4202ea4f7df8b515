"""The comparison at the end of the demo: one wrong record is enough to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cbp import Dataflow, DataflowBuilder, Input, Output, State, Translate, View
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.testing import Result, run_dataflow
from controller.demo.run import (
    EPOCH,
    by_delta_rs,
    by_polars,
    first_difference,
    histories,
    read_tables,
    records_in,
)

PAGES = [[{"url": "a"}, {"url": "b"}], [{"url": "a"}]]


class Count(Translate):
    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT", key="url")
    seen = Output("url STRING")
    history = Output("url STRING, n BIGINT", history=True)
    shown = View("url STRING, n BIGINT", key="url", not_compared="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.counts)
        for record in group.urls:
            n += 1
            out.seen(url=record.url)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)
        out.history(url=key.url, n=n)
        out.shown(url=key.url, n=n)


def build() -> Dataflow:
    flow = DataflowBuilder("counts")
    flow.stage("count", Count(), urls=flow.source("urls", "url STRING"))
    return flow.build()


EXPECTED = run_dataflow(build(), {"urls": PAGES})
SCRATCH = run_dataflow(build(), {"urls": [[*PAGES[0], *PAGES[1]]]})

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
        state_table("count", "counts"): counts,
        state_table("count", "shown"): counts,
        flow_table("count", "shown"): changes,
        flow_table("count", "totals"): totals,
        flow_table("count", "history"): totals,
        flow_table("count", "seen"): [{"url": r["url"], EPOCH: r[EPOCH]} for r in totals],
    }


def written(folder: Path, records: Records) -> Result:
    """Write the tables, and return what a reader finds."""
    for table, rows in records.items():
        write_deltalake(folder / table, pa.Table.from_pylist(rows))
    return read_tables(build(), str(folder), EXPECTED)


@pytest.fixture(params=["plain", "with a space"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_the_right_tables_pass(folder: Path):
    """All comparisons hold for what the test kit computes, wherever the tables are."""
    actual = written(folder, right())
    assert first_difference(EXPECTED, actual) == ""
    assert SCRATCH.difference(actual, without=histories(build())) == ""
    assert first_difference(actual, read_tables(build(), str(folder), actual, by_polars)) == ""
    assert records_in(actual) == records_in(EXPECTED) == 17


WRONG: dict[str, tuple[str, int, dict[str, Any]]] = {
    "a state record": (state_table("count", "counts"), 0, {"url": "a", "n": 3}),
    "a last value": (flow_table("count", "totals"), 2, {"url": "a", "n": 9}),
    "an epoch of a history": (flow_table("count", "history"), 2, {"url": "a", "n": 2, EPOCH: 0}),
    "an epoch too many": (flow_table("count", "seen"), 1, {EPOCH: 2}),
    "one of all records": (flow_table("count", "seen"), 1, {"url": "c"}),
    "a record of a view": (state_table("count", "shown"), 0, {"n": 3}),
    "an epoch of a change": (flow_table("count", "shown"), 3, {EPOCH: 0}),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_wrong_record_is_found(tmp_path: Path, what: str):
    """A difference of one record is found, and named with its table."""
    table, index, change = WRONG[what]
    records = right()
    records[table] = [dict(record) for record in records[table]]
    records[table][index] |= change
    difference = first_difference(EXPECTED, written(tmp_path, records))
    kind = "state" if table.startswith("state/") else "output"
    assert difference.startswith(f"{kind} {table.rpartition('/')[2]}: ")


@pytest.mark.parametrize("twice", [False, True])
def test_records_are_counted(tmp_path: Path, twice: bool):
    """A record that is missing or there twice is a difference."""
    records = right()
    counts = records[state_table("count", "counts")]
    records[state_table("count", "counts")] = [*counts, counts[1]] if twice else counts[:1]
    assert first_difference(EXPECTED, written(tmp_path, records)).startswith("state count.counts: ")


def test_bookkeeping_columns_are_left_out(tmp_path: Path):
    """What the service keeps for itself is not part of a record."""
    written(tmp_path, right())
    path = str(tmp_path / state_table("count", "counts"))
    for frame in (by_delta_rs, by_polars):
        assert sorted(frame(path, ("url", "n")).rows()) == [("a", 2), ("b", 1)]
