"""The bytes of one claimed file: read once, hashed on the way, decompressed with limits.

Guaranteed:
- `finish` returns the SHA-256 of exactly the bytes that the reader got; a file that
  changed meanwhile is rejected (`file_changed`).
- Symbolic links are not followed and devices are not opened for data.
- Compression is found by magic bytes, never by the name. A cut, damaged or
  continued gzip or zstd stream is rejected, never read in part.
- Memory is bounded whatever the file decompresses to.

Not guaranteed: a zstd stream without checksums does not show flipped bits; what
they turn the text into is then up to the format's reader.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal

import pyarrow as pa

from controller.ingest.errors import IntakeStoppedError
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

__all__ = ["ClaimedContent", "Compression", "decompressed", "never", "sniff"]

Compression = Literal["none", "gzip", "zstd"]

READ_BYTES = 1 << 20
_COMPRESSED_BYTES = 1 << 16
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
    """Say that nobody asks to leave off."""
    return False


class ClaimedContent:
    """One pass over a file; a context manager that closes it.

    Args:
        path: The claimed copy.
        stopping: Asked at every read whether to leave off.

    Raises:
        FileRejectedError: `not_regular`, `file_unreadable` or `file_too_large`.
        OSError: The device failed.
    """

    def __init__(
        self, path: str, limits: IngestLimits, stopping: Callable[[], bool] = never
    ) -> None:
        self._path, self._stopping = path, stopping
        self._file = _open(path)
        self._limits = limits
        self._before = self._identity()
        self._sha256 = hashlib.sha256()
        self._digest = ""
        self.bytes_read = 0
        if self.size > limits.file_bytes_max:
            self.close()
            message = f"the file has {self.size} bytes, at most {limits.file_bytes_max} are taken"
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

    def go_on(self) -> None:
        """Raise `IntakeStoppedError` if the service stops."""
        if self._stopping():
            raise IntakeStoppedError(self._path)

    def peek(self, count: int) -> bytes:
        """Return the first bytes without consuming them."""
        return os.pread(self._file.fileno(), count, 0)

    def read(self, count: int) -> bytes:
        """Return the next bytes, hashed; `b""` at the end.

        Raises:
            IntakeStoppedError: If the service stops.
        """
        self.go_on()
        data = self._file.read(count)
        self._sha256.update(data)
        self.bytes_read += len(data)
        return data

    def finish(self) -> str:
        """Read what is left and return the SHA-256 in hex; may be called again.

        Raises:
            FileRejectedError: `file_changed`, if somebody still writes to it.
        """
        if not self._digest:
            while self.read(READ_BYTES):
                pass
            self._digest = self._sha256.hexdigest()
        self.check_unchanged()
        return self._digest

    def check_unchanged(self) -> None:
        """Raise `file_changed` unless the file is as it was when it was opened."""
        if self._identity() != self._before or self.bytes_read != self.size:
            message = (
                "the file was written to after it was claimed; write it under a name that ends "
                "in .part and rename it when it is complete"
            )
            raise FileRejectedError(rule="file_changed", message=message)

    def seekable(self) -> BinaryIO:
        """Return the file for random access; what is read through it is not hashed."""
        self._file.seek(0)
        return self._file

    def _identity(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


def _open(path: str) -> BinaryIO:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise _not_regular() from exc
        if exc.errno in (errno.EACCES, errno.EPERM):
            message = "the service may not read the file; make it readable and drop it again"
            raise FileRejectedError(
                rule="file_unreadable", message=message, cause=str(exc.strerror)
            ) from exc
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular()
    return os.fdopen(handle, "rb")


def _not_regular() -> FileRejectedError:
    return FileRejectedError(
        rule="not_regular", message="not a regular file; links and devices are not taken"
    )


def sniff(content: ClaimedContent) -> Compression:
    """Tell how a text file is compressed.

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
    chunks = _gunzip(content, limits) if compression == "gzip" else _unzstd(content)
    total = 0
    for chunk in chunks:
        if total == 0 and chunk.startswith(tuple(magic for magic, _ in _MAGIC)):
            message = "a compressed file inside a compressed file is not taken"
            raise FileRejectedError(rule="compression_unsupported", message=message)
        total += len(chunk)
        _check_expansion(total, content.bytes_read, limits)
        yield chunk


def _check_expansion(total: int, compressed: int, limits: IngestLimits) -> None:
    if total > limits.decompressed_bytes_max:
        message = f"decompresses to more than {limits.decompressed_bytes_max} bytes"
        raise FileRejectedError(rule="decompressed_too_large", message=message)
    if total > limits.ratio_floor_bytes and total > limits.ratio_max * compressed:
        message = f"decompresses to more than {limits.ratio_max} times its size"
        raise FileRejectedError(rule="decompression_ratio", message=message)


def _gunzip(content: ClaimedContent, limits: IngestLimits) -> Iterator[bytes]:
    """Yield what all members hold; the whole file must be members."""
    member, pending, members = zlib.decompressobj(wbits=31), b"", 1
    while True:
        pending = pending or content.read(_COMPRESSED_BYTES)
        if member.eof:
            if not pending:
                return
            members += 1
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
    """Gives Arrow's decompressor the hashed bytes."""

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
