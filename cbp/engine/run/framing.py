"""Framing: find the frames of an output increment from the framing key of each record.

This takes one pass in this process over the files, window by window, in the order of the records.
The key of a framing column is computed once per run of equal values. A frame's files are slices,
so nothing is written. Memory holds one window and the slices, at most `SLICES_MAX` per increment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.row_codec import decode_columns
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.errors import FramesScatteredError, IncrementDamagedError
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.attributes import record_class
from cbp.model.flow.framing import Keyed, Segment, extend_runs, framing_keys, segments
from cbp.model.flow.increment import DataFile, FramingKey, Increment

SLICES_MAX = 50_000
"""Maximum number of slices of one increment.

Each is a line in its consumer's queue, some 60 bytes of JSON.
"""

_WINDOW_ROWS = 65_536


def frame_increment(
    folder: str, increment: Increment, spec: InputSpec, memo: Any, *, stage: str
) -> tuple[list[Segment], Any]:
    """Return the segments of an output increment, and the memo after it.

    Args:
        folder: The dataflow's folder; a local path.
        increment: The increment, as its stage wrote it.
        spec: The framed input that reads it.
        memo: The memo of the input's FrameBy before this increment.
        stage: The stage that reads it; used in errors.

    Raises:
        IncrementDamagedError: If a file is missing, damaged, or has other records.
        AuthorCodeError: If the author's function failed or returned no framing key.
        FramesScatteredError: If it has more than `SLICES_MAX` runs of equal keys.
    """
    assert spec.frame_by is not None, "only a framed input has frames"
    keyed, slices = [], 0
    for file in increment.files:
        runs: list[tuple[FramingKey, int]] = []
        rows = 0
        for window in _windows(folder, file, spec):
            keys, memo = _keys(window, spec, memo, stage)
            extend_runs(runs, keys)
            rows += len(keys)
            if slices + len(runs) > SLICES_MAX:
                raise FramesScatteredError(
                    stage, spec.name, spec.frame_by.place, increment=increment.name, most=SLICES_MAX
                )
        if rows != file.rows:
            raise IncrementDamagedError(file.path, expected=file.rows, found=rows)
        slices += len(runs)
        keyed.append(Keyed(file, runs))
    return segments(keyed, ordered=spec.frame_by.memo), memo


def _keys(window: pa.Table, spec: InputSpec, memo: Any, stage: str) -> tuple[list[FramingKey], Any]:
    frame_by = spec.frame_by
    assert frame_by is not None
    names = window.schema.names
    columns = decode_columns(window, names, [spec.schema[name].type for name in names])
    make = record_class(spec.name, tuple(names))._make
    if not frame_by.column:
        return framing_keys(map(make, columns), frame_by, memo, stage=stage, input_=spec.name)
    runs = [(value, len(list(run))) for value, run in groupby(columns)]
    records = (make(value) for value, _ in runs)
    keys, memo = framing_keys(records, frame_by, memo, stage=stage, input_=spec.name)
    return [key for key, (_, n) in zip(keys, runs, strict=True) for _ in range(n)], memo


def _windows(folder: str, file: DataFile, spec: InputSpec) -> Iterator[pa.Table]:
    assert spec.frame_by is not None
    names = (spec.frame_by.column,) if spec.frame_by.column else spec.schema.names
    columns = arrow_schema(spec.schema.select(names))
    path = f"{folder}/{file.path}"
    with reading_increment(path, file.records), open_parquet(path) as source:
        at = 0
        for batch in source.iter_batches(_WINDOW_ROWS, columns.names):
            start, stop = max(file.start - at, 0), min(file.stop - at, batch.num_rows)
            at += batch.num_rows
            if start < stop:
                part = batch.slice(start, stop - start)
                yield conform(pa.Table.from_batches([part]), columns)
            if at >= file.stop:
                break
