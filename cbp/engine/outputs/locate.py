"""Locate old increments of a stage's flow in the files into which compaction merged them.

A merge keeps the records of an output table in the order of the flow, whole epochs side by
side (`cbp.engine.outputs.compaction`). So an increment whose own files are gone is a slice of
each merged file that holds them. Every reader of increments reads slices, so nothing is written,
and only the column `_epoch` is read.

    totals/7   _runs/7-0.parquet                          gone
               _runs/merged-15.parquet, rows 210 to 240   found

Guaranteed: a located increment has as many records as were recorded; otherwise the increment is
returned as it was given (tests/cbp/engine/outputs/test_locate.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.deletion_vectors import read_vector, rows_of
from cbp.engine.outputs.compaction import epochs_of, in_order
from cbp.engine.storage.checked_parquet import open_parquet
from cbp.engine.storage.table_names import flow_table
from cbp.model.flow.increment import DataFile, Increment

_NONE = np.empty(0, np.int64)


def located(
    folder: str, flow: str, increments: Sequence[Increment], live: Sequence[AddFile]
) -> list[Increment]:
    """Return increments with the files of their table that hold their records now."""
    stage, _, output = flow.partition(".")
    table = flow_table(stage, output)
    parts_by_index: dict[int, list[DataFile]] = {increment.index: [] for increment in increments}
    for file in in_order(live):
        first, last = epochs_of(file)
        wanted = [index for index in parts_by_index if first <= index <= last]
        for index, part in _parts(folder, table, file, wanted):
            parts_by_index[index].append(part)
    return [_if_whole(increment, parts_by_index[increment.index]) for increment in increments]


def _parts(
    folder: str, table: str, file: AddFile, wanted: Sequence[int]
) -> Iterator[tuple[int, DataFile]]:
    """Yield the slice of a file for each epoch of which no row was deleted."""
    if not wanted:
        return
    path = f"{folder}/{table}/{file.path}"
    with open_parquet(path) as source:
        epochs = source.read(["_epoch"]).column(0).to_numpy()
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
