"""Columns of any name: keywords of Python, attributes of tuples, and names of our own code.

A name of letters, digits and `_` is allowed (`cbp/model/flow/attributes.py`); any other is refused
with the rule.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp import DataflowBuilder, Input, Output, Translate
from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import check_split, run_dataflow, run_epochs
from tests.columns import EPOCHS, NAMES, form_of, records_of
from tests.controller.ingest.harness import Drop
from tests.driver import Driver

COUNTS = Counter(chain.from_iterable(EPOCHS))


def dataflow_of(form: str, name: str) -> Dataflow:
    translator = form_of(form, name)
    builder = DataflowBuilder("flow")
    source = builder.source("links", str(translator.spec().input("links").schema))
    builder.stage("one", translator, buckets=2, links=source)
    return builder.build()


@pytest.mark.parametrize("form", ["groupwise", "by"])
@pytest.mark.parametrize("name", NAMES)
def test_the_kit_takes_a_column_of_any_name(name: str, form: str) -> None:
    """By attribute, by name and by place; in keys, state and outputs, and as `last` shows it."""
    batch = check_split(form_of(form, name), records_of(name))
    assert batch.last("totals") == COUNTS
    assert {row[0]: row.n for row in batch.state["kept"]} == COUNTS
    assert [row[1]["from"] for row in batch.outputs["seen"][0]].count("/a") == 3


@pytest.mark.part(every=2)
@pytest.mark.parametrize("form", ["groupwise", "by", "arrow"])
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_takes_a_column_of_any_name(name: str, form: str, tmp_path: Path) -> None:
    """Each epoch's outputs and the state are the kit's; each form's are the groupwise one's."""
    flow = dataflow_of(form, name)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), flow, tmp_path / "t")
    for epoch in records_of(name):
        driver.feed("links", epoch)
        driver.run_until_idle()
    kit = run_dataflow(dataflow_of("groupwise", name), {"links": records_of(name)})
    for output in ("one.totals", "one.seen"):
        made = [[tuple(row.values()) for row in epoch] for epoch in driver.outputs(output)]
        asked = [[tuple(row) for row in epoch] for epoch in kit.outputs[output]]
        assert [sorted(epoch, key=repr) for epoch in made] == [
            sorted(epoch, key=repr) for epoch in asked
        ]
    assert {row[name]: row["n"] for row in driver.state("one", "kept")} == COUNTS


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_files_have_columns_of_these_names(format_: str, tmp_path: Path) -> None:
    """In every format a column has its own name."""
    schema = ", ".join(f"{name} STRING" for name in NAMES)
    values = {name: f"v{at}" for at, name in enumerate(NAMES)}
    if format_ == "parquet":
        pq.write_table(pa.table({n: [v] for n, v in values.items()}), tmp_path / "file")
    text = {
        "jsonl": json.dumps(values) + "\n",
        "csv": ",".join(values) + "\n" + ",".join(values.values()) + "\n",
    }
    data = text[format_].encode() if format_ in text else (tmp_path / "file").read_bytes()
    drop = Drop(tmp_path, schema, format_)
    drop.put(f"one.{format_}", data)
    assert drop.scan().accepted == 1, drop.reasons()
    assert drop.table().to_pylist() == [values]


def failure(function: Any) -> CbpError:
    class Made(Translate):
        links = Input("from STRING, n BIGINT", route_by="from")
        totals = Output("from STRING, n BIGINT")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            function(key, group, out)

    with pytest.raises(CbpError) as caught:
        run_epochs(Made(), [[("a", 1)]])
    return caught.value


@pytest.mark.parametrize("absent", ["count", "index", "link"])
def test_a_name_that_is_no_column_is_told_with_the_columns(absent: str) -> None:
    """`count` and `index` too, though every tuple has them: `if row.count` was always true."""
    error = failure(lambda key, group, out: [getattr(row, absent) for row in group.links])
    assert error.code == "author_code_failed"
    assert f"has no attribute {absent!r}; use one of from_, n" in error.details["cause"]


def test_a_column_given_under_both_names_is_refused() -> None:
    """One value would be lost."""
    error = failure(lambda key, group, out: out.totals(from_="a", n=1, **{"from": "b"}))
    assert error.code == "author_code_failed"
    assert "twice" in error.details["cause"]
