"""Framing: find the frames of an output increment from the framing key of each record.

This takes one pass in this process over the files, window by window, in the order of the records.
The key of a framing column is computed once per run of equal values. A frame's files are slices,
so nothing is written. In memory are one window, and at most `SLICES_MAX` slices of an increment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.row_codec import decode_columns
from cbp.engine.interface.runs import RunPlan
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.storage.file_names import file_epoch, file_part
from cbp.errors import (
    AuthorCodeError,
    FramesScatteredError,
    IncrementDamagedError,
    SetAsideFullError,
)
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.attributes import record_class
from cbp.model.flow.framing import Keyed, Refused, Segment, extend_runs, framing_keys, segments
from cbp.model.flow.increment import DataFile, FramingKey, Increment

SLICES_MAX = 50_000
"""Maximum number of slices of one increment. Each takes some 60 bytes of JSON in the queue of its
consumer."""

_WINDOW_ROWS = 65_536


def frame_increment(
    folder: str,
    increment: Increment,
    spec: InputSpec,
    memo: Any,
    *,
    stage: str,
    set_aside_max: int | None,
) -> tuple[list[Segment], Any]:
    """Return the segments of an output increment, and the memo after it.

    Raises:
        IncrementDamagedError: If a file is missing, damaged, or has other records.
        AuthorCodeError: If the author's function failed or returned no framing key.
        SetAsideFullError: If it failed on more than `set_aside_max` records.
        FramesScatteredError: If the increment has more than `SLICES_MAX` runs of equal keys.
    """
    assert spec.frame_by is not None, "the input has no frame_by"
    keyed, slices, refused, before = [], 0, 0, 0
    for file in increment.files:
        runs: list[tuple[FramingKey | Refused, int]] = []
        rows = 0
        for window in _windows(folder, file, spec):
            try:
                keys, memo = _keys(window, spec, memo, stage, refuses=set_aside_max is not None)
            except AuthorCodeError as error:
                for name, row in error.places.items():
                    place = named_record(increment, before + rows + row)
                    error.details = {**error.details, "records": {name: place}}
                raise
            failed = [key for key in keys if isinstance(key, Refused)]
            refused += len(failed)
            if set_aside_max is not None and refused > set_aside_max:
                raise SetAsideFullError(
                    stage=stage,
                    function=f"{spec.name}.frame_by",
                    place=spec.frame_by.place,
                    cause=f"with {increment.name}, there are more records to set aside than "
                    f"set_aside_max allows ({set_aside_max}). The last error: {failed[-1].message}",
                )
            extend_runs(runs, keys)
            rows += len(keys)
            if slices + len(runs) > SLICES_MAX:
                raise FramesScatteredError(
                    stage, spec.name, spec.frame_by.place, increment=increment.name, most=SLICES_MAX
                )
        if rows != file.rows:
            raise IncrementDamagedError(file.path, expected=file.rows, found=rows)
        before += rows
        slices += len(runs)
        keyed.append(Keyed(file, runs))
    return segments(keyed, ordered=spec.frame_by.memo), memo


def named_record(increment: Increment, place: int) -> dict[str, Any]:
    """Return a record's place as errors report it."""
    return {"flow": increment.flow, "increment": increment.index, "record": place}


def brought_by(plan: RunPlan, name: str, place: int) -> tuple[Increment, int] | None:
    """Return the increment that brought an input's n-th record, and the record's place in it."""
    for increment in plan.inputs.get(name, ()):
        if place < increment.records:
            input_ = plan.node.translator.input(name)
            return _place_in_flow(increment, place, input_, plan.origins.before)
        place -= increment.records
    return None


def _place_in_flow(
    increment: Increment, place: int, input_: InputSpec, before: Mapping[str, int]
) -> tuple[Increment, int] | None:
    # In a frame, the name of a file has the number of its increment, but not the number of records
    # before the file.
    if input_.frame_by is None:
        return increment, place
    for file in increment.files:
        if place < file.rows:
            index, part = file_epoch(file.path), file_part(file.path)
            skipped = before.get(file.path) if part else 0
            if index is None or skipped is None or file.path.endswith("-merged.parquet"):
                return None
            whole = DataFile(file.path, file.records, file.bytes)
            at = skipped + file.start + place
            return Increment(increment.flow, index, index, (whole,)), at
        place -= file.rows
    return None


def increments_of(increment: Increment, input_: InputSpec) -> list[Increment]:
    """Return the flow's increments whose records an input reads: itself, or those of a frame.

    A frame has files of several increments; each is returned once, with its files in the frame.
    """
    if input_.frame_by is None:
        return [increment]
    found: dict[int, dict[str, DataFile]] = {}
    for file in increment.files:
        if (index := file_epoch(file.path)) is not None:
            whole = DataFile(file.path, file.records, file.bytes)
            found.setdefault(index, {})[file.path] = whole
    flow = increment.flow
    return [Increment(flow, index, index, tuple(files.values())) for index, files in found.items()]


def without_refused(plan: RunPlan) -> RunPlan:
    """Return the run without records that have no framing key."""
    inputs = {name: tuple(i.without_refused() for i in many) for name, many in plan.inputs.items()}
    return replace(plan, inputs=inputs)


def _keys(
    window: pa.Table, spec: InputSpec, memo: Any, stage: str, *, refuses: bool
) -> tuple[list[FramingKey | Refused], Any]:
    frame_by = spec.frame_by
    assert frame_by is not None
    names = window.schema.names
    columns = decode_columns(window, names, [spec.schema[name].type for name in names])
    make = record_class(spec.name, tuple(names))._make
    keys_of = partial(framing_keys, stage=stage, input_=spec.name, refuses=refuses)
    if not frame_by.column:
        return keys_of(map(make, columns), frame_by, memo)
    runs = [(value, len(list(run))) for value, run in groupby(columns)]
    try:
        keys, memo = keys_of((make(value) for value, _ in runs), frame_by, memo)
    except AuthorCodeError as error:
        error.places = {name: sum(n for _, n in runs[:at]) for name, at in error.places.items()}
        raise
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
