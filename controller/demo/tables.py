"""Reads the tables of a dataflow with other readers, and compares them with a result in memory.

Guaranteed: a difference of one record is found (tests/controller/demo/test_tables.py). Columns
that the service keeps for itself (`_bucket`, `_hash`) are not compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.storage.table_names import flow_table, state_table
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import identity, view_difference
from cbp.testing import Result

EPOCH = "_epoch"

Frame = Callable[[str, Sequence[str]], pl.DataFrame]
"""Reads columns of the table in a folder."""


def by_delta_rs(path: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read a table with delta-rs, by its own SQL."""
    names = ", ".join(f'"{name}"' for name in columns)
    query = QueryBuilder().register("t", DeltaTable(path))
    return pl.DataFrame(query.execute(f"SELECT {names} FROM t").read_all())


def by_polars(path: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read a table with Polars.

    Polars (tried: 2.1) finds no files below a folder whose name needs percent-encoding (a space),
    so it reads a copy of such a table.
    """
    if quote(path) == path:
        return pl.scan_delta(path).select(columns).collect()
    with tempfile.TemporaryDirectory(prefix="cbp-demo-copy-", dir="/tmp") as folder:
        copy = shutil.copytree(path, Path(folder, "table"))
        return pl.scan_delta(str(copy)).select(columns).collect()


def read_tables(flow: Dataflow, folder: str, like: Result, frame: Frame = by_delta_rs) -> Result:
    """Return the contents of the tables in a folder, in the form of a test run's result.

    Args:
        like: A result with at least as many epochs as the tables should have.
    """
    state: dict[str, list[tuple[Any, ...]]] = {}
    outputs: dict[str, list[list[tuple[Any, ...]]]] = {}
    for stage, node in flow.stages.items():
        for kept in node.translator.states:
            path = f"{folder}/{state_table(stage, kept.name)}"
            state[f"{stage}.{kept.name}"] = frame(path, kept.schema.names).rows()
        for output in node.translator.outputs:
            name, path = f"{stage}.{output.name}", f"{folder}/{flow_table(stage, output.name)}"
            rows = frame(path, (EPOCH, *output.schema.names)).rows()
            count = max([len(like.outputs[name]), *(row[0] + 1 for row in rows)])
            outputs[name] = [[] for _ in range(count)]
            for epoch, *values in rows:
                outputs[name][epoch].append(tuple(values))
    return replace(like, state=state, outputs=outputs)


def first_difference(expected: Result, found: Result) -> str:
    """Return the first difference, record by record and epoch by epoch; `""` if there is none.

    `Result.difference` compares less: only results that do not depend on the split of the
    input.
    """
    for name, rows in expected.state.items():
        left, right = _by_epoch([rows, found.state[name]])
        if said := view_difference(left, right):
            return f"state {name}: {said}"
    for name, epochs in expected.outputs.items():
        if said := view_difference(_by_epoch(epochs), _by_epoch(found.outputs[name])):
            return f"output {name}: {said}"
    return ""


def _by_epoch(epochs: Sequence[Sequence[Any]]) -> list[Counter[Hashable]]:
    return [Counter(map(identity, epoch)) for epoch in epochs]


def histories(flow: Dataflow) -> list[str]:
    """Return the outputs with a history, which depend on the split of the input into epochs."""
    return [
        f"{stage}.{output.name}"
        for stage, node in flow.stages.items()
        for output in node.translator.outputs
        if output.history
    ]


def records_in(result: Result) -> int:
    """Return how many records a result has, in states and outputs."""
    emitted = sum(len(epoch) for epochs in result.outputs.values() for epoch in epochs)
    return emitted + sum(map(len, result.state.values()))
