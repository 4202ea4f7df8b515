"""Valid inputs: the increments of a source as if its files had been right from the beginning.

    increment   0        1                   2                       5
    it brought  monday   tuesday             wednesday   (replaces tuesday) +came -gone
    is read as  monday   tuesday -gone +came wednesday               nothing

A run applies a replacement by what its increment brings and takes back, if the stage can do that
(`cbp.model.dataflow.replacement_obstacles`). A recomputation needs no such ability: it reads each
file as it counts now, at the place where the file first arrived. So its result is right for every
stage, even for one that depends on the order in which records arrived.

Numbers of increments stay: an increment that only replaced another is read as an empty one. Where a
source has signs and all its readers add them up, retracted records arrived as further records, and
are read as they are.

Memory: one increment with replaced files, and the increments that replaced them, as Arrow columns.

Invariant (tests/controller/loop/verification/test_valid_inputs.py): the records of all increments
are those of the newest file of each name.
Not guaranteed: the order of records in a file that replaced another: records that the earlier file
had, too, come first. Nor which of several equal records of one increment remains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.row_codes import subtract_rows
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.errors import NotFoundError, RecordsAbsentError
from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.signed_changes import SIGN
from controller.loop.verification.errors import InputNotRetainedError
from controller.store.base import DataflowRecord, IncrementRecord, Store

FOLDER = "inputs"
"""Name of the folder of the files, in the folder of their reader."""

_BY = ("replaced", "retracted")
"""The values of `same_as.by` of an increment that replaces or retracts an earlier file."""


@dataclass(frozen=True, slots=True)
class ValidInputs:
    """Finds replaced files in the store, and writes their valid records.

    Attributes:
        prefix: Path of `folder`, relative to the folder to which paths of increments are
            relative; ends with a slash unless it is empty.
        run: Part of the file names; unique for each time that files are written.
    """

    store: Store
    files: Files
    folder: str
    prefix: str
    faults: Faults
    run: str = ""

    def of(
        self, record: DataflowRecord, source: SourceNode, end: int, dropped: Sequence[range]
    ) -> dict[int, Increment]:
        """Return the increments of a source with records that no longer count.

        If the increment of a file is no longer known, since an operator supplies its records
        (`seeds.py`), only its replacements count.
        Raises `InputNotRetainedError`, `IncrementDamagedError` or `RecordsAbsentError`.
        """
        known = {
            one.increment.index: one
            for one in self.store.oldest_increments(record.name, source.name)
            if one.increment.index < end
            and not any(one.increment.index in part for part in dropped)
        }
        read: dict[int, Increment] = {}
        signed = any(field.name == SIGN for field in source.schema.fields)
        for first, later in self._chains(known.values()).items():
            chain = [known[index].increment for index in later]
            if first not in known or (signed and not any(one.gone for one in chain)):
                continue
            for one in (known[first].increment, *chain):
                require_files(self.files, record, one)
            read |= {one.index: replace(one, files=(), gone=()) for one in chain}
            read[first] = self._written(record, source, known[first].increment, chain)
        return read

    def _chains(self, known: Iterable[IncrementRecord]) -> dict[int, list[int]]:
        """Return each increment whose files were replaced -> the increments that replaced them."""
        first_of: dict[str, int] = {}
        chains: defaultdict[int, list[int]] = defaultdict(list)
        for one in known:
            index, claim = one.increment.index, str(one.origin.get("claim", ""))
            earlier = one.origin.get("same_as") or {}
            first = index
            if earlier.get("by") in _BY:
                first = first_of.get(earlier["claim"], -1)
                if first < 0:
                    first = self._index_of(earlier["claim"])
                chains[first].append(index)
            first_of[claim] = first
        return dict(chains)

    def _index_of(self, claim: str) -> int:
        """Return the increment that a claim became; -1 if it is not known."""
        found = self.store.find_claims([claim]).get(claim)
        return -1 if found is None or found.index is None else found.index

    def _written(
        self,
        record: DataflowRecord,
        source: SourceNode,
        first: Increment,
        chain: Sequence[Increment],
    ) -> Increment:
        schema = arrow_schema(source.schema)

        def records(files: Sequence[DataFile]) -> pa.Table:
            return pa.concat_tables([schema.empty_table(), *_read(record.folder, files, schema)])

        counts = records(first.files)
        for one in chain:
            counts, absent = subtract_rows(counts, records(one.gone))
            if absent.num_rows:
                raise RecordsAbsentError(record.name, source.name, absent.num_rows, [one.index])
            counts = pa.concat_tables([counts, records(one.files)])
        name = f"{FOLDER}/{self.run}{source.name}-{first.index}.parquet"
        self.files.make_dirs(f"{self.folder}/{FOLDER}")
        sink = ParquetSink(f"{self.folder}/{name}", schema, faults=self.faults)
        if counts.num_rows:
            sink.write(counts)
        done = sink.close()
        if done is None:
            return replace(first, files=(), gone=())
        sync_files([done.path], faults=self.faults)
        file = DataFile(f"{self.prefix}{name}", done.rows, done.bytes)
        return replace(first, files=(file,), gone=())


def find_increment(
    store: Store, record: DataflowRecord, source: str, index: int
) -> IncrementRecord:
    """Return an increment of a source; raises `InputNotRetainedError`."""
    try:
        return store.increment(record.name, source, index)
    except NotFoundError as error:
        raise InputNotRetainedError(record.name, source, index) from error


def require_files(files: Files, record: DataflowRecord, one: Increment) -> None:
    """Raise `InputNotRetainedError` if a file of an increment no longer exists."""
    if not all(files.exists(f"{record.folder}/{file.path}") for file in one.kept):
        raise InputNotRetainedError(record.name, one.flow, one.index)


def is_rewritten(increment: Increment, prefix: str) -> bool:
    """Return whether an increment, or a frame of it, has a file that was written here."""
    return any(file.path.startswith(f"{prefix}{FOLDER}/") for file in increment.kept)


def _read(folder: str, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.Table]:
    for file in files:
        path = f"{folder}/{file.path}"
        with reading_increment(path, file.records):
            read = conform(open_parquet(path).read(schema.names), schema)
        yield pa.Table.from_arrays(read.columns, schema=schema).slice(file.start, file.rows)


Read = Mapping[int, Increment]
"""The increments of a source that are read with other records than they arrived with."""
