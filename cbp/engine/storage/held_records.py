"""What a run holds until it ends: in memory while there is room, in mapped temporary files beyond.

Once more than half of the bytes that a `Room` may hold in memory are taken, its largest holders
write their records to temporary files, and from then on hold a memory map of these: the same
records in the same order, whose pages the system may drop. So only what cannot be mapped counts
against the bound of the memory. The files have a bound of their own, many times as large.

Guaranteed: where a record is held changes no result. The files have no name
(`cbp.engine.storage.spill_files`); the space of a file is free once its records are not held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.spill_files import BatchFile
from cbp.errors import RunTooLargeError

_MEMORY_SHARE = 2
"""Holders are asked to use files once more than this part (a half) of the memory is taken."""

_LEAST_BYTES, _LEAST_SHARE = 1 << 20, 16
"""Smallest file in bytes, or this share of the memory if that is less."""

_PIECE_BYTES, _PIECE_SHARE, _PIECE_LEAST = 16 << 20, 64, 1 << 10
"""Size of the pieces that are made while room is scarce: this part of the memory (the second
number), but at most the first and at least the last number of bytes."""

_BATCH_BYTES = 4 << 20
"""Approximate bytes of a batch of small tables that are written together."""


class Holder(Protocol):
    """Holds records whose memory a `Room` counts."""

    @property
    def memory(self) -> int:
        """Bytes that this holder has in memory, and could move to a file."""
        ...

    def spill(self) -> None:
        """Move these bytes to a file, and report that to `Room.moved`."""
        ...


@dataclass
class Room:
    """Counts the bytes of one call, or of a loop, in memory and in temporary files.

    Attributes:
        most: Largest number of bytes in memory.
        most_on_disk: Largest number of bytes in temporary files; 0 means no such files.
        taken: Bytes in memory now.
        on_disk: Bytes in temporary files now.
        superstep: The superstep of a loop, from 1, for the error; `None` for one call.
    """

    stage: str
    most: int
    most_on_disk: int = 0
    taken: int = 0
    on_disk: int = 0
    superstep: int | None = None
    holders: list[Holder] = field(default_factory=list)

    @classmethod
    def of(cls, stage: str, limits: EngineLimits) -> Room:
        """Return the room of a run of a stage."""
        return cls(stage, limits.whole_run_bytes, limits.whole_run_bytes * limits.whole_run_spill)

    def take(self, records: pa.Table) -> pa.Table:
        """Return records once they have room; raises `RunTooLargeError` or `DiskFullError`."""
        self.hold(records.nbytes)
        return records

    def hold(self, size: int) -> None:
        """Count this many more bytes in memory; see `take`."""
        self.taken += size
        least = min(_LEAST_BYTES, self.most // _LEAST_SHARE)
        while self.holders and not self.has(0):
            largest = max(self.holders, key=lambda one: one.memory)
            if largest.memory <= least:
                break
            largest.spill()
        if self.taken > self.most:
            raise RunTooLargeError(self.stage, self.most, self.taken, self.superstep)

    def has(self, size: int) -> bool:
        """Return whether this many more bytes stay in memory; true if no file may be used."""
        return not self.most_on_disk or self.taken + size <= self.most // _MEMORY_SHARE

    @property
    def piece_bytes(self) -> int:
        """Bytes of records to make at a time if there is no room for all."""
        return min(_PIECE_BYTES, max(_PIECE_LEAST, self.most // _PIECE_SHARE))

    def moved(self, size: int) -> None:
        """Count this many bytes as bytes in a file instead of in memory."""
        self.taken -= size
        self.hold_on_disk(size)

    def hold_on_disk(self, size: int) -> None:
        """Count this many more bytes in files; `RunTooLargeError` if these are too many."""
        self.on_disk += size
        if self.on_disk > self.most_on_disk:
            most, taken = self.most_on_disk, self.on_disk
            raise RunTooLargeError(self.stage, most, taken, self.superstep, on_disk=True)

    def free(self, memory: int, on_disk: int = 0) -> None:
        """Stop counting bytes that are no longer held."""
        self.taken -= memory
        self.on_disk -= on_disk

    def keep(self, pieces: Iterable[pa.Table]) -> pa.Table:
        """Return one or more pieces as one table, whose bytes stay counted; raises as `take`.

        Each piece is requested after the earlier ones have found room, so a table of any size
        can be built from pieces that fit in memory.
        """
        held = HeldRecords(self)
        try:
            for piece in pieces:
                held.add(piece)
            return pa.concat_tables(held.tables)
        finally:
            self.holders.remove(held)


class HeldRecords:
    """Records of one schema, in order, joined into fewer tables; sizes in bytes."""

    def __init__(self, room: Room) -> None:
        self._room, self._mapped = room, 0
        self.tables: list[pa.Table] = []
        self.memory = self.on_disk = 0
        room.holders.append(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return self.memory + self.on_disk

    def add(self, records: pa.Table) -> None:
        """Append records. Raises as `Room.take`."""
        self.tables.append(records)
        size = int(records.nbytes)
        self.memory += size
        self._room.hold(size)

    def spill(self) -> None:
        """Move all records to files; see `Holder`."""
        size, self.memory = self.memory, 0
        self.on_disk += size
        self.tables[self._mapped :] = [mapped(self.tables[self._mapped :])]
        self._mapped = len(self.tables)
        self._room.moved(size)

    def take(self) -> list[pa.Table]:
        """Return all records; the holder is then empty."""
        tables, self.tables, self._mapped = self.tables, [], 0
        self._room.free(self.memory, self.on_disk)
        self.memory = self.on_disk = 0
        return tables

    def move(self) -> HeldRecords:
        """Move all records to a new holder without copying; this one is then empty."""
        other = HeldRecords(self._room)
        self._room.holders.remove(other)
        other.memory, other.on_disk = self.memory, self.on_disk
        self.memory = self.on_disk = 0
        other.tables = self.take()
        return other


def mapped(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables as one that maps a temporary file (`DiskFullError`, `AddressSpaceError`)."""
    file = BatchFile(tables[0].schema)
    try:
        for table in _together(tables):
            file.write(table)
        return file.whole()
    finally:
        file.close()


def _together(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    some, size = list[pa.Table](), 0
    for table in tables:
        if some and size + table.nbytes > _BATCH_BYTES:
            yield pa.concat_tables(some).combine_chunks()
            some, size = [], 0
        if table.nbytes > _BATCH_BYTES:
            yield table
        else:
            some.append(table)
            size += table.nbytes
    if some:
        yield pa.concat_tables(some).combine_chunks()
