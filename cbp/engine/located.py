"""Old increments of a stage's flow, found in the files that compaction made of their own.

A merge keeps the records of an output table in the order of the flow, whole epochs side by
side (`cbp.engine.tiers`). So an increment whose files are gone is a slice of each file that
took them up, and slices are what every reader of increments reads anyway: nothing is
written, and nothing is read but the column of epochs.

    totals/7   _runs/7-0.parquet                          gone
               _runs/merged-15.parquet, rows 210 to 240   found

Guaranteed: what is returned has as many records as were recorded, or is the increment as it
was given (tests/cbp/engine/test_located.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq

from cbp.engine.base import flow_table
from cbp.engine.delta.actions import AddFile
from cbp.engine.state.vectors import read_vector, rows_of
from cbp.engine.tiers import epochs_of, in_order
from cbp.model.increment import DataFile, Increment

__all__ = ["located"]

_NONE = np.empty(0, np.int64)


def located(
    folder: str, flow: str, increments: Sequence[Increment], live: Sequence[AddFile]
) -> list[Increment]:
    """Return increments by the files of their table that hold their records now.

    Args:
        folder: Of the dataflow; a local path.
        flow: `stage.output`.
        increments: Of the flow.
        live: The files of its table.
    """
    stage, _, output = flow.partition(".")
    table = flow_table(stage, output)
    found: dict[int, list[DataFile]] = {increment.index: [] for increment in increments}
    for file in in_order(live):
        first, last = epochs_of(file)
        wanted = [index for index in found if first <= index <= last]
        for index, part in _parts(folder, table, file, wanted):
            found[index].append(part)
    return [_if_whole(increment, found[increment.index]) for increment in increments]


def _parts(
    folder: str, table: str, file: AddFile, wanted: Sequence[int]
) -> Iterator[tuple[int, DataFile]]:
    """Yield the rows of a file that are of each epoch, as far as no row of them was deleted."""
    if not wanted:
        return
    with pq.ParquetFile(f"{folder}/{table}/{file.path}") as source:
        epochs = source.read(columns=["_epoch"], use_threads=False).column(0).to_numpy()
    vector = file.deletion_vector
    dead = rows_of(read_vector(f"{folder}/{table}", vector)) if vector else _NONE
    for index in wanted:
        start = int(np.searchsorted(epochs, index, "left"))
        stop = int(np.searchsorted(epochs, index, "right"))
        if stop > start and not ((dead >= start) & (dead < stop)).any():
            whole = DataFile(f"{table}/{file.path}", len(epochs), file.size)
            yield index, whole.slice(start, stop)


def _if_whole(increment: Increment, files: Sequence[DataFile]) -> Increment:
    if sum(file.rows for file in files) != increment.records:
        return increment
    return replace(increment, files=tuple(files))
