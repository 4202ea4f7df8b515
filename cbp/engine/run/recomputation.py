r"""Recomputation: the groups of a run that reads a replacement are recomputed.

    gone, files of the run --> hashes of its groups --\
    increments that the inputs read before ------------> their records, less those that are gone
                                                              |
                                              the run, on groups without state

Every group of the run is given all of its records that count: those from before, those that came
now, and none that is gone. Its state is replaced by what it emits, so the run writes what an
ordinary one writes, and views change by their difference. A group that no longer has a record is
not called, and loses its state (`TranslatorSpec.anew`).

Groups are found by the hash of their key. Keys of one hash are all recomputed, so none needs
to be distinguished from another.

Several threads read the retained files, and their records come in the order of the files. The index
of a file says which of its records can belong to the groups: only these are decoded
(`cbp.engine.columnar.key_index`).

The records from before are written to one file an input, below a state's table, where the files of
attempts are collected. It is removed when the run is prepared: no record names it.

Memory: the records that are gone, and some hundred thousand others at a time and thread.

Invariant: the state of each group is that of a stage that read what counts in one increment
(tests/controller/loop/recovery/test_replacement.py).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.file_slices import Share, file_columns, records_read, share_of
from cbp.engine.columnar.key_index import GroupHashes, GroupKey, Int64s, index_bits
from cbp.engine.columnar.row_codes import row_codes, subtract_rows
from cbp.engine.interface.runs import RunPlan
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import ParquetSink
from cbp.engine.storage.table_names import state_table
from cbp.errors import IncrementDamagedError, OperatingError, RecordsAbsentError
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec
from cbp.model.flow.increment import DataFile, Increment

_ROWS = 1 << 18
"""So many records are compared at a time with those that are gone, or as many as these are."""

_SMALL_BYTES = 8 << 20
"""A file with more bytes, or with more than `_ROWS` records, is read one row group at a time."""

_THREADS = min(4, os.cpu_count() or 1)
"""Threads that read files; what they decode and look through does not hold the interpreter."""

_Read = Callable[[Sequence[str]], pa.Table]


@contextmanager
def computing_anew(plan: RunPlan, *, files: Files, faults: Faults) -> Iterator[RunPlan]:
    """Give the plan of a run; if it reads a replacement, one that recomputes its groups.

    Args:
        plan: The run, with `retained` if it reads a replacement.
        files: Removes what was written, at the end.
        faults: Failpoints, called for each file that is written.

    Raises:
        IncrementDamagedError: A file is missing or damaged.
        RecordsAbsentError: Records that are gone are in no increment.
    """
    if not plan.replaces:
        yield plan
        return
    work = _Recomputation(plan, faults)
    try:
        yield work.plan_anew()
    finally:
        for path in work.written:
            with suppress(OperatingError):
                files.remove(path)


@dataclass
class _Recomputation:
    """Makes the plan of one run; see the module header.

    Attributes:
        written: Full paths of the files that were written.
    """

    plan: RunPlan
    faults: Faults
    written: list[str] = field(default_factory=list)
    _left: pa.Table = field(init=False)
    _groups: GroupHashes = field(init=False)

    @property
    def _spec(self) -> TranslatorSpec:
        return self.plan.node.translator

    def plan_anew(self) -> RunPlan:
        """Write what the groups had read before, and return the plan that reads it."""
        assert self._spec.key is not None, "only groups are recomputed"
        self._groups = GroupHashes(self._hashes_of_run())
        gone = {spec.name: self._gone(spec) for spec in self._spec.inputs}
        # Keys of which no record was found yet; those that remain have none.
        keys = [self._key(spec).keys(gone[spec.name]) for spec in self._spec.inputs]
        self._left = pa.concat_tables(keys)
        inputs = {}
        for number, spec in enumerate(self._spec.inputs):
            inputs[spec.name] = (self._given(spec, gone[spec.name], number),)
        hidden = self._unused_name()
        flow, epoch = f"{self.plan.node.name}.{hidden}", self.plan.epoch
        sink = self._sink(len(inputs), arrow_schema(self._spec.key))
        if self._left.num_rows:
            sink.write(self._left)
        inputs[hidden] = (Increment(flow, epoch, epoch, self._closed(sink)),)
        key = self._spec.key
        anew = replace(
            self._spec, inputs=(*self._spec.inputs, InputSpec(hidden, key, key.names)), anew=hidden
        )
        node = replace(
            self.plan.node, translator=anew, wiring={**self.plan.node.wiring, hidden: flow}
        )
        return replace(self.plan, node=node, inputs=inputs, retained={})

    def _hashes_of_run(self) -> Int64s:
        """Return the hashes of all groups that have a record in the run, or one that is gone."""
        found = [np.empty(0, np.int64)]
        for spec in self._spec.inputs:
            for increment in self.plan.inputs.get(spec.name, ()):
                for share in self._shares((*increment.files, *increment.gone)):
                    found += [np.unique(hashes) for _, hashes in self._key_parts(share, spec)]
        return np.concatenate(found)

    def _gone(self, spec: InputSpec) -> pa.Table:
        """Return what is gone of the run's groups, by this run or by an earlier one."""
        name = spec.name
        increments = (*self.plan.retained.get(name, ()), *self.plan.inputs.get(name, ()))
        gone = [file for one in increments for file in one.gone]
        return pa.concat_tables([file_columns(spec).empty_table(), *self._records(gone, spec)])

    def _given(self, spec: InputSpec, gone: pa.Table, number: int) -> Increment:
        """Return the records of an input that count, as one increment."""
        own = self.plan.inputs.get(spec.name, ())
        sink = self._sink(number, file_columns(spec))
        before = [file for one in self.plan.retained.get(spec.name, ()) for file in one.files]
        for part in _gathered(self._records(before, spec), max(_ROWS, gone.num_rows)):
            gone = self._write(sink, part, gone, spec)
        as_they_are = []
        for file in (file for one in own for file in one.files):
            if not gone.num_rows:
                as_they_are.append(file)
                continue
            records = pa.concat_tables(
                [file_columns(spec).empty_table(), *self._records([file], spec)]
            )
            if subtract_rows(records, gone)[0].num_rows == records.num_rows:
                as_they_are.append(file)
            else:
                gone = self._write(sink, records, gone, spec)
        if gone.num_rows:
            by = [one.index for one in own if one.gone]
            raise RecordsAbsentError(self.plan.node.name, spec.name, gone.num_rows, by)
        for share in self._shares(as_they_are) if self._left.num_rows else ():
            for keys, _ in self._key_parts(share, spec):
                self._found(keys)
        files = (*self._closed(sink), *as_they_are)
        last = own[-1].index if own else 0
        return Increment(self.plan.node.wiring[spec.name], last, last, files)

    def _write(
        self, sink: ParquetSink, records: pa.Table, gone: pa.Table, spec: InputSpec
    ) -> pa.Table:
        """Write records but for those that are gone; return what is still to be taken out."""
        rest, still = subtract_rows(records, gone)
        if rest.num_rows:
            sink.write(rest)
            self._found(self._key(spec).keys(rest))
        return still

    def _found(self, keys: pa.Table) -> None:
        """Note that groups have a record."""
        if self._left.num_rows and keys.num_rows:
            left, there = row_codes([self._left, keys])
            self._left = self._left.filter(pa.array(~np.isin(left, there)))

    def _records(self, files: Sequence[DataFile], spec: InputSpec) -> Iterator[pa.Table]:
        """Yield the records of the run's groups, in the order of the files."""
        if len(files) <= _THREADS:
            for share in self._shares(files):
                yield from self._selected(share, spec)
            return
        with ThreadPoolExecutor(_THREADS, "cbp-retained") as threads:
            ahead: deque[Future[Iterable[pa.Table]]] = deque()
            for file in files:
                ahead.append(threads.submit(self._of_file, file, spec))
                if len(ahead) > 2 * _THREADS:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()

    def _of_file(self, file: DataFile, spec: InputSpec) -> Iterable[pa.Table]:
        """Return the records of the run's groups in a file; of a large one as they are read."""
        found = self._selected(share_of(self.plan.folder, file), spec)
        return list(found) if file.records <= _ROWS and file.bytes <= _SMALL_BYTES else found

    def _selected(self, share: Share, spec: InputSpec) -> Iterator[pa.Table]:
        """Yield the records of the run's groups in a file; decodes what its index leaves."""
        columns, key = file_columns(spec), self._key(spec)
        found = False
        for read, has in _row_groups(share):
            likely = None
            if key.index in has:
                likely = self._groups.among(index_bits(read([key.index]).column(0)))
                if not likely.size:
                    continue
            # Where the last row group had some, this one has: its columns are read at one time.
            whole = found or likely is not None
            records = read(columns.names if whole else key.columns.names)
            if likely is not None:
                records = records.take(pa.array(likely))
            chosen = self._groups.among(key.hashes(key.keys(records)))
            found = bool(chosen.size)
            if not found:
                continue
            if not whole:
                records = read(columns.names)
            yield records_read(conform(records.take(pa.array(chosen)), columns), spec)

    def _key_parts(self, share: Share, spec: InputSpec) -> Iterator[tuple[pa.Table, Int64s]]:
        """Yield the keys of a file's records, and their hashes."""
        key = self._key(spec)
        for read, _ in _row_groups(share):
            keys = key.keys(read(key.columns.names))
            yield keys, key.hashes(keys)

    def _key(self, spec: InputSpec) -> GroupKey:
        return GroupKey.of(spec, self._spec.key)

    def _shares(self, files: Iterable[DataFile]) -> Iterator[Share]:
        return (share_of(self.plan.folder, file) for file in files)

    def _sink(self, number: int, schema: pa.Schema) -> ParquetSink:
        table = state_table(self.plan.node.name, self._spec.states[0].name)
        name = flow_file(self.plan.epoch, number, f"{self.plan.run}-anew")
        path = f"{self.plan.folder}/{table}/_runs/{name}"
        self.written.append(path)
        return ParquetSink(path, schema, faults=self.faults)

    def _closed(self, sink: ParquetSink) -> tuple[DataFile, ...]:
        done = sink.close()
        if done is None:
            return ()
        path = done.path.removeprefix(f"{self.plan.folder}/")
        return (DataFile(path, done.rows, done.bytes),)

    def _unused_name(self) -> str:
        """Return the name of an input that no flow of the stage has."""
        spec, name = self._spec, "emptied"
        used = {one.name for one in spec.inputs} | {one.name for one in spec.outputs}
        used |= {one.name for one in spec.states}
        while name in used:
            name += "_"
        return name


def _row_groups(share: Share) -> Iterator[tuple[_Read, Collection[str]]]:
    """Yield, for each row group with rows of a share, what reads columns of these; and all names.

    Raises:
        IncrementDamagedError: The file is missing, damaged, or has a different number of rows.
    """
    with reading_increment(share.path, share.rows):
        file = open_parquet(share.path)
    if file.metadata.num_rows != share.rows:
        raise IncrementDamagedError(share.path, expected=share.rows, found=file.metadata.num_rows)
    at, names = 0, file.schema_arrow.names

    def read(group: int, start: int, rows: int, columns: Sequence[str]) -> pa.Table:
        with reading_increment(share.path, share.rows):
            return file.read_row_group(group, columns).slice(start, rows)

    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        first, last = max(share.start - at, 0), min(share.stop - at, rows)
        at += rows
        if first < last:
            yield partial(read, group, first, last - first), names


def _gathered(parts: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield tables of at least this many rows each, but for the last."""
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        if sum(one.num_rows for one in waiting) >= rows:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
