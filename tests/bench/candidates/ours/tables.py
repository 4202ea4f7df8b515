"""Reads all tables of a dataflow: every state record, and the last records of every output.

Spark reads them with its own Delta reader, as any Delta tables. Without Spark, this module reads
the live files itself. Neither uses the engine's look-ups or index copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.delta.live_records import live_batches
from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.schema import Field, Schema
from cbp.model.flow.signed_changes import CHANGE_COLUMNS, SIGN
from tests.bench.comparison.digests import digest_of, frame_digest, last_digest, last_frame
from tests.bench.comparison.result_comparison import Digest, Totals

__all__ = ["latest_emitted", "totals_of_tables"]

_EPOCH = "_epoch"


def totals_of_tables(folder: Path, dataflow: Dataflow, *, spark: Any) -> Totals:
    """Return the contents of all tables.

    Outputs of a measured dataflow have at most one record per key and epoch.

    Args:
        folder: The dataflow's folder.
        dataflow: The dataflow.
        spark: The session that reads; `None` means that this process reads.
    """
    states: dict[str, Digest] = {}
    emitted: dict[str, Digest] = {}
    for name, node in dataflow.stages.items():
        for state in node.translator.states:
            path = folder / state_table(name, state.name)
            states[f"{name}.{state.name}"] = _state(path, state.schema, spark)
        for output in node.translator.outputs:
            path = folder / flow_table(name, output.name)
            key = [output.schema.fields[output.schema.index(column)] for column in output.key]
            emitted[f"{name}.{output.name}"] = _output(path, output.schema, key, spark)
    return Totals(states, emitted)


def latest_emitted(folder: Path, dataflow: Dataflow, epoch: int) -> Iterator[pa.RecordBatch]:
    """Yield the output of one epoch of the dataflow's only stage and only output.

    If it is the changes of a view, yield the records that the view has now.
    """
    ((name, node),) = dataflow.stages.items()
    (output,) = node.translator.outputs
    names = [column for column in output.schema.names if column not in CHANGE_COLUMNS]
    path = folder / flow_table(name, output.name)
    for file in open_table(str(path), LocalFiles()).snapshot.live.values():
        # A file's name begins with the epoch that wrote it; it holds no later records.
        if int(file.path.rpartition("/")[2].partition("-")[0]) >= epoch:
            for batch in live_batches(
                str(path), file, [_EPOCH, *output.schema.names], limits=DEFAULT_LIMITS
            ):
                emitted = batch.filter(pc.equal(batch.column(_EPOCH), epoch))
                if output.view:
                    emitted = emitted.filter(pc.greater(emitted.column(SIGN), 0))
                yield emitted.select(names)


def _state(path: Path, schema: Schema, spark: Any) -> Digest:
    if spark is not None:
        return frame_digest(spark.read.format("delta").load(str(path)), schema.names)
    return digest_of(_batches(path, schema.names), schema.fields)


def _output(path: Path, schema: Schema, key: Sequence[Field], spark: Any) -> Digest:
    if spark is None:
        batches = _batches(path, [_EPOCH, *schema.names])
        return last_digest(batches, key, schema.fields, _EPOCH)
    frame = spark.read.format("delta").load(str(path))
    names = [field.name for field in key]
    return frame_digest(last_frame(frame, names, schema.names, _EPOCH), schema.names)


def _batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in open_table(str(path), LocalFiles()).snapshot.live.values():
        yield from live_batches(str(path), file, columns, limits=DEFAULT_LIMITS)
