"""What the tables of a dataflow hold: all of every state, and the last records of every output.

Spark reads them as anybody's Delta tables, by its own reader; without Spark the live files
are read here. Neither goes through the engine's look-ups or index copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cbp.engine.base import flow_table, state_table
from cbp.engine.batches import live_batches
from cbp.engine.delta.tables import open_table
from cbp.engine.files import LocalFiles
from cbp.model.dataflow import Dataflow
from cbp.model.schema import Field, Schema
from controller.bench.digests import digest_of, frame_digest, last_digest, last_frame
from controller.bench.held import Digest, Totals

__all__ = ["totals_of_tables"]

_EPOCH = "_epoch"


def totals_of_tables(folder: Path, dataflow: Dataflow, *, spark: Any) -> Totals:
    """Return what all tables hold.

    The outputs of a dataflow that is measured have one record per key and epoch at most.

    Args:
        folder: The dataflow's folder.
        dataflow: Whose tables they are.
        spark: The session that reads; `None`: this process does.
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
        yield from live_batches(str(path), file, columns)
