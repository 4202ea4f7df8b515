r"""Recomputation: the groups of a run that reads a replacement are recomputed.

    gone, files of the run --> hashes of its groups --\
    increments that the inputs read before ------------> their records, less those that are gone
                                                              |
                                              the run, on groups without state

Every group of the run is given all of its records that count. Its state is replaced by what it
emits, so the run writes the same as an ordinary run, and views change by their difference. A group
that no longer has a record is not called, and loses its state (`TranslatorSpec.anew`). Groups are
found by the hash of their key; keys of one hash are all recomputed.

Several threads read the retained files, and their records come in the order of the files. The index
of a file says which of its records can belong to the groups, and only these are decoded
(`cbp.engine.columnar.key_index`). A wrong index is noticed if it lets keys pass that do not fit it;
then everything is read again without any index. A verification and a build use no index.

Earlier records are written to one file per input, below a state's table, where the files of failed
runs are collected. It is removed once the run is prepared, since no record names it. Memory: the
records that are gone, and some hundred thousand others at a time in each thread.

Invariant: the state of each group is the same as after one run that read all records that count
(tests/controller/loop/recovery/test_replacement.py).
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, arrow_schema, conform
from cbp.engine.columnar.file_slices import (
    Share,
    file_columns,
    records_read,
    row_groups,
    share_of,
)
from cbp.engine.columnar.key_index import (
    GroupHashes,
    GroupKey,
    IndexBits,
    KeyRange,
    Positions,
)
from cbp.engine.columnar.row_codes import row_codes, subtract_rows
from cbp.engine.interface.runs import RunPlan
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import ParquetSink
from cbp.engine.storage.table_names import state_table
from cbp.errors import OperatingError, RecordsAbsentError
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec
from cbp.model.flow.increment import DataFile, Increment

_ROWS = 1 << 18
"""Records compared at a time with the removed records; more if more records were removed."""

_SMALL_BYTES = 8 << 20
"""A file with more bytes, or with more than `_ROWS` records, is read one row group at a time."""

_FEW = 2_000
"""If a file has fewer likely records, they are hashed together with those of other files; more are
hashed in the thread that reads the file."""

_THREADS = min(4, os.cpu_count() or 1)
"""Threads that read files; while they decode and search, they release the interpreter's lock."""

_logger = logging.getLogger(__name__)


@contextmanager
def recomputing_groups(plan: RunPlan, *, files: Files, faults: Faults) -> Iterator[RunPlan]:
    """Yield the plan of a run; for a replacement, a plan that recomputes its groups.

    `RecordsAbsentError` if records that are taken back are in no increment.
    """
    if not plan.replaces:
        yield plan
        return
    work = _Recomputation(plan, faults, uses_index=not plan.recomputes)
    try:
        try:
            made = work.plan_anew()
        except _IndexWrongError as error:
            _logger.warning(
                "run %s reads all files again without indexes, because the index of %s is wrong",
                plan.run,
                error,
            )
            work.uses_index = False
            made = work.plan_anew()
        yield made
    finally:
        for path in set(work.written):
            with suppress(OperatingError):
                files.remove(path)


@dataclass
class _Recomputation:
    """Makes the plan of one run; see the module header.

    `uses_index` says whether indexes are read; `written` has the full paths of its files.
    """

    plan: RunPlan
    faults: Faults
    uses_index: bool
    written: list[str] = field(default_factory=list)
    _left: pa.Table = field(init=False)
    _groups: GroupHashes = field(init=False)
    _range: KeyRange = field(init=False)

    @property
    def _spec(self) -> TranslatorSpec:
        return self.plan.node.translator

    def plan_anew(self) -> RunPlan:
        assert self._spec.key is not None, "the translator has no key, so it has no groups"
        self._range = KeyRange()
        self._groups = GroupHashes(self._hashes_of_run())
        gone = {spec.name: self._gone(spec) for spec in self._spec.inputs}
        # Keys without a record so far; those that remain at the end have none.
        keys = [self._key(spec).keys(gone[spec.name]) for spec in self._spec.inputs]
        self._left = pa.concat_tables(keys)
        inputs = {
            spec.name: (self._given(spec, gone[spec.name], number),)
            for number, spec in enumerate(self._spec.inputs)
        }
        used = {one.name for one in self._spec.inputs} | {one.name for one in self._spec.outputs}
        used |= {one.name for one in self._spec.states}
        hidden = "emptied"
        while hidden in used:
            hidden += "_"
        flow, epoch = f"{self.plan.node.name}.{hidden}", self.plan.epoch
        sink = self._sink(len(inputs), arrow_schema(self._spec.key))
        if self._left.num_rows:
            sink.write(self._left)
        inputs[hidden] = (Increment(flow, epoch, epoch, self._closed(sink)),)
        node, key = self.plan.node, self._spec.key
        every = (*self._spec.inputs, InputSpec(hidden, key, key.names))
        anew = replace(self._spec, inputs=every, anew=hidden)
        node = replace(node, translator=anew, wiring={**node.wiring, hidden: flow})
        return replace(self.plan, node=node, inputs=inputs, retained={})

    def _hashes_of_run(self) -> Int64s:
        """Return the hashes of all groups that have a record in the run, or a removed record."""
        found = [np.empty(0, np.int64)]
        for spec in self._spec.inputs:
            for increment in self.plan.inputs.get(spec.name, ()):
                for share in self._shares((*increment.files, *increment.gone)):
                    for keys, hashes in self._key_parts(share, spec):
                        self._range.add(keys)
                        found.append(np.unique(hashes))
        return np.concatenate(found)

    def _gone(self, spec: InputSpec) -> pa.Table:
        name = spec.name
        increments = (*self.plan.retained.get(name, ()), *self.plan.inputs.get(name, ()))
        return self._all_records([file for one in increments for file in one.gone], spec)

    def _given(self, spec: InputSpec, gone: pa.Table, number: int) -> Increment:
        own = self.plan.inputs.get(spec.name, ())
        sink = self._sink(number, file_columns(spec))
        before = [file for one in self.plan.retained.get(spec.name, ()) for file in one.files]
        # Compares large tables a few times, not small ones many times.
        for parts in _gathered(self._likely_records(before, spec), max(_ROWS, gone.num_rows)):
            for part in self._exact(parts, spec):
                gone = self._write(sink, part, gone, spec)
        as_they_are = []
        for file in (file for one in own for file in one.files):
            if not gone.num_rows:
                as_they_are.append(file)
                continue
            records = self._all_records([file], spec)
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
        """Write records, except those taken back; return the records still to be removed."""
        rest, still = subtract_rows(records, gone)
        if rest.num_rows:
            sink.write(rest)
            self._found(self._key(spec).keys(rest))
        return still

    def _found(self, keys: pa.Table) -> None:
        if self._left.num_rows and keys.num_rows:
            left, there = row_codes([self._left, keys])
            self._left = self._left.filter(pa.array(~np.isin(left, there)))

    def _all_records(self, files: Sequence[DataFile], spec: InputSpec) -> pa.Table:
        parts = _gathered(self._likely_records(files, spec), _ROWS)
        records = itertools.chain.from_iterable(self._exact(some, spec) for some in parts)
        return pa.concat_tables([file_columns(spec).empty_table(), *records])

    def _exact(self, parts: Sequence[_Part], spec: InputSpec) -> Iterator[pa.Table]:
        for exact, alike in itertools.groupby(parts, key=lambda part: part.is_exact):
            some = list(alike)
            if exact:
                yield pa.concat_tables([part.records for part in some])
            else:
                yield self._of_groups(some, spec).records

    def _of_groups(self, parts: Sequence[_Part], spec: InputSpec) -> _Part:
        """Return the records of the run's groups (`_IndexWrongError`: an index is wrong)."""
        records, key = pa.concat_tables([part.records for part in parts]), self._key(spec)
        keys, at = key.keys(records), 0
        hashes = key.hashes(keys)
        for part in parts:
            own = hashes[at : (at := at + part.records.num_rows)]
            if part.bits is not None and not part.bits.fits(own):
                raise _IndexWrongError(part.path)
        chosen = pa.array(self._chosen(keys, hashes))
        return _Part(parts[0].path, records.take(chosen), is_exact=True)

    def _chosen(self, keys: pa.Table, hashes: Int64s) -> Positions:
        chosen = self._groups.among(hashes)
        # A key outside the groups' range only shares a hash; dropped here, it costs no search.
        return chosen[self._range.inside(keys.take(pa.array(chosen)))] if chosen.size else chosen

    def _likely_records(self, files: Sequence[DataFile], spec: InputSpec) -> Iterator[_Part]:
        """Yield the records that can belong to the run's groups, in the order of the files."""
        if len(files) <= _THREADS:
            for share in self._shares(files):
                yield from self._selected(share, spec)
            return
        with ThreadPoolExecutor(_THREADS, "cbp-retained") as threads:
            ahead: deque[Future[Iterable[_Part]]] = deque()
            for file in files:
                ahead.append(threads.submit(self._of_file, file, spec))
                if len(ahead) > 2 * _THREADS:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()

    def _of_file(self, file: DataFile, spec: InputSpec) -> Iterable[_Part]:
        """Return the records that `_selected` finds in a file; reads a large file in parts."""
        found = self._selected(share_of(self.plan.folder, file), spec)
        return list(found) if file.records <= _ROWS and file.bytes <= _SMALL_BYTES else found

    def _selected(self, share: Share, spec: InputSpec) -> Iterator[_Part]:
        """Yield the records of a file that belong to the run's groups, or may by its index."""
        columns, key = file_columns(spec), self._key(spec)
        found = False
        for group in row_groups(share):
            if self._range.excludes(group.statistics(key.columns.names[0])):
                continue
            width = group.index_width(key) if self.uses_index else None
            narrows = width is not None and self._groups.narrows(width)
            bits = group.index(key) if narrows else None
            if bits is not None:
                likely = self._groups.likely(bits)
                if likely.size:
                    records = group.read(columns.names).take(pa.array(likely))
                    records = records_read(conform(records, columns), spec)
                    part = _Part(share.path, records, bits.take(likely))
                    yield part if likely.size < _FEW else self._of_groups([part], spec)
                continue
            # If the last row group had records of the groups, or nearly every record can be one,
            # this row group probably has some, too, so all its columns are read together.
            found = found or (width is not None and not narrows)
            records = group.read(columns.names if found else key.columns.names)
            keys = key.keys(records)
            chosen = self._chosen(keys, key.hashes(keys))
            if chosen.size:
                records = records if found else group.read(columns.names)
                records = records.take(pa.array(chosen))
                records = records_read(conform(records, columns), spec)
                yield _Part(share.path, records, is_exact=True)
            found = bool(chosen.size)

    def _key_parts(self, share: Share, spec: InputSpec) -> Iterator[tuple[pa.Table, Int64s]]:
        key = self._key(spec)
        for group in row_groups(share):
            keys = key.keys(group.read(key.columns.names))
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


class _IndexWrongError(Exception):
    """The index of the file at the given path does not fit its keys."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of a file and their bits of its index; if exact, all belong to the run's groups."""

    path: str
    records: pa.Table
    bits: IndexBits | None = None
    is_exact: bool = False


def _gathered(parts: Iterable[_Part], rows: int) -> Iterator[list[_Part]]:
    """Yield parts of at least this many rows; the last one can be smaller."""
    waiting, many = list[_Part](), 0
    for part in parts:
        waiting.append(part)
        many += part.records.num_rows
        if many >= rows:
            yield waiting
            waiting, many = [], 0
    if waiting:
        yield waiting
