"""Replacement of a file: from the earlier file and the new one, the two parts of its increment.

    earlier file  a a b c  ---        files: d          records that only the new file has
    new file        a b d  ---        gone:  a, c       records that only the earlier file has

The earlier file is the one that counts under its name now: its records are those of the increment
that brought it, changed by the replacements since then. No copy of it is kept beside the
increments, so the folders alone give the same result.

Several files of one name can count, if an operator admitted one beside an earlier one, or if one
arrived while the source said `same_name: add`. None of them is replaced, since the name does not
say which one is meant.

A retraction is a replacement by nothing. Which claim replaces which is kept in `same_as`, and so in
the source's log: `by` is `replaced` or `retracted`, and `claim` is the earlier claim.

If the readers of a source add up signs, a record is taken back by one more record, with the
opposite sign (`cbp.model.dataflow.replacement_obstacles`).

Memory: both files, as Arrow columns.

Invariant (tests/controller/loop/recovery/test_replacement.py): the records of all increments of a
name, less those that are gone, are those of the newest file of that name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.row_codes import subtract_rows
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.errors import NotFoundError
from cbp.model.flow.increment import DataFile
from cbp.model.flow.signed_changes import SIGN
from controller.ingest.errors import shared_name
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.ports import Ports
from controller.ingest.reader.increment_parts import PartWriter, WrittenPart
from controller.ingest.rejection import FileRejectedError
from controller.ingest.repeated_files import RETRACTED, replaces
from controller.ingest.source_log import SourceLog
from controller.store.base import ClaimRecord


@dataclass(frozen=True, slots=True)
class Brought:
    """The files of a claim's increment, relative to the dataflow's folder."""

    files: tuple[DataFile, ...]
    gone: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """The records that a new file adds to the earlier one, and those that it lacks.

    It is `signed` if the readers of the source add up signs.
    """

    came: pa.Table
    gone: pa.Table
    signed: bool

    @property
    def parts(self) -> tuple[pa.Table, pa.Table]:
        """The records that the increment adds, and those that it retracts.

        With signs, the retracted records come first, since a reader keeps the last record of a key.
        """
        if not self.signed:
            return self.came, self.gone
        return pa.concat_tables([_turned(self.gone), self.came]), self.gone.slice(0, 0)


@dataclass(frozen=True, slots=True)
class Compared:
    """The effects of a replacement.

    `groups` has, for each stage that routes the source by columns, the number of its groups with an
    added or removed record.
    """

    came: int
    gone: int
    groups: Mapping[str, int]

    @classmethod
    def of(cls, made: Difference, place: SourcePlace) -> Compared:
        """Count a difference."""
        records = pa.concat_tables([made.came, made.gone])
        groups: Counter[str] = Counter()
        assert place.graph is not None, (
            "the source's place has no graph, so its readers are unknown"
        )
        for stage, input_ in place.graph.consumers(place.name):
            by = place.graph.stages[stage].translator.input(input_).route_by
            if isinstance(by, tuple):
                groups[stage] += records.group_by(list(by)).aggregate([]).num_rows
        return cls(made.came.num_rows, made.gone.num_rows, dict(groups))


class Replacements:
    """Computes and writes replacements; only reads the store."""

    def __init__(self, ports: Ports) -> None:
        self._store, self._files, self._limits = ports.store, ports.files, ports.limits

    def difference(
        self,
        place: SourcePlace,
        new: Sequence[str],
        earlier: str,
        waiting: Mapping[str, tuple[ClaimRecord, Brought]],
    ) -> Difference:
        """Return the records that a new file adds and removes, compared with the earlier file.

        Raises `inputs_not_kept` if the earlier file is no longer kept; `name_shared` if several
        files of the name count.
        """
        schema = arrow_schema(place.source.schema)
        count = pa.concat_tables([schema.empty_table(), *(_table(path, schema) for path in new)])
        before = gone = schema.empty_table()
        for one in self._history(place, earlier, waiting):
            before = pa.concat_tables([before, *self._records(place, one.files, schema)])
            gone = pa.concat_tables([gone, *self._records(place, one.gone, schema)])
        if place.signed:
            # A signed replacement took back a record by one more record, with the opposite sign.
            before = _without_pairs(before)
        before, _ = subtract_rows(before, gone)
        return Difference(*subtract_rows(count, before), place.signed)

    def write(
        self, place: SourcePlace, index: int, claim: str, made: Difference
    ) -> tuple[tuple[WrittenPart, ...], tuple[WrittenPart, ...]]:
        """Write the parts of an increment under temporary names; return both kinds."""
        parts: list[tuple[WrittenPart, ...]] = []
        for table in made.parts:
            writer = PartWriter(
                place.increments,
                index=index,
                claim=claim,
                schema=place.source.schema,
                limits=self._limits,
                keys=place.keys,
                first=len(parts[0]) if parts else 0,
            )
            try:
                writer.write(table.to_batches())
                parts.append(writer.finish())
            except Exception:
                writer.discard()
                raise
        return parts[0], parts[1]

    def sharing(self, newest: ClaimRecord) -> tuple[int, ...]:
        """Return the increments of two current files that share the name of `newest`, or `()`."""
        claim: ClaimRecord | None = newest
        while claim is not None and replaces(claim.same_as):
            earlier = str((claim.same_as or {})["claim"])
            claim = self._store.find_claims([earlier]).get(earlier)
        return () if claim is None else self._sharing(claim, ())

    def _sharing(self, first: ClaimRecord, waiting: Iterable[ClaimRecord]) -> tuple[int, ...]:
        """Return the increments of `first`, which replaced no file, and of another of its name."""
        others = [one for one in waiting if one.path == first.path]
        if stored := self._store.claim_before(first):
            others.append(stored)
        for one in others:
            retracted = (one.same_as or {}).get("by") == RETRACTED
            if not retracted and one.index is not None and first.index is not None:
                return one.index, first.index
        return ()

    def _history(
        self, place: SourcePlace, identity: str, waiting: Mapping[str, tuple[ClaimRecord, Brought]]
    ) -> Iterator[Brought]:
        """Yield the increments of the claims of a name, newest first; raises as `difference`."""
        seen = set[str]()
        while identity not in seen:
            seen.add(identity)
            if identity in waiting:
                claim, brought = waiting[identity]
            else:
                claim = self._accepted(identity)
                brought = self._brought(place, claim)
            yield brought
            if not replaces(claim.same_as):
                others = [one for one, _ in waiting.values() if one.id not in seen]
                if increments := self._sharing(claim, others):
                    raise _shared(claim.path, increments)
                return
            identity = str((claim.same_as or {})["claim"])

    def _accepted(self, identity: str) -> ClaimRecord:
        claim = self._store.find_claims([identity]).get(identity)
        if claim is None or claim.status != "accepted" or claim.index is None:
            message = "a roll-back removed the original file, but not the file that replaced it"
            raise FileRejectedError("inputs_not_kept", message)
        return claim

    def _brought(self, place: SourcePlace, claim: ClaimRecord) -> Brought:
        """Return a claim's part of an increment, which can have several files."""
        try:
            record = self._store.increment(place.dataflow, place.name, claim.index or 0)
        except NotFoundError as error:
            raise _not_kept(claim) from error
        increment = record.increment
        if any(not self._files.exists(f"{place.folder}/{one.path}") for one in increment.kept):
            raise _not_kept(claim)
        log = SourceLog(place.folder, place.name, self._files)
        entry = next(log.since(increment.index))
        if len(entry.files) == 1:
            return Brought(increment.files, increment.gone)
        start = 0
        for file in entry.files:
            if file.claim == claim.id:
                return Brought(tuple(_slices(increment.files, start, start + (file.records or 0))))
            start += file.records or 0
        raise _not_kept(claim)

    def _records(
        self, place: SourcePlace, files: Sequence[DataFile], schema: pa.Schema
    ) -> Iterator[pa.Table]:
        for file in files:
            path = file.path if os.path.isabs(file.path) else f"{place.folder}/{file.path}"
            with reading_increment(path, file.records):
                table = _table(path, schema)
            yield table.slice(file.start, file.rows)


def _table(path: str, schema: pa.Schema) -> pa.Table:
    read = conform(open_parquet(path).read(schema.names), schema)
    return pa.Table.from_arrays(read.columns, schema=schema)  # keeps its NOT NULL


def _slices(files: Sequence[DataFile], start: int, stop: int) -> Iterator[DataFile]:
    at = 0
    for file in files:
        first, last = max(start - at, 0), min(stop - at, file.rows)
        at += file.rows
        if first < last:
            yield file.slice(first, last)


def _turned(records: pa.Table) -> pa.Table:
    at = records.schema.get_field_index(SIGN)
    field = records.schema.field(at)
    return records.set_column(at, field, pc.negate(records.column(at)).cast(field.type))


def _without_pairs(records: pa.Table) -> pa.Table:
    """Return signed records without the pairs that cancel out."""
    positive = records.filter(pc.greater(records.column(SIGN), 0))
    negative = records.filter(pc.invert(pc.greater(records.column(SIGN), 0).fill_null(False)))
    more, less = subtract_rows(positive, _turned(negative))
    return pa.concat_tables([more, _turned(less)])


def _shared(name: str, increments: Sequence[int]) -> FileRejectedError:
    message = (
        f"{shared_name(name, increments)}. Remove the wrong files (cbp rollback ... --without "
        "SOURCE/NUMBER), and then drop this file again. If it brings additional records, drop it "
        "under another name instead"
    )
    return FileRejectedError("name_shared", message)


def _not_kept(claim: ClaimRecord) -> FileRejectedError:
    message = (
        f"the input of the earlier file (increment {claim.index}) is no longer kept, so its "
        "records cannot be taken back. To keep future input longer, raise `keep` of the source, "
        "or CBP_KEEP_INPUTS_HOURS"
    )
    return FileRejectedError("inputs_not_kept", message)
