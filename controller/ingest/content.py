"""The bytes of one claimed file: read once, hashed while reading, decompressed within limits.

Guaranteed:
- `finish` returns the SHA-256 of exactly the bytes that the reader got. A file that
  changed meanwhile is rejected (`file_changed`).
- Symbolic links are not followed, and devices are not opened for data.
- Compression is found by magic bytes, never by the name. A gzip or zstd stream that is cut,
  damaged or followed by other bytes is rejected, never read in part.
- Memory is bounded, whatever the file decompresses to.

Not guaranteed: flipped bits are not detected in a zstd stream without checksums. The
format's reader then decides about the changed text.
"""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Literal

import pyarrow as pa

from controller.ingest.errors import IntakeStoppedError
from controller.ingest.limits import IngestLimits
from controller.ingest.regular_file import open_regular, unreadable
from controller.ingest.rejection import FileRejectedError

__all__ = [
    "ClaimedContent",
    "Compression",
    "check_expansion",
    "decompressed",
    "ignore_progress",
    "never",
    "sniff",
]

Compression = Literal["none", "gzip", "zstd"]

READ_BYTES = 1 << 20
_COMPRESSED_BYTES = 1 << 16
_MEMBER_BYTES = 1 << 9
"""First input of a gzip member; doubles each time. Small: bytes behind the member are copied."""
_MAGIC: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_REFUSED = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PAR1", "Parquet"),
    (b"Obj\x01", "Avro"),
)


def never() -> bool:
    """Return False: nobody asks the reader to stop."""
    return False


def ignore_progress(_bytes: int) -> None:
    """Ignore the number of bytes that were read."""


class ClaimedContent:
    """One pass over a file; a context manager that closes it.

    Args:
        path: The claimed copy.
        stopping: Called at every read; returns whether to stop reading.
        worked: Called with the number of bytes that were read, and that were decoded.

    Raises:
        FileRejectedError: `not_regular`, `file_unreadable` or `file_too_large`.
        OSError: The device failed.
    """

    def __init__(
        self,
        path: str,
        limits: IngestLimits,
        stopping: Callable[[], bool] = never,
        worked: Callable[[int], object] = ignore_progress,
    ) -> None:
        self._path, self._stopping, self._worked = path, stopping, worked
        self._file = open_regular(path)
        self._limits = limits
        self._before = self._identity()
        self._sha256 = hashlib.sha256()
        self._digest = ""
        self.bytes_read = 0
        if self.size > limits.file_bytes_max:
            self.close()
            message = (
                f"the file has {self.size} bytes, at most {limits.file_bytes_max} are taken; write "
                "smaller files, or raise CBP_FILE_BYTES_MAX"
            )
            raise FileRejectedError(rule="file_too_large", message=message)

    def __enter__(self) -> ClaimedContent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._before[0]

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()

    def go_on(self, decoded: int = 0) -> None:
        """Count `decoded` more bytes; raise `IntakeStoppedError` if the service is stopping."""
        self._worked(decoded)
        if self._stopping():
            raise IntakeStoppedError(self._path)

    def peek(self, count: int) -> bytes:
        """Return the first bytes without consuming them."""
        return os.pread(self._file.fileno(), count, 0)

    def read(self, count: int) -> bytes:
        """Return the next bytes and hash them; `b""` at the end.

        Raises:
            IntakeStoppedError: If the service is stopping.
        """
        self.go_on()
        try:
            data = self._file.read(count)
        except OSError as exc:
            raise unreadable(exc) from exc
        self._sha256.update(data)
        self.bytes_read += len(data)
        self._worked(len(data))
        return data

    def finish(self) -> str:
        """Read the remaining bytes and return the SHA-256 in hex; may be called again.

        Raises:
            FileRejectedError: `file_changed`, if the file is still being written.
        """
        if not self._digest:
            while self.read(READ_BYTES):
                pass
            self._digest = self._sha256.hexdigest()
        self.check_unchanged()
        return self._digest

    def check_unchanged(self) -> None:
        """Raise `file_changed` if the file differs from when it was opened."""
        if self._identity() != self._before or self.bytes_read != self.size:
            message = (
                "the file was written to after it was claimed; write it under a name that ends "
                "in .part and rename it when it is complete"
            )
            raise FileRejectedError(rule="file_changed", message=message)

    def seekable(self) -> BinaryIO:
        """Return the file for random access; bytes that are read through it are not hashed."""
        self._file.seek(0)
        return self._file

    def _identity(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


def sniff(content: ClaimedContent) -> Compression:
    """Detect how a text file is compressed.

    Raises:
        FileRejectedError: `compression_unsupported` or `format_mismatch`.
    """
    head = content.peek(8)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    for magic, name in _REFUSED:
        if head.startswith(magic):
            binary = name in ("Parquet", "Avro")
            rule = "format_mismatch" if binary else "compression_unsupported"
            message = f"the content is {name}; expected text, plain or compressed by gzip or zstd"
            raise FileRejectedError(rule=rule, message=message)
    return "none"


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
    pieces = _gunzip(content, limits) if compression == "gzip" else _unzstd(content)
    # Otherwise each tiny gzip member would become a block of lines of its own.
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


def _gunzip(content: ClaimedContent, limits: IngestLimits) -> Iterator[bytes]:
    """Yield the contents of all gzip members; the whole file must consist of members."""
    member, members, fed = zlib.decompressobj(wbits=31), 1, _MEMBER_BYTES
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
                message = f"has more than {limits.members_max} gzip members"
                raise FileRejectedError(rule="decompressed_too_large", message=message)
            member = zlib.decompressobj(wbits=31)
        at_end = not pending
        try:
            chunk = member.decompress(pending, READ_BYTES)
        except zlib.error as exc:
            raise _gzip_damage(members, exc) from exc
        pending = member.unused_data if member.eof else member.unconsumed_tail
        if chunk:
            yield chunk
        elif at_end and not member.eof:
            message = "the gzip stream is cut; the file was not copied whole"
            raise FileRejectedError(rule="compressed_truncated", message=message)


def _gzip_damage(members: int, error: zlib.error) -> FileRejectedError:
    if members > 1 and "header" in str(error):
        message = "bytes that are no gzip member follow the compressed data"
        return FileRejectedError(
            rule="compressed_trailing_bytes", message=message, cause=str(error)
        )
    message = "the gzip stream is damaged"
    return FileRejectedError(rule="compressed_damaged", message=message, cause=str(error))


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
    while True:
        try:
            chunk = stream.read(READ_BYTES)
        except OSError as exc:
            if exc.errno:
                raise
            cut = "runcated" in str(exc)
            rule = "compressed_truncated" if cut else "compressed_damaged"
            message = f"the zstd stream is {'cut' if cut else 'damaged'}"
            raise FileRejectedError(rule=rule, message=message, cause=str(exc)) from exc
        if not chunk:
            return
        yield chunk
