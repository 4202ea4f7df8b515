"""The records of one version of a table, as streams; for whoever compares tables.

A state comes bucket by bucket, in the order of the hash; an output in the order of its flow.
Both are read file by file, some thousand records at a time, straight from the files that the
version names: nothing is refreshed, and what is published meanwhile is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cbp.engine.batches import live_batches
from cbp.engine.delta.actions import AddFile
from cbp.engine.rows import Row, decode_columns
from cbp.engine.state.bucket import BucketState, StateTable
from cbp.engine.state.index import IndexCache
from cbp.engine.tiers import in_order
from cbp.model.schema import Schema

__all__ = ["ListedContents", "OutputContents", "StateContents"]


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
        """Its buckets."""
        return self.buckets

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records of one bucket, by hash; a state has no epochs."""
        assert not epochs, "a state has no epochs"
        types = [column.type for column in self.schema.fields]
        for part in BucketState(self.table, self.cache, (number,)).records(self.schema.names):
            yield list(decode_columns(part, self.schema.names, types))


@dataclass(frozen=True, slots=True)
class OutputContents:
    """One version of an output table.

    Attributes:
        live: Its files, in any order; they hold whole epochs.
    """

    folder: str
    schema: Schema
    live: Sequence[AddFile]

    @property
    def rows(self) -> int:
        """How many records it has."""
        return sum(file.rows - file.dead for file in self.live)

    @property
    def parts(self) -> int:
        """One: records of a key lie anywhere."""
        return 1

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records in the order of the flow, with their epoch in front if asked for."""
        assert number == 0, "there is one part"
        names = (*(("_epoch",) if epochs else ()), *self.schema.names)
        for file in in_order(self.live):
            for batch in live_batches(self.folder, file, ["_epoch", *self.schema.names]):
                table = pa.Table.from_batches([batch])
                columns = [table.column(name).to_pylist() for name in names[: int(epochs)]]
                types = [column.type for column in self.schema.fields]
                rows = decode_columns(table, self.schema.names, types)
                if epochs:
                    yield [(epoch, *row) for epoch, row in zip(*columns, rows, strict=True)]
                else:
                    yield list(rows)


@dataclass(frozen=True, slots=True)
class ListedContents:
    """Records that lie in memory: those of the reference engine.

    Attributes:
        listed: By epoch; of a state, all in one.
    """

    listed: Sequence[Sequence[Row]]

    @property
    def rows(self) -> int:
        """How many records there are."""
        return sum(map(len, self.listed))

    @property
    def parts(self) -> int:
        """One."""
        return 1

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield the records epoch by epoch."""
        assert number == 0, "there is one part"
        for epoch, rows in enumerate(self.listed):
            yield [(epoch, *row) for row in rows] if epochs else list(rows)
