"""The work of one task on records that are groups of their own: read, call the author, write.

Nothing is shuffled. Every task reads a contiguous share of the files of all inputs, as the
inputs are declared, in order, and its part of the output is numbered like the share: so the
order of the output is the order of the inputs, whatever the number of tasks.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.base import RunPlan
from cbp.engine.bucket import WINDOW_ROWS
from cbp.engine.call import Binding, Emitted, author_error, calling_loop, group_type
from cbp.engine.conform import conform
from cbp.engine.rows import ENCODE_ERRORS, Row, decode_columns, encode_rows, rows_maker
from cbp.errors import CbpError, IncrementDamagedError, InvariantError
from cbp.model.increment import DataFile
from cbp.model.stage import InputSpec, TranslatorSpec

__all__ = ["InputShare", "RecordRun", "Share", "record_shares", "share_of", "shares", "windows"]

ROWS_PER_TASK_MIN = 20_000


@dataclass(frozen=True, slots=True)
class Share:
    """Rows `start` to `stop` of one file.

    Attributes:
        path: Full path.
        rows: Rows that the whole file is promised to hold.
        buckets: Of messages that lie by bucket: of how many; 0: they do not.
    """

    path: str
    rows: int
    start: int
    stop: int
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class InputShare:
    """Rows of one file of one input."""

    input: str
    share: Share


def share_of(folder: str, file: DataFile) -> Share:
    """Return the rows that are meant of a file below a dataflow's folder."""
    buckets = file.buckets if file.whole else 0
    return Share(f"{folder}/{file.path}", file.records, file.start, file.stop, buckets)


def shares(files: Sequence[InputShare], tasks_max: int) -> list[list[InputShare]]:
    """Cut files, or slices of them, into contiguous shares of about equal size, one per task.

    Args:
        files: In order.
        tasks_max: Most tasks.
    """
    total = sum(file.share.stop - file.share.start for file in files)
    tasks = max(1, min(tasks_max, math.ceil(total / ROWS_PER_TASK_MIN)))
    size = math.ceil(total / tasks)
    cut: list[list[InputShare]] = [[] for _ in range(tasks)]
    done = 0
    for each in files:
        file = each.share
        start = file.start
        while start < file.stop:
            task = done // size
            stop = min(file.stop, start + (task + 1) * size - done)
            cut[task].append(InputShare(each.input, Share(file.path, file.rows, start, stop)))
            done += stop - start
            start = stop
    return [part for part in cut if part]


def record_shares(plan: RunPlan, tasks_max: int) -> list[list[InputShare]]:
    """Return the shares of a record-wise stage's inputs, one list per task."""
    files = [
        InputShare(input_.name, share_of(plan.folder, file))
        for input_ in plan.node.translator.inputs
        for increment in plan.inputs.get(input_.name, ())
        for file in increment.files
    ]
    return shares(files, tasks_max)


@dataclass
class RecordRun:
    """Calls a translator for records that are groups of their own, as they come.

    Attributes:
        write_output: Takes an output's name and the columns of records, a window at a time.
        write_remote: Takes a state's name and the columns of records; all are of other groups.
        write_bindings: Takes what was bound to addresses.
        records: Input to the records of it that were seen so far.
    """

    stage: str
    spec: TranslatorSpec
    emitted: Emitted
    write_output: Callable[[str, list[pa.Array]], None]
    write_remote: Callable[[str, list[pa.Array]], None] | None = None
    write_bindings: Callable[[list[Binding]], None] | None = None
    records: Counter[str] = field(init=False, default_factory=Counter)

    def run(self, work: Iterable[InputShare]) -> None:
        """Call the author for every record of some files, in order."""
        for each in work:
            input_ = self.spec.input(each.input)
            for window in windows(each.share, arrow_schema(input_.schema)):
                self._work(input_, window)

    def take(self, table: pa.Table) -> None:
        """Call the author for every record of a table of the only input's columns, in order."""
        (input_,) = self.spec.inputs
        for start in range(0, table.num_rows, WINDOW_ROWS):
            self._work(input_, table.slice(start, WINDOW_ROWS))

    def _work(self, input_: InputSpec, window: pa.Table) -> None:
        make = rows_maker(input_.name, input_.schema.names)
        types = [f.type for f in input_.schema.fields]
        rows = make(decode_columns(window, input_.schema.names, types))
        self.records[input_.name] += len(rows)
        self._call(input_, rows, self.emitted.out)
        try:
            self._write()
        except ENCODE_ERRORS as exc:
            raise self._explain(input_, rows, exc) from exc
        gc.collect(0)  # automatic collection is off in a task

    def _call(self, input_: InputSpec, rows: list[Row], out: Any) -> None:
        """Call the author for records of one input."""
        translate, done = self.spec.translate, count()
        try:
            if self.spec.takes_record:
                for row, _ in zip(rows, done, strict=False):
                    translate(row, out)
            else:
                loop = calling_loop((input_.name,), ())
                loop(
                    repeat(None),
                    [zip(rows, strict=True)],
                    done,
                    translate,
                    self._group(),
                    out,
                    (),
                    (),
                )
        except Exception as exc:
            inputs = {input_.name: [rows[next(done) - 1]]}
            raise author_error(exc, self.spec, stage=self.stage, inputs=inputs) from exc

    def _group(self) -> Any:
        """Return a group in which every input and every state is empty."""
        spec = self.spec
        inputs = (*spec.inputs, *spec.absent)
        names = (*(each.name for each in inputs), *(state.name for state in spec.states))
        group = group_type(names)()
        for name in names:
            setattr(group, name, iter(()))
        return group

    def _write(self) -> None:
        """Hand on what was emitted."""
        for name, schema in self.emitted.schemas.items():
            emitted = self.emitted.buffers[name]
            if emitted:
                self._writer(name)(name, encode_rows(emitted, schema))
                emitted.clear()
        if self.emitted.bindings:
            assert self.write_bindings is not None, "only given to whom has no addresses"
            self.write_bindings(self.emitted.bindings)
            self.emitted.bindings.clear()

    def _writer(self, name: str) -> Callable[[str, list[pa.Array]], None]:
        if all(state.name != name for state in self.spec.states):
            return self.write_output
        assert self.write_remote is not None, "only whom has no state is given none"
        return self.write_remote

    def _explain(self, input_: InputSpec, rows: list[Row], exc: Exception) -> Exception:
        """Call the author for a window again, to find which record's emission does not fit."""
        try:
            self._call(input_, rows, Emitted(self.spec, checked=True).out)
        except CbpError as again:
            return again
        return InvariantError(
            f"stage {self.stage!r}: {self.spec.name} is not deterministic ({exc})"
        )


def windows(share: Share, columns: pa.Schema, most: int = 0) -> Iterator[pa.Table]:
    """Yield the rows of a share, so many at a time at most, or as many as a window has.

    Raises:
        IncrementDamagedError: The file is missing, damaged, or has other rows.
    """
    most = most or WINDOW_ROWS
    try:
        file = pq.ParquetFile(share.path)
    except (OSError, pa.ArrowException) as exc:
        raise IncrementDamagedError(share.path, expected=share.rows, found=str(exc)) from exc
    if file.metadata.num_rows != share.rows:
        raise IncrementDamagedError(share.path, expected=share.rows, found=file.metadata.num_rows)
    at = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        first, last = max(share.start - at, 0), min(share.stop - at, rows)
        at += rows
        if first < last:
            found = file.read_row_group(group, columns=columns.names, use_threads=False)
            part = conform(found, columns)
            for start in range(first, last, most):
                yield part.slice(start, min(most, last - start))
