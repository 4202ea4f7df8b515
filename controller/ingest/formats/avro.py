"""Avro reader: object container files, with the schema that they carry; types of `ArrowColumns`.

    Obj1 {metadata: schema, codec} sync   (count, bytes, data, sync)*

Written here since other readers accept damaged files in silence (`controller/ingest/README.md`).

Every block must end with the file's own sync marker, and the file with a block: a file that was cut
or damaged is rejected, never read in part. Avro has no checksums, except for blocks packed by
snappy or bzip2; otherwise only what cannot be decoded is seen as damage.

Memory holds one block, at most `row_group_bytes`, and one batch of records.
"""

from __future__ import annotations

import bz2
import json
import zlib
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa

from controller.ingest.formats.avro_types import (
    AvroType,
    damaged,
    limited,
    read_long,
    record_fields,
)
from controller.ingest.formats.bad_lines import Reading
from controller.ingest.formats.columns import ArrowColumns
from controller.ingest.formats.file_bytes import READ_BYTES, ClaimedContent, check_expansion
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt

_MAGIC = b"Obj\x01"
HEADER_BYTES_MAX = 4 << 20
_SYNC = 16
_LONG_BYTES = 10


class AvroContainer:
    """Reads one file from its beginning to its end.

    Raises `format_mismatch`, `avro_damaged`, `avro_limits` or `compression_unsupported`; `blocks`
    also raises `decompression_ratio` or `decompressed_too_large`.
    """

    def __init__(self, content: ClaimedContent, limits: IngestLimits) -> None:
        if content.peek(len(_MAGIC)) != _MAGIC:
            raise FileRejectedError("format_mismatch", "the content is not Avro")
        self._content, self._limits = content, limits
        self._buffer, self._at = b"", 0
        self._bytes(len(_MAGIC))
        metadata = self._metadata()
        self.schema = _schema(metadata.get("avro.schema", b""))
        codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
        if codec not in _CODECS:
            message = (
                f"blocks are compressed with {excerpt(codec)}, which is not supported; use "
                f"{', '.join(_CODECS)}"
            )
            raise FileRejectedError(rule="compression_unsupported", message=message)
        self._unpack = _CODECS[codec]
        self._sync = self._bytes(_SYNC)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks in order: the declared number of records, and their data."""
        bytes_max, total = self._limits.row_group_bytes, 0
        while self._has_more():
            count, size = self._long(), self._long()
            if count < 0 or size < 0:
                damaged(f"the header of a block is invalid: {count} records in {size} bytes")
            if size > bytes_max:
                limited(f"a block has {size} bytes, but at most {bytes_max} are allowed")
            packed = self._bytes(size)
            if self._bytes(_SYNC) != self._sync:
                damaged("a block does not end with the file's sync marker")
            data = self._unpacked(packed, bytes_max)
            total += len(data)
            check_expansion(total, self._content.bytes_read, self._limits)
            yield count, data

    def _unpacked(self, packed: bytes, bytes_max: int) -> bytes:
        try:
            data = self._unpack(packed, bytes_max + 1)
        except (zlib.error, OSError, ValueError, IndexError, pa.ArrowException) as exc:
            raise FileRejectedError(
                rule="avro_damaged",
                message="a compressed block is damaged",
                cause=excerpt(str(exc)),
            ) from exc
        if len(data) > bytes_max:
            limited(f"a block decompresses to more than {bytes_max} bytes")
        return data

    def _metadata(self) -> dict[str, bytes]:
        metadata, size = dict[str, bytes](), 0
        while count := self._long():
            if count < 0:
                count, _ = -count, self._long()
            for _ in range(count):
                key, value = self._sized(), self._sized()
                size += len(key) + len(value) + 2
                if size > HEADER_BYTES_MAX:
                    limited(f"the header has more than {HEADER_BYTES_MAX} bytes")
                metadata[key.decode("utf-8", "replace")] = value
        return metadata

    def _sized(self) -> bytes:
        size = self._long()
        if size < 0:
            damaged("the header has a string with a negative length")
        if size > HEADER_BYTES_MAX:
            limited(f"the header has more than {HEADER_BYTES_MAX} bytes")
        return self._bytes(size)

    def _long(self) -> int:
        self._fill(_LONG_BYTES)
        try:
            value, self._at = read_long(self._buffer, self._at)
        except IndexError:
            damaged("the file is truncated")
        except ValueError as exc:
            damaged(str(exc))
        return value

    def _bytes(self, count: int) -> bytes:
        self._fill(count)
        end = self._at + count
        if end > len(self._buffer):
            damaged("the file is truncated")
        data, self._at = self._buffer[self._at : end], end
        return data

    def _has_more(self) -> bool:
        self._fill(1)
        return self._at < len(self._buffer)

    def _fill(self, count: int) -> None:
        """Read until the buffer has `count` bytes, or the file ends."""
        have = len(self._buffer) - self._at
        if have >= count:
            return
        parts = [self._buffer[self._at :]]
        while have < count and (part := self._content.read(READ_BYTES)):
            parts.append(part)
            have += len(part)
        self._buffer, self._at = b"".join(parts), 0


def _schema(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise FileRejectedError(
            "avro_damaged", "the file's schema is not JSON", cause=excerpt(str(exc))
        ) from exc


def _whole(stream: Any, data: bytes, size_max: int) -> bytes:
    unpacked: bytes = stream.decompress(data, size_max)
    if len(unpacked) < size_max and (not stream.eof or stream.unused_data):
        message = "the compressed stream does not end where the block ends"
        raise ValueError(message)
    return unpacked


def _unsnap(data: bytes, size_max: int) -> bytes:
    size = shift = at = 0
    while True:
        byte = data[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128 or shift > 35:
            break
    if size >= size_max:
        return bytes(size_max)
    unpacked = bytes(pa.Codec("snappy").decompress(data[:-4], decompressed_size=size))
    if zlib.crc32(unpacked) != int.from_bytes(data[-4:], "big"):
        message = "its checksum is wrong"
        raise ValueError(message)
    return unpacked


def _unzstd(data: bytes, size_max: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read(size_max))


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _: data,
    "deflate": lambda data, most: _whole(zlib.decompressobj(wbits=-15), data, most),
    "snappy": _unsnap,
    "bzip2": lambda data, most: _whole(bz2.BZ2Decompressor(), data, most),
    "zstandard": _unzstd,
}


_BATCH_BYTES = 8 << 20
"""Encoded bytes that are converted at a time."""


def read_avro(content: ClaimedContent, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one; `bad` notes it."""
    container = AvroContainer(content, reading.limits)
    try:
        records = _Records(record_fields(container.schema), reading)
        columns = ArrowColumns(reading)
        records.keep(columns.present(records.schema))
        for count, data in container.blocks():
            for part, first in records.batches(count, data):
                batch = columns.batch(part, range(first, first + part.num_rows))
                if batch is not None:
                    yield batch
                reading.bad.check(part.num_rows)
    except (pa.ArrowException, UnicodeError, OverflowError) as exc:
        message = "a value of the Avro file is not valid for its type"
        raise FileRejectedError("avro_damaged", message, cause=excerpt(str(exc))) from exc


class _Records:
    def __init__(self, fields: list[tuple[str, AvroType]], reading: Reading) -> None:
        self._fields, self._limits, self._rows = fields, reading.limits, 0
        declared = reading.schema
        self._decoders = [type_.decode for _, type_ in fields]
        self._kept: list[tuple[int, str, pa.DataType]] = []
        for name, type_ in fields:
            if type_.arrow is None and name in declared.names:
                message = f"expected {declared[name].type}, got the Avro type {type_.name}"
                raise FileRejectedError("column_type", message, column=name[:100])

    @property
    def schema(self) -> pa.Schema:
        """The file's columns; a column whose type Arrow lacks has only its name."""
        fields = [(name, pa.null() if t.arrow is None else t.arrow) for name, t in self._fields]
        return pa.schema(fields)

    def keep(self, names: list[str]) -> None:
        fields = enumerate(self._fields)
        self._kept = [(at, name, type_.arrow) for at, (name, type_) in fields if name in names]

    def batches(self, count: int, data: bytes) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the records of a block, and the number of the first of each batch."""
        at = begun = 0
        if count > len(data):
            damaged(
                f"the block has {len(data)} bytes, too few for the number of records in its "
                f"header, {count}"
            )
        rows = list[list[Any]]()
        for number in range(self._rows + 1, self._rows + 1 + count):
            row, end = self._row(data, at, number)
            rows.append(row)
            at = end
            if len(rows) >= self._limits.batch_rows or at - begun >= _BATCH_BYTES:
                yield self._batch(rows)
                rows, begun = [], at
        if at != len(data):
            damaged(f"{len(data) - at} bytes follow the last record of a block")
        if rows:
            yield self._batch(rows)

    def _row(self, data: bytes, begin: int, number: int) -> tuple[list[Any], int]:
        row, at = list[Any](), begin
        try:
            for decode in self._decoders:
                value, at = decode(data, at)
                row.append(value)
        except (IndexError, ValueError) as exc:
            cut = isinstance(exc, IndexError)
            raise FileRejectedError(
                rule="avro_damaged",
                message="the block ends inside this value" if cut else f"got {str(exc)[:200]}",
                line=number,
                column=self._fields[len(row)][0][:100],
                cause=excerpt(str(exc)),
            ) from exc
        bytes_max = self._limits.line_bytes_max
        if at - begin > bytes_max:
            message = (
                f"the record has {at - begin} bytes, but at most {bytes_max} are allowed; write "
                "shorter records, or raise CBP_LINE_BYTES_MAX"
            )
            raise FileRejectedError("line_too_long", message, line=number)
        return row, at

    def _batch(self, rows: list[list[Any]]) -> tuple[pa.RecordBatch, int]:
        first = self._rows + 1
        self._rows += len(rows)
        arrays = [pa.array(map(itemgetter(at), rows), type_) for at, _, type_ in self._kept]
        return pa.record_batch(arrays, names=[name for _, name, _ in self._kept]), first
