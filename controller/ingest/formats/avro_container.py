"""The frame of an Avro file: its schema, and its blocks of records, decompressed within limits.

    Obj1 {metadata: schema, codec} sync   (count, bytes, data, sync)*

Every block must end with the file's own sync marker, and the file with a block: a file that was cut
or damaged is rejected, never read in part. Avro has no checksums, except for blocks packed by
snappy or bzip2; otherwise only what cannot be decoded is seen as damage.
"""

from __future__ import annotations

import bz2
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from controller.ingest.formats.compression import check_expansion
from controller.ingest.formats.content import READ_BYTES, ClaimedContent
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["HEADER_BYTES_MAX", "AvroBlock", "AvroContainer", "read_long"]

_MAGIC = b"Obj\x01"
HEADER_BYTES_MAX = 4 << 20
_SYNC = 16
_LONG_BYTES = 10


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Records of a file, encoded one after the other.

    Attributes:
        count: How many, as the file says.
    """

    count: int
    data: bytes


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, of 64 bits, and where it ends.

    Raises:
        IndexError: The data ends before it.
        ValueError: It has more than 64 bits.
    """
    byte = data[at]
    at += 1
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if value >> 64:
            message = "a number of more than 64 bits"
            raise ValueError(message)
    return (value >> 1) ^ -(value & 1), at


class AvroContainer:
    """Reads one file from its beginning to its end.

    Raises:
        FileRejectedError: `format_mismatch`, `avro_damaged`, `avro_limits` or
            `compression_unsupported`.
    """

    def __init__(self, content: ClaimedContent, limits: IngestLimits) -> None:
        if content.peek(len(_MAGIC)) != _MAGIC:
            raise FileRejectedError(rule="format_mismatch", message="the content is not Avro")
        self._content, self._limits = content, limits
        self._buffer, self._at = b"", 0
        self._bytes(len(_MAGIC))
        metadata = self._metadata()
        self.schema = _schema(metadata.get("avro.schema", b""))
        codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
        if codec not in _CODECS:
            message = (
                f"blocks are packed by {excerpt(codec)}, which is not taken; use "
                f"{', '.join(_CODECS)}"
            )
            raise FileRejectedError(rule="compression_unsupported", message=message)
        self._unpack = _CODECS[codec]
        self._sync = self._bytes(_SYNC)

    def blocks(self) -> Iterator[AvroBlock]:
        """Yield the blocks in order.

        Raises:
            FileRejectedError: `avro_damaged`, `avro_limits`, `decompression_ratio` or
                `decompressed_too_large`.
        """
        bytes_max, total = self._limits.row_group_bytes, 0
        while self._has_more():
            count, size = self._long(), self._long()
            if count < 0 or size < 0:
                _damaged(f"a block says that it has {count} records in {size} bytes")
            if size > bytes_max:
                _limited(f"a block has {size} bytes, at most {bytes_max} are taken")
            packed = self._bytes(size)
            if self._bytes(_SYNC) != self._sync:
                _damaged("a block does not end with the file's marker")
            data = self._unpacked(packed, bytes_max)
            total += len(data)
            check_expansion(total, self._content.bytes_read, self._limits)
            yield AvroBlock(count, data)

    def _unpacked(self, packed: bytes, bytes_max: int) -> bytes:
        try:
            data = self._unpack(packed, bytes_max + 1)
        except (zlib.error, OSError, ValueError, IndexError, pa.ArrowException) as exc:
            raise FileRejectedError(
                rule="avro_damaged", message="a packed block is damaged", cause=excerpt(str(exc))
            ) from exc
        if len(data) > bytes_max:
            _limited(f"a block decompresses to more than {bytes_max} bytes")
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
                    _limited(f"the header has more than {HEADER_BYTES_MAX} bytes")
                metadata[key.decode("utf-8", "replace")] = value
        return metadata

    def _sized(self) -> bytes:
        size = self._long()
        if size < 0:
            _damaged("the header has a text of a negative size")
        if size > HEADER_BYTES_MAX:
            _limited(f"the header has more than {HEADER_BYTES_MAX} bytes")
        return self._bytes(size)

    def _long(self) -> int:
        self._fill(_LONG_BYTES)
        try:
            value, self._at = read_long(self._buffer, self._at)
        except IndexError:
            _damaged("the file is cut")
        except ValueError as exc:
            _damaged(str(exc))
        return value

    def _bytes(self, count: int) -> bytes:
        self._fill(count)
        end = self._at + count
        if end > len(self._buffer):
            _damaged("the file is cut")
        data, self._at = self._buffer[self._at : end], end
        return data

    def _has_more(self) -> bool:
        self._fill(1)
        return self._at < len(self._buffer)

    def _fill(self, count: int) -> None:
        """Have `count` bytes in the buffer, or all that are left."""
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
            rule="avro_damaged", message="the file's schema is no JSON", cause=excerpt(str(exc))
        ) from exc


def _damaged(message: str) -> NoReturn:
    raise FileRejectedError(rule="avro_damaged", message=message)


def _limited(message: str) -> NoReturn:
    raise FileRejectedError(rule="avro_limits", message=message)


def _plain(data: bytes, _size_max: int) -> bytes:
    return data


def _inflate(data: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj(wbits=-15)
    unpacked = stream.decompress(data, size_max)
    if len(unpacked) < size_max and (not stream.eof or stream.unused_data):
        message = "the stream does not end with the block"
        raise ValueError(message)
    return unpacked


def _bunzip2(data: bytes, size_max: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    unpacked = stream.decompress(data, size_max)
    if len(unpacked) < size_max and (not stream.eof or stream.unused_data):
        message = "the stream does not end with the block"
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
    "null": _plain,
    "deflate": _inflate,
    "snappy": _unsnap,
    "bzip2": _bunzip2,
    "zstandard": _unzstd,
}
