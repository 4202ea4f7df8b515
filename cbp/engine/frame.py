"""Find the frames of an output increment: the framing key of each record, from its files.

One pass in this process, file by file and window by window, in the order of the records;
a column's keys are computed once per run of equal values. A frame's files are slices, so
nothing is written. What is held in memory is one window and the slices, of which an
increment may have `SLICES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.conform import conform
from cbp.engine.rows import decode_columns, row_type
from cbp.errors import FramesScatteredError, IncrementDamagedError
from cbp.model.framing import Keyed, Segment, extend_runs, framing_keys, segments
from cbp.model.increment import DataFile, FramingKey, Increment
from cbp.model.stage import InputSpec

__all__ = ["frame_increment"]

SLICES_MAX = 50_000
"""Slices of one increment: each is a line of its consumer's queue, some 60 bytes of JSON."""

_WINDOW_ROWS = 65_536


def frame_increment(
    folder: str, increment: Increment, spec: InputSpec, memo: Any, *, stage: str
) -> tuple[list[Segment], Any]:
    """Return the segments of an output increment, and the memo behind it.

    Args:
        folder: Of the dataflow; a local path.
        increment: As its stage wrote it.
        spec: A framed input that reads it.
        memo: Of the input's FrameBy, before this increment.
        stage: That reads it, for errors.

    Raises:
        IncrementDamagedError: A file is missing, damaged, or has other records.
        AuthorCodeError: The function failed, or gave no framing key.
        FramesScatteredError: It has more than `SLICES_MAX` runs of equal keys.
    """
    assert spec.frame_by is not None, "only a framed input has frames"
    keyed, slices = [], 0
    for file in increment.files:
        runs: list[tuple[FramingKey, int]] = []
        rows = 0
        for window in _windows(folder, file, spec):
            found, memo = _keys(window, spec, memo, stage)
            extend_runs(runs, found)
            rows += len(found)
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
    make = row_type(spec.name, tuple(names))._make
    if not frame_by.column:
        return framing_keys(map(make, columns), frame_by, memo, stage=stage, input_=spec.name)
    runs = [(value, len(list(run))) for value, run in groupby(columns)]
    records = (make(value) for value, _ in runs)
    found, memo = framing_keys(records, frame_by, memo, stage=stage, input_=spec.name)
    return [key for key, (_, n) in zip(found, runs, strict=True) for _ in range(n)], memo


def _windows(folder: str, file: DataFile, spec: InputSpec) -> Iterator[pa.Table]:
    assert spec.frame_by is not None
    names = (spec.frame_by.column,) if spec.frame_by.column else spec.schema.names
    columns = arrow_schema(spec.schema.select(names))
    path = f"{folder}/{file.path}"
    try:
        with pq.ParquetFile(path) as source:
            at = 0
            for batch in source.iter_batches(
                _WINDOW_ROWS, columns=columns.names, use_threads=False
            ):
                start, stop = max(file.start - at, 0), min(file.stop - at, batch.num_rows)
                at += batch.num_rows
                if start < stop:
                    part = batch.slice(start, stop - start)
                    yield conform(pa.Table.from_batches([part]), columns)
                if at >= file.stop:
                    break
    except (OSError, pa.ArrowException) as exc:
        raise IncrementDamagedError(path, expected=file.records, found=str(exc)) from exc
