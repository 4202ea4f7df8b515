"""Decompresses the bytes of a text file while they are read, within limits.

Guaranteed:
- Compression is found by magic bytes, never by the name. A gzip, bzip2 or zstd stream that is cut,
  damaged or followed by other bytes is rejected, never read in part.
- Memory is bounded, whatever the file decompresses to.

Not guaranteed: flipped bits are not detected in a zstd stream without checksums. The
format's reader then decides about the changed text.
"""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from controller.ingest.formats.content import READ_BYTES, ClaimedContent
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

__all__ = ["BINARY_MAGIC", "Compression", "check_expansion", "decompressed", "sniff"]

Compression = Literal["none", "gzip", "bzip2", "zstd"]

_COMPRESSED_BYTES = 1 << 16
_MEMBER_BYTES = 1 << 9
"""First input of a member; doubles each time. Small: bytes behind the member are copied."""
_PZSTD_HEADER = b"\x50\x2a\x4d\x18\x04\x00\x00\x00"
"""Begins the frame in which pzstd announces the size of the next frame, in four bytes."""

_MAGIC: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    # A frame that readers skip; pzstd begins every file with one (RFC 8878, 3.1.2).
    *((bytes([0x50 + number]) + b"\x2a\x4d\x18", "zstd") for number in range(16)),
)
_REFUSED = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PAR1", "Parquet"),
    (b"Obj\x01", "Avro"),
)
BINARY_MAGIC = tuple(magic for magic, _ in (*_MAGIC, *_REFUSED))
"""First bytes of files that are no plain text."""


def sniff(content: ClaimedContent) -> Compression:
    """Detect how a text file is compressed.

    Raises:
        FileRejectedError: `compression_unsupported` or `format_mismatch`.
    """
    head = content.peek(10)
    for magic, kind in _MAGIC:
        # "BZh" may also begin a line of text; a bzip2 stream goes on with its size and a number.
        if head.startswith(magic) and (kind != "bzip2" or _is_bzip2(head)):
            return kind
    for magic, name in _REFUSED:
        if head.startswith(magic):
            binary = name in ("Parquet", "Avro")
            rule = "format_mismatch" if binary else "compression_unsupported"
            message = (
                f"the content is {name}; expected text, plain or compressed by gzip, bzip2 or zstd"
            )
            raise FileRejectedError(rule=rule, message=message)
    return "none"


def _is_bzip2(head: bytes) -> bool:
    block, end = b"1AY&SY", b"\x17rE8P\x90"
    return head[3:4].isdigit() and (head[4:] in (block, end) or len(head) < 10)


def decompressed(
    content: ClaimedContent, compression: Compression, limits: IngestLimits
) -> Iterator[bytes]:
    """Yield the decompressed bytes in chunks of bounded size, to the end of the file.

    Raises:
        FileRejectedError: A `compress…` or `decompress…` rule, or `format_mismatch` for an
            archive inside an archive.
    """
    if compression == "none":
        while chunk := content.read(READ_BYTES):
            yield chunk
        return
    if compression == "zstd":
        pieces = _unzstd(content)
    else:
        pieces = _members(content, _CODECS[compression], limits)
    # Otherwise each tiny member would become a block of lines of its own.
    chunks, total = _joined(pieces), 0
    for chunk in chunks:
        if total == 0 and chunk.startswith(tuple(magic for magic, _ in _MAGIC)):
            message = "a compressed file inside a compressed file is not taken"
            raise FileRejectedError(rule="compression_unsupported", message=message)
        total += len(chunk)
        check_expansion(total, content.bytes_read, limits)
        yield chunk


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces to chunks that are large enough for a block of lines."""
    gathered, size = list[bytes](), 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= _COMPRESSED_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if size:
        yield b"".join(gathered)


def check_expansion(total: int, compressed: int, limits: IngestLimits) -> None:
    """Raise `decompressed_too_large` or `decompression_ratio` once a limit is passed."""
    if total > limits.decompressed_bytes_max:
        message = (
            f"decompresses to more than {limits.decompressed_bytes_max} bytes; write smaller "
            "files, or raise CBP_DECOMPRESSED_BYTES_MAX"
        )
        raise FileRejectedError(rule="decompressed_too_large", message=message)
    if total > limits.ratio_floor_bytes and total > limits.ratio_max * compressed:
        message = (
            f"decompresses to more than {limits.ratio_max} times its size; "
            "if that is right, raise CBP_DECOMPRESSION_RATIO_MAX"
        )
        raise FileRejectedError(rule="decompression_ratio", message=message)


class _Member(Protocol):
    """One compressed stream; a file consists of one or several."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Bzip2Member:
    """A bzip2 stream that hands back what it did not consume, as zlib's streams do."""

    def __init__(self) -> None:
        self._stream = bz2.BZ2Decompressor()
        self.unconsumed_tail = b""

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data + self.unconsumed_tail

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        # It buffers what it is given: more input before it needs some would pile up.
        given = data if self._stream.needs_input else b""
        self.unconsumed_tail = data[len(given) :]
        return self._stream.decompress(given, max_length)


@dataclass(frozen=True, slots=True)
class _Codec:
    """A compression whose files consist of members.

    Attributes:
        name: As messages name it.
        magic: What each member begins with.
        make: Returns the stream of one member.
    """

    name: Compression
    magic: bytes
    make: Callable[[], _Member]


_CODECS: dict[Compression, _Codec] = {
    "gzip": _Codec("gzip", b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    "bzip2": _Codec("bzip2", b"BZh", _Bzip2Member),
}


def _members(content: ClaimedContent, codec: _Codec, limits: IngestLimits) -> Iterator[bytes]:
    """Yield the contents of all members; the whole file must consist of members."""
    member, members, fed = codec.make(), 1, _MEMBER_BYTES
    buffer, at = b"", 0
    pending = b""
    while True:
        if not pending:
            if at == len(buffer):
                buffer, at = content.read(_COMPRESSED_BYTES), 0
            pending, at = buffer[at : at + fed], min(at + fed, len(buffer))
            fed *= 2
        if member.eof:
            if not pending:
                return
            members += 1
            fed = _MEMBER_BYTES
            if members > limits.members_max:
                message = f"has more than {limits.members_max} {codec.name} members"
                raise FileRejectedError(rule="decompressed_too_large", message=message)
            if not pending.startswith(codec.magic[: len(pending)]):
                raise _trailing(codec, "")
            member = codec.make()
        at_end = not pending
        try:
            chunk = member.decompress(pending, READ_BYTES)
        except (zlib.error, OSError) as exc:
            raise _damage(codec, members, exc) from exc
        pending = member.unused_data if member.eof else member.unconsumed_tail
        if chunk:
            yield chunk
        elif at_end and not member.eof:
            message = f"the {codec.name} stream is cut; the file was not copied whole"
            raise FileRejectedError(rule="compressed_truncated", message=message)


def _damage(codec: _Codec, members: int, error: Exception) -> FileRejectedError:
    if members > 1 and "header" in str(error):
        return _trailing(codec, str(error))
    message = f"the {codec.name} stream is damaged"
    return FileRejectedError(rule="compressed_damaged", message=message, cause=str(error))


def _trailing(codec: _Codec, cause: str) -> FileRejectedError:
    message = f"bytes that are no {codec.name} member follow the compressed data"
    return FileRejectedError(rule="compressed_trailing_bytes", message=message, cause=cause)


class _Source(io.RawIOBase):
    """File object that gives Arrow's decompressor the bytes, which are hashed on the way."""

    def __init__(self, content: ClaimedContent) -> None:
        super().__init__()
        self._content = content

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._content.read(size if size >= 0 else READ_BYTES)


def _unzstd(content: ClaimedContent) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(_Source(content), mode="r"), "zstd")
    # Arrow's `read` loses what it has allocated when the stream turns out to be damaged.
    buffer = bytearray(READ_BYTES)
    while True:
        try:
            count = stream.readinto(buffer)
        except OSError as exc:
            if exc.errno:
                raise
            cut = "runcated" in str(exc)
            rule = "compressed_truncated" if cut else "compressed_damaged"
            message = f"the zstd stream is {'cut' if cut else 'damaged'}"
            raise FileRejectedError(rule=rule, message=message, cause=str(exc)) from exc
        if not count:
            break
        yield bytes(memoryview(buffer)[:count])
    if content.last(len(_PZSTD_HEADER) + 4).startswith(_PZSTD_HEADER):
        message = "the zstd stream is cut: pzstd announced a frame that is not there"
        raise FileRejectedError(rule="compressed_truncated", message=message)
