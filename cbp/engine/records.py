"""The work of one task of a record-wise stage: read, call the author, write.

Nothing is shuffled. Every task reads a contiguous share of the increment's files, in
order, and its part of the output is numbered like the share: so the order of the
output is the order of the input, whatever the number of tasks.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.base import RunPlan
from cbp.engine.bucket import WINDOW_ROWS
from cbp.engine.call import Emitted, author_error
from cbp.engine.conform import conform
from cbp.engine.rows import ENCODE_ERRORS, decode_columns, encode_rows, rows_maker
from cbp.errors import IncrementDamagedError, InvariantError
from cbp.model.increment import DataFile
from cbp.model.stage import TranslatorSpec

__all__ = ["RecordRun", "Share", "record_shares", "share_of", "shares"]

ROWS_PER_TASK_MIN = 20_000


@dataclass(frozen=True, slots=True)
class Share:
    """Rows `start` to `stop` of one file.

    Attributes:
        path: Full path.
        rows: Rows that the whole file is promised to hold.
    """

    path: str
    rows: int
    start: int
    stop: int


def share_of(folder: str, file: DataFile) -> Share:
    """Return the rows that are meant of a file below a dataflow's folder."""
    return Share(f"{folder}/{file.path}", file.records, file.start, file.stop)


def shares(files: Sequence[Share], tasks_max: int) -> list[list[Share]]:
    """Cut files, or slices of them, into contiguous shares of about equal size, one per task.

    Args:
        files: In order.
        tasks_max: Most tasks.
    """
    total = sum(file.stop - file.start for file in files)
    tasks = max(1, min(tasks_max, math.ceil(total / ROWS_PER_TASK_MIN)))
    size = math.ceil(total / tasks)
    cut: list[list[Share]] = [[] for _ in range(tasks)]
    done = 0
    for file in files:
        start = file.start
        while start < file.stop:
            task = done // size
            stop = min(file.stop, start + (task + 1) * size - done)
            cut[task].append(Share(file.path, file.rows, start, stop))
            done += stop - start
            start = stop
    return [part for part in cut if part]


def record_shares(plan: RunPlan, tasks_max: int) -> list[list[Share]]:
    """Return the shares of a record-wise stage's input, one list per task."""
    (increments,) = plan.inputs.values()
    return shares([share_of(plan.folder, f) for i in increments for f in i.files], tasks_max)


@dataclass
class RecordRun:
    """Calls a record-wise translator for records as they come.

    Attributes:
        write_output: Takes an output's name and the columns of records, a window at a time.
        records: Seen so far.
    """

    stage: str
    spec: TranslatorSpec
    emitted: Emitted
    write_output: Callable[[str, list[pa.Array]], None]
    records: int = 0

    def run(self, work: Sequence[Share]) -> None:
        """Call the author for every record of some files, in order."""
        for window in _windows(work, arrow_schema(self.spec.inputs[0].schema)):
            self._work(window)

    def take(self, table: pa.Table) -> None:
        """Call the author for every record of a table that has the input's columns, in order."""
        for start in range(0, table.num_rows, WINDOW_ROWS):
            self._work(table.slice(start, WINDOW_ROWS))

    def _work(self, window: pa.Table) -> None:
        (input_,) = self.spec.inputs
        make = rows_maker(input_.name, input_.schema.names)
        types = [f.type for f in input_.schema.fields]
        rows = make(decode_columns(window, input_.schema.names, types))
        self.records += len(rows)
        self._call(rows)

    def _call(self, rows: list[tuple[object, ...]]) -> None:
        translate, out = self.spec.translate, self.emitted.out
        row: tuple[object, ...] = ()
        try:
            for row in rows:
                translate(row, out)
        except Exception as exc:
            raise self._failure(exc, row) from exc
        try:
            for output in self.spec.outputs:
                emitted = self.emitted.buffers[output.name]
                if emitted:
                    self.write_output(output.name, encode_rows(emitted, output.schema))
        except ENCODE_ERRORS as exc:
            raise self._explain(rows, exc) from exc
        for buffer in self.emitted.buffers.values():
            buffer.clear()
        gc.collect(0)  # automatic collection is off in a task

    def _failure(self, exc: Exception, row: tuple[object, ...]) -> Exception:
        inputs = {self.spec.inputs[0].name: [row]}
        return author_error(exc, self.spec, stage=self.stage, inputs=inputs)

    def _explain(self, rows: list[tuple[object, ...]], exc: Exception) -> Exception:
        out = Emitted(self.spec, checked=True).out
        for row in rows:
            try:
                self.spec.translate(row, out)
            except Exception as again:
                return self._failure(again, row)
        return InvariantError(
            f"stage {self.stage!r}: {self.spec.name} is not deterministic ({exc})"
        )


def _windows(work: Sequence[Share], columns: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of the shares, a window at a time."""
    for share in work:
        try:
            file = pq.ParquetFile(share.path)
        except (OSError, pa.ArrowException) as exc:
            raise IncrementDamagedError(share.path, expected=share.rows, found=str(exc)) from exc
        if file.metadata.num_rows != share.rows:
            raise IncrementDamagedError(
                share.path, expected=share.rows, found=file.metadata.num_rows
            )
        at = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            first, last = max(share.start - at, 0), min(share.stop - at, rows)
            at += rows
            if first < last:
                found = file.read_row_group(group, columns=columns.names, use_threads=False)
                part = conform(found, columns)
                for start in range(first, last, WINDOW_ROWS):
                    yield part.slice(start, min(WINDOW_ROWS, last - start))
