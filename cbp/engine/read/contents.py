"""Contents of one version of a table, as streams of records; for comparisons of tables.

A state is read bucket by bucket, in the order of the hash; an output in the order of its flow.
Both are read file by file, some thousand records at a time, from the files that the version
names. Nothing is refreshed, so later publications are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.row_codec import decode_table
from cbp.engine.columnar.values import Row
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.live_records import live_batches
from cbp.engine.interface.readers import Contents
from cbp.engine.outputs.output_compaction import in_order
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.flow.schema import Schema
from cbp.model.verification import Comparison


@dataclass(frozen=True, slots=True)
class StateContents:
    """One version of a state table."""

    table: StateTable
    schema: Schema
    buckets: int
    cache: IndexCache

    @property
    def rows(self) -> int:
        """How many records it has."""
        return sum(f.rows - f.dead for files in self.table.live.values() for f in files)

    @property
    def parts(self) -> int:
        """Number of parts: one per bucket."""
        return self.buckets

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records of one bucket, by hash; a state has no epochs."""
        assert not epochs, "a state has no epochs"
        for part in BucketState(self.table, self.cache, (number,)).records(self.schema.names):
            yield list(decode_table(part, self.schema))


@dataclass(frozen=True, slots=True)
class OutputContents:
    """One version of an output table; its live files, in any order, hold whole epochs."""

    folder: str
    schema: Schema
    live: Sequence[AddFile]
    limits: EngineLimits

    @property
    def rows(self) -> int:
        """How many records it has."""
        return sum(file.rows - file.dead for file in self.live)

    @property
    def parts(self) -> int:
        """Always one, since records of a key can be in any file."""
        return 1

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records in the order of the flow, with their epoch in front if asked for."""
        assert number == 0, "there is one part"
        schema = arrow_schema(self.schema).insert(0, pa.field("_epoch", pa.int64()))
        for file in in_order(self.live):
            for batch in live_batches(self.folder, file, schema.names, limits=self.limits):
                # A file from before the output got a column lacks it.
                table = conform(pa.Table.from_batches([batch]), schema)
                rows = decode_table(table, self.schema)
                if epochs:
                    numbers = table.column("_epoch").to_pylist()
                    yield [(epoch, *row) for epoch, row in zip(numbers, rows, strict=True)]
                else:
                    yield list(rows)


@dataclass(frozen=True, slots=True)
class _OfWhole:
    """Records that are made from all those of an output."""

    whole: Contents

    @property
    def rows(self) -> int:
        """Upper bound of the number of records."""
        return self.whole.rows

    @property
    def parts(self) -> int:
        """The number of parts of the whole."""
        return self.whole.parts


@dataclass(frozen=True, slots=True)
class _ContentsSince(_OfWhole):
    """The records of an output from the epoch `first` on."""

    first: int

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records of the whole from the first epoch on."""
        for rows in self.whole.part(number, epochs=True):
            yield [row if epochs else row[1:] for row in rows if row[0] >= self.first]


@dataclass(frozen=True, slots=True)
class _ContentsWithGaps(_OfWhole):
    """The records of an output whose epochs follow each other, numbered without those in `gaps`."""

    gaps: Sequence[range]

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records of the whole."""
        for rows in self.whole.part(number, epochs=epochs):
            yield [(self._number(row[0]), *row[1:]) for row in rows] if epochs else rows

    def _number(self, epoch: int) -> int:
        for gap in self.gaps:
            if epoch >= gap.start:
                epoch += len(gap)
        return epoch


@dataclass(frozen=True, slots=True)
class ListedContents:
    """Records in memory, by epoch, as of the reference engine; a state is one list."""

    listed: Sequence[Sequence[Row]]

    @property
    def rows(self) -> int:
        """How many records there are."""
        return sum(map(len, self.listed))

    @property
    def parts(self) -> int:
        """Always one."""
        return 1

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records epoch by epoch."""
        assert number == 0, "there is one part"
        for epoch, rows in enumerate(self.listed):
            yield [(epoch, *row) for row in rows] if epochs else list(rows)


def contents_since(contents: Contents, comparison: Comparison) -> Contents:
    """Return the contents to compare: those of an output from the first repeated, kept epoch on."""
    first = max(comparison.since or 0, comparison.first)
    return _ContentsSince(contents, first) if first and not comparison.carried else contents


def contents_with_gaps(contents: Contents, gaps: Sequence[range]) -> Contents:
    """Return contents whose epochs leave out some numbers; `gaps` are ascending."""
    return _ContentsWithGaps(contents, gaps) if gaps else contents
