"""The file format of index copies: Arrow rows, followed by a checksum of every block.

    Arrow file | xxh3-64 of each block (64 KiB) | "CBPCOPY2", sizes, xxh3-128 of name and checksums

Wrong data in a copy would be written into state, so no byte is used before its block was checked,
once per map: the metadata of the rows when the file is mapped, the rows when a look-up touches them
(`Guard`). A copy of up to 4 MiB (`EngineLimits.whole_copy_bytes`) is checked completely when it is
mapped; a larger one, once half of it was touched or it had many look-ups. The check reads the file,
not the map, where an unreadable sector would raise a signal that kills the process.

Guaranteed: bytes that `Guard` accepted are those that `write_copy` wrote under this name
(tests/cbp/engine/state/test_copies.py flips each). Not guaranteed: that memory or disk leaves
them unchanged afterwards.

Copies that were found damaged on this machine are noted in `<cache>/damaged.jsonl`, for users. A
note that cannot be written is skipped. The file is bounded: the newest half stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.storage.engine_limits import EngineLimits

NOTES_BYTES_MAX = 256 << 10

_NOTES_FILE = "damaged.jsonl"


def note_dropped(cache: Path, *, copy: Path, source: str, why: str) -> dict[str, Any]:
    """Record that a copy was dropped; return the note."""
    note = {"at": round(time.time(), 3), "copy": str(copy), "file": source, "why": why}
    path = cache / _NOTES_FILE
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size > NOTES_BYTES_MAX:
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[len(lines) // 2 :]))
        with path.open("ab") as file:
            file.write(json.dumps(note, separators=(",", ":")).encode() + b"\n")
    return note


def dropped_copies(cache: Path) -> list[dict[str, Any]]:
    """Return the notes, oldest first; unreadable lines are skipped."""
    notes: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for line in (cache / _NOTES_FILE).read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                notes.append(json.loads(line))
    return notes


ASKS_MAX = 32
"""After this many look-ups a copy is hot: all of it is checked, later look-ups check nothing."""

_READ_BYTES = 256 << 10
"""Bytes read at a time: few, so that they stay in the CPU cache."""

_TAIL = struct.Struct("<8sQQ16s")
_MAGIC = b"CBPCOPY2"
_ARROW_END = struct.Struct("<i6s")
_ARROW_MAGIC = b"ARROW1"


class CopyDamagedError(Exception):
    """A copy differs from the written content; the cache catches this and makes a new copy."""


class CopyForeignError(Exception):
    """The file is a copy in another format; it is not damaged."""


@dataclass(frozen=True, slots=True)
class MappedCopy:
    """A mapped copy: its rows, which the guard has not checked yet, and the guard."""

    batch: pa.RecordBatch
    guard: Guard


def write_copy(path: Path, name: str, batch: pa.RecordBatch, *, limits: EngineLimits) -> None:
    """Write a copy with its checksums; the caller renames the file to its final name."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    block = limits.copy_block_bytes
    with path.open("r+b") as file:
        sums = bytearray()
        size = 0
        while part := file.read(_READ_BYTES):
            sums += b"".join(_sum(one).to_bytes(8, "little") for one in _blocks(part, block))
            size += len(part)
        file.write(sums)
        file.write(_TAIL.pack(_MAGIC, size, block, _seal(name, size, block, bytes(sums))))


def map_copy(path: Path, name: str, *, limits: EngineLimits) -> MappedCopy:
    """Map a copy; the metadata of the rows is checked, the rows are not.

    Raises:
        CopyForeignError: The file is a copy of an earlier version, or has blocks of another size.
        CopyDamagedError: The file does not have the content written under this name.
        OSError: The file does not exist, or maps are refused.
    """
    block = limits.copy_block_bytes
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO has no bytes, and never blocks
    try:
        status = os.fstat(handle)
        if status.st_size < _TAIL.size:
            message = f"it is too short ({status.st_size} bytes)"
            raise CopyDamagedError(message)
        sums, size = _read_sums(handle, name, status.st_size, block)
        memory = pa.memory_map(f"/dev/fd/{handle}").read_buffer(size)
    finally:
        os.close(handle)
    guard = Guard(path, (status.st_dev, status.st_ino), memory, sums, block)
    guard.span(max(0, size - _ARROW_END.size), size)
    length, magic = _ARROW_END.unpack(memory[size - _ARROW_END.size :])
    guard.span(max(0, size - _ARROW_END.size - length), size)
    guard.span(0, min(size, block))
    if magic != _ARROW_MAGIC:
        message = "it does not end like an Arrow file"
        raise CopyDamagedError(message)
    try:
        reader = pa.ipc.open_file(pa.BufferReader(memory))
        if reader.num_record_batches != 1:
            message = f"expected one batch of rows, found {reader.num_record_batches}"
            raise CopyDamagedError(message)
        batch = reader.get_batch(0)
        # The metadata of the rows is before the first row.
        buffers = (one for column in batch.columns for one in column.buffers() if one and one.size)
        guard.span(0, min((one.address - memory.address for one in buffers), default=0))
    except pa.ArrowException as exc:
        raise CopyDamagedError(str(exc)) from exc
    if size <= limits.whole_copy_bytes:
        guard.everything()
    return MappedCopy(batch, guard)


class Guard:
    """Checks blocks of a mapped copy before their bytes are used; `done` once all were checked.

    Args:
        path: Path of the copy; the file there may have been replaced or removed since.
        inode: Device and inode of the mapped file.
        memory: All Arrow bytes.
    """

    def __init__(
        self,
        path: Path,
        inode: tuple[int, int],
        memory: pa.Buffer,
        sums: npt.NDArray[np.uint64],
        block: int,
    ) -> None:
        self.path, self.inode, self.done = path, inode, False
        self._memory, self._sums, self._block = memory, sums, block
        self._passed = np.zeros(len(sums), np.bool_)
        self._asks = 0

    def span(self, start: int, stop: int) -> None:
        """Check the bytes from `start` to `stop`; as every method, raises `CopyDamagedError`."""
        if stop > start:
            self._check(np.arange(start // self._block, (stop - 1) // self._block + 1))

    def everything(self) -> None:
        """Check all blocks that were not checked yet."""
        if not self.done:
            self._check(np.arange(len(self._sums)))

    def column(self, column: pa.Array) -> None:
        """Check all rows of a column."""
        if not self.done:
            for buffer in column.buffers():
                if buffer is not None:
                    start = buffer.address - self._memory.address
                    self.span(start, start + buffer.size)

    def rows(self, column: pa.Array, positions: Int64s) -> None:
        """Check some rows of a column; for a nested column, all rows."""
        self._asks += 1
        if self._asks > ASKS_MAX:
            self.everything()
        if self.done:
            return
        type_, buffers = column.type, column.buffers()
        if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
            self._bytes(buffers[1], positions * 8, 16)
            offsets = np.frombuffer(buffers[1], np.int64)
            starts, sizes = offsets[positions], offsets[positions + 1] - offsets[positions]
            if buffers[2] is not None:
                self._bytes(buffers[2], starts, sizes)
        elif pa.types.is_boolean(type_):
            self._bytes(buffers[1], positions >> 3, 1)
        elif pa.types.is_primitive(type_) or pa.types.is_decimal(type_):
            width = type_.bit_width // 8
            self._bytes(buffers[1], positions * width, width)
        else:
            self.column(column)
            return
        if buffers[0] is not None:
            self._bytes(buffers[0], positions >> 3, 1)

    def is_shorter(self) -> bool:
        """Return whether the mapped file was truncated: reading the map would kill the process."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        mine = (status.st_dev, status.st_ino) == self.inode
        return mine and status.st_size < self._memory.size

    def _bytes(self, buffer: pa.Buffer, starts: Int64s, sizes: Int64s | int) -> None:
        first = starts + (buffer.address - self._memory.address)
        last = (first + np.maximum(sizes, 1) - 1) // self._block
        first //= self._block
        # An empty text in the last row may begin after the last byte.
        last, first = (np.minimum(x, len(self._sums) - 1) for x in (last, first))
        if np.all(self._passed[first]) and np.all(self._passed[last]) and np.all(last - first < 2):
            return
        touched = np.zeros(len(self._sums) + 1, np.int64)
        np.add.at(touched, first, 1)
        np.add.at(touched, last + 1, -1)
        self._check(np.flatnonzero(np.cumsum(touched[:-1])))

    def _check(self, blocks: Int64s) -> None:
        left = blocks[~self._passed[blocks]]
        if len(left):
            handle = self._handle()
            try:
                for start, stop in _runs(left):
                    self._read(handle, start, stop)
            except OSError as exc:
                raise CopyDamagedError(exc.strerror or str(exc)) from exc
            finally:
                if handle is not None:
                    os.close(handle)
            passed = int(np.count_nonzero(self._passed))
            self.done = passed == len(self._sums)
            if not self.done and 2 * passed >= len(self._sums):
                self.everything()

    def _read(self, handle: int | None, start: int, stop: int) -> None:
        step = _READ_BYTES // self._block
        room = memoryview(bytearray(min(_READ_BYTES, (stop - start) * self._block)))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            low, high = first * self._block, min(last * self._block, self._memory.size)
            if handle is None:
                part = memoryview(self._memory)[low:high]
            else:
                part = room[: os.preadv(handle, [room[: high - low]], low)]
            if len(part) != high - low:
                message = f"it was truncated to {low + len(part)} bytes"
                raise CopyDamagedError(message)
            sums = np.fromiter(map(_sum, _blocks(part, self._block)), np.uint64, last - first)
            wrong = np.flatnonzero(sums != self._sums[first:last])
            if len(wrong):
                message = f"the checksum of its block {first + int(wrong[0])} is wrong"
                raise CopyDamagedError(message)
            self._passed[first:last] = True

    def _handle(self) -> int | None:
        """Open the mapped file; `None` if its path now names another file, or none."""
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except OSError:
            return None
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) == self.inode:
            return handle
        os.close(handle)
        return None


def _read_sums(
    handle: int, name: str, size: int, block_wanted: int
) -> tuple[npt.NDArray[np.uint64], int]:
    """Return the checksum of each block, and the number of bytes that they cover."""
    end = os.pread(handle, _TAIL.size, size - _TAIL.size)
    magic, bytes_, block, seal = _TAIL.unpack(end)
    if magic != _MAGIC:
        if end.endswith(_ARROW_MAGIC):
            message = "an earlier release wrote it, in another format"
            raise CopyForeignError(message)
        message = "it does not end like an index copy"
        raise CopyDamagedError(message)
    sums = os.pread(handle, max(0, size - _TAIL.size - bytes_), bytes_)
    if seal != _seal(name, bytes_, block, sums):
        # Either damage, or an intact copy that was written under another name: not to be used.
        message = "its checksums are damaged, or belong to another copy"
        raise CopyDamagedError(message)
    if block != block_wanted or len(sums) != 8 * -(-bytes_ // block):
        message = f"it has blocks of {block} bytes instead of {block_wanted}"
        raise CopyForeignError(message)
    return np.frombuffer(sums, "<u8").astype(np.uint64), bytes_


def _seal(name: str, size: int, block: int, sums: bytes) -> bytes:
    """Return the checksum that binds the blocks' checksums to the name of their copy."""
    return xxhash.xxh3_128_digest(b"%s\0%d\0%d\0%s" % (name.encode(), size, block, sums))


def _blocks(part: bytes | memoryview, block: int) -> Iterator[memoryview]:
    view = memoryview(part)
    return (view[at : at + block] for at in range(0, len(view), block))


def _sum(block: memoryview) -> int:
    return xxhash.xxh3_64_intdigest(block)


def _runs(blocks: Int64s) -> Iterator[tuple[int, int]]:
    cuts = np.flatnonzero(np.diff(blocks) != 1)
    firsts = blocks[np.append(0, cuts + 1)].tolist()
    lasts = blocks[np.append(cuts, len(blocks) - 1)].tolist()
    yield from ((first, last + 1) for first, last in zip(firsts, lasts, strict=True))
