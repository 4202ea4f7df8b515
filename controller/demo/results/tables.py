"""Reads the tables of a dataflow with independent readers: delta-rs with its own SQL, and Polars.

Both read the Delta log and the Parquet files by themselves; neither knows this service. A record
is a tuple of the declared columns, in their order. Lists become tuples, so that records can be
counted.

Polars (tried: 2.1) looks for the files of a table in the percent-encoded path and does not find
them. Below a folder whose name needs encoding (a space), Polars reads a copy at a plain path.
delta-rs reads such tables as they are.

Guaranteed: the bookkeeping columns (`_bucket`, `_hash`, `_epoch`) are in no record.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.storage.table_names import flow_table, state_table
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.stage import OutputSpec
from cbp.model.flow.schema import Schema

__all__ = [
    "Row",
    "TableRef",
    "as_row",
    "frame",
    "groups_in",
    "is_plain",
    "read_deltalake",
    "read_epochs",
    "read_polars",
    "tables_of",
]

EPOCH = "_epoch"
_PLAIN = re.compile(r"[A-Za-z0-9._=/-]+")

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableRef:
    """One table of a dataflow.

    Attributes:
        stage, name: Names of the stage, and of the state or output.
        path: Its folder.
        output: Its declaration if it is an output flow; `None` for a state.
        not_compared: Columns of a state that differ if the input is split otherwise.
    """

    stage: str
    name: str
    path: str
    schema: Schema
    output: OutputSpec | None = None
    not_compared: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """`stage.name`; the flow of a view's changes adds `(changes)`, as the view has its name."""
        return f"{self.flow} (changes)" if self.output and self.output.view else self.flow

    @property
    def flow(self) -> str:
        """`stage.name`."""
        return f"{self.stage}.{self.name}"


def tables_of(dataflow: Dataflow, folder: str) -> list[TableRef]:
    """Return every table of a dataflow, states first, in the order of the stages."""
    states, outputs = [], []
    for stage, node in dataflow.stages.items():
        for state in node.translator.states:
            path = f"{folder}/{state_table(stage, state.name)}"
            states.append(TableRef(stage, state.name, path, state.schema, None, state.not_compared))
        for output in node.translator.outputs:
            path = f"{folder}/{flow_table(stage, output.name)}"
            outputs.append(TableRef(stage, output.name, path, output.schema, output))
    return [*states, *outputs]


def is_plain(path: str) -> bool:
    """Return whether Polars reads tables below this path; see the module header."""
    return _PLAIN.fullmatch(path) is not None


def frame(table: TableRef, columns: Sequence[str] = ()) -> pl.DataFrame:
    """Read columns of a table with delta-rs; by default the declared ones."""
    names = ", ".join(f'"{name}"' for name in columns or table.schema.names)
    query = QueryBuilder().register("t", DeltaTable(table.path))
    return pl.DataFrame(query.execute(f"SELECT {names} FROM t").read_all())


def read_deltalake(table: TableRef) -> list[Row]:
    """Read a table with delta-rs."""
    return _rows(frame(table))


def read_epochs(table: TableRef) -> dict[int, list[Row]]:
    """Read an output with delta-rs, by epoch; empty epochs are missing."""
    epochs: dict[int, list[Row]] = {}
    for epoch, *row in _rows(frame(table, (EPOCH, *table.schema.names))):
        epochs.setdefault(epoch, []).append(tuple(row))
    return epochs


def read_polars(table: TableRef) -> list[Row]:
    """Read a table with Polars."""
    with _plain(table.path) as path:
        return _rows(pl.scan_delta(path).select(table.schema.names).collect())


def as_row(record: Mapping[str, Any], schema: Schema) -> Row:
    """Return a record of the reference engine in the form of the readers' records."""
    return tuple(_frozen(record[name]) for name in schema.names)


def groups_in(table: TableRef, key: tuple[str, ...]) -> int:
    """Return the number of groups that a state holds."""
    return frame(table, key).unique().height


@contextmanager
def _plain(path: str) -> Iterator[str]:
    """Yield a path to the table that needs no percent-encoding; see the module header."""
    if is_plain(path):
        yield path
        return
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp")
    place = next(filter(is_plain, places))
    with tempfile.TemporaryDirectory(prefix="cbp-demo-copy-", dir=place) as folder:
        copy = Path(folder, "table")
        shutil.copytree(path, copy)
        yield str(copy)


def _rows(read: pl.DataFrame) -> list[Row]:
    return [tuple(map(_frozen, row)) for row in read.iter_rows()]


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(map(_frozen, value))
    return value
