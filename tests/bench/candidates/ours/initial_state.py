"""Writes a first state directly as the engine's own files, without running epochs.

    (records, _hash) -> by bucket, sorted by hash -> run files of bounded size -> one log entry

The files of a first state are made once; further candidates begin with hard links to them. That is
equivalent for all, since no engine changes a file. Each candidate has its own index copies.

Any engine continues from there as if its runs had made the files. The first run that reads a file
makes its index copy, which is why a benchmark warms up.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.managed_table import open_table
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.file_names import bucket_file
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.engine.storage.table_names import state_table
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import DataType
from tests.bench.workloads.workload import UrlCount

__all__ = ["ROWS_MAX", "load_counts", "load_state"]

ROWS_MAX = 2_000_000
"""Rows of one run file; keeps its strings far below 2 GB."""

_APP = "cbp/bench/load"
_LIST = "files.json"


def load_counts(
    folder: Path, node: StageNode, keys: int, *, spark: Any, shared: Path | None = None
) -> None:
    """Fill the stage's only state with the keys 0 to `keys`, each counted once.

    Args:
        folder: The dataflow's folder; its tables exist and are empty.
        spark: The session that makes them; `None` means that this process does.
        shared: Where the files are kept for later loads of the same state; `None` means nowhere.
    """
    (state,) = node.translator.states
    table = folder / state_table(node.name, state.name)
    schema = state_file_schema(state)

    def write() -> list[dict[str, Any]]:
        if spark is None:
            return list(_in_process(str(table), schema, keys, node.buckets))
        return _by_spark(spark, str(table), schema, keys, node.buckets)

    name = f"{node.name}.{state.name}-{node.buckets}-{keys}"
    described = _made_once(table, write, None if shared is None else shared / name)
    _show(str(table), described, keys)


def _made_once(
    table: Path, write: Callable[[], list[dict[str, Any]]], shared: Path | None
) -> list[dict[str, Any]]:
    """Write the files of a table, or link those that an earlier call left; return them."""
    if shared is not None and (shared / _LIST).exists():
        described: list[dict[str, Any]] = json.loads((shared / _LIST).read_text(encoding="utf-8"))
        _link(shared, table, described)
        return described
    described = write()
    if shared is not None:
        _link(table, shared, described)
        (shared / _LIST).write_text(json.dumps(described), encoding="utf-8")
    return described


def _link(source: Path, target: Path, described: Iterable[dict[str, Any]]) -> None:
    for one in described:
        path = target / one["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # left by a call that was interrupted
        try:
            os.link(source / one["path"], path)
        except OSError:  # a file system without links
            shutil.copyfile(source / one["path"], path)


def load_state(
    folder: Path,
    node: StageNode,
    state: str,
    records: pa.Table | Callable[[], pa.Table],
    *,
    shared: Path | None = None,
) -> None:
    """Write some records into one state of a stage, which must be empty.

    Args:
        folder: The dataflow's folder; its tables exist and are empty.
        records: The columns of the state, in any order; or a function that makes them.
        shared: The folder of these records, kept for later loads of the same state; `None` means
            that the files are not kept.
    """
    spec = node.translator.state(state)
    table = folder / state_table(node.name, state)

    def write() -> list[dict[str, Any]]:
        rows = records if isinstance(records, pa.Table) else records()
        if not rows.num_rows:
            return []
        described = list(_placed_rows(str(table), node, spec, rows))
        assert sum(one["rows"] for one in described) == rows.num_rows, "every record once"
        return described

    if described := _made_once(table, write, shared):
        _show(str(table), described, sum(one["rows"] for one in described))


def _placed_rows(
    table: str, node: StageNode, spec: StateSpec, records: pa.Table
) -> Iterator[dict[str, Any]]:
    """Write records as the run files of their buckets."""
    key = node.translator.key_of(spec)
    schema = state_file_schema(spec)
    keys = [records.column(field.name).combine_chunks() for field in key.fields]
    hashes = hash_columns(keys, [field.type for field in key.fields])
    rows = records.append_column("_hash", pa.array(hashes)).select(schema.names).cast(schema)
    return _by_bucket(table, rows, hashes, node.buckets)


def _show(table: str, described: Iterable[dict[str, Any]], rows: int) -> None:
    """Put all files of a state into one log entry."""
    now = time.time_ns() // 1_000_000
    adds = [
        AddFile(d["path"], {"_bucket": str(d["bucket"])}, d["size"], d["rows"], now)
        for d in described
    ]
    assert sum(add.rows for add in adds) == rows, "every record once"
    open_table(table, LocalFiles()).publish(
        adds=adds, app_id=_APP, version=0, intention_id="bench/load/0", timestamp_ms=now
    )


def _by_spark(
    spark: Any, table: str, schema: pa.Schema, keys: int, buckets: int
) -> list[dict[str, Any]]:
    rows = (
        spark.range(0, keys, 1, buckets)
        .selectExpr(f"{UrlCount.KEY_SQL} AS url")
        .selectExpr("url", "1L AS n", "xxhash64(url) AS _hash")
        .selectExpr("*", f"CAST(shiftrightunsigned(_hash, {bucket_shift(buckets)}) AS INT) AS b")
    )
    placed = rows.repartitionById(buckets, rows.b).sortWithinPartitions("_hash")
    written = placed.mapInArrow(_writer(table, schema), "body string").collect()
    return [json.loads(row.body) for row in written]


def _writer(
    table: str, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[pa.RecordBatch] = []
        rows, number, done = 0, 0, []
        for batch in batches:
            pending.append(batch)
            rows += batch.num_rows
            if rows >= ROWS_MAX:
                done.append(_written(table, pa.Table.from_batches(pending), schema, number))
                pending, rows, number = [], 0, number + 1
        if pending:
            done.append(_written(table, pa.Table.from_batches(pending), schema, number))
        bodies = [json.dumps(one) for one in done]
        yield pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.string())})

    return run


def _written(table: str, rows: pa.Table, schema: pa.Schema, number: int) -> dict[str, Any]:
    """Write one run file for the bucket in column `b`; return its description."""
    bucket = rows.column("b")[0].as_py()
    path = bucket_file(bucket, 0, "load", number)
    sink = ParquetSink(f"{table}/{path}", schema, faults=NO_FAULTS)
    sink.write(rows.select(schema.names).cast(schema))
    file = sink.close()
    assert file is not None, "a bucket's file has rows"
    sync_files([file.path], faults=NO_FAULTS)
    return {"bucket": bucket, "path": path, "rows": file.rows, "size": file.bytes}


def _in_process(table: str, schema: pa.Schema, keys: int, buckets: int) -> Iterator[dict[str, Any]]:
    urls = pa.array(UrlCount.urls(np.arange(keys)), pa.string())
    hashes = hash_columns([urls], [DataType("STRING")])
    n = pa.array(np.ones(keys, np.int64))
    rows = pa.Table.from_arrays([urls, n, pa.array(hashes)], schema=schema)
    return _by_bucket(table, rows, hashes, buckets)


def _by_bucket(
    table: str, rows: pa.Table, hashes: npt.NDArray[np.int64], buckets: int
) -> Iterator[dict[str, Any]]:
    """Write the rows of each bucket in files of bounded size, sorted by hash."""
    bucket = (hashes.view(np.uint64) >> np.uint64(bucket_shift(buckets))).astype(np.int32)
    placed = rows.append_column("b", pa.array(bucket))
    for one in np.unique(bucket).tolist():
        mine = placed.filter(pa.array(bucket == one)).sort_by("_hash")
        for number, start in enumerate(range(0, mine.num_rows, ROWS_MAX)):
            yield _written(table, mine.slice(start, ROWS_MAX), rows.schema, number)
