"""The bytes of one file: opened safely, read once, hashed on the way, decompressed within limits.

Anybody may put anything into a drop folder: a link to a secret, a FIFO that nobody writes to, a
device, a file of many gigabytes under the name of a marker. So claimed files, manifests, reasons
and all other files of the folder are opened here and nowhere else.

Guaranteed (tests/controller/ingest/folder/test_strange_files.py):
- A link is not followed, opening never blocks, and only a regular file is read.
- An error that belongs to the file is a `FileRejectedError`. An `OSError` means that the file is
  gone, or that the machine has a problem (no memory, too many open files).
- `finish` returns the SHA-256 of exactly the bytes that the reader got. A file that changed
  meanwhile is rejected (`file_changed`).
- Compression is found by magic bytes, never by the name. A gzip, bzip2 or zstd stream that is cut,
  damaged or followed by other bytes is rejected, never read in part.
- Memory is bounded, whatever the file decompresses to.

Not guaranteed: flipped bits are not detected in a zstd stream without checksums. The format's
reader then decides about the changed text.
"""

from __future__ import annotations

import bz2
import errno
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from controller.ingest.errors import IntakeStoppedError
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

_NOT_REGULAR = (errno.ELOOP, errno.ENXIO, errno.ENODEV)
_OF_THE_MACHINE = (errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; never blocks.

    Raises `not_regular` or `file_unreadable`; `OSError` if there is no such file, or the machine
    has no memory or no file descriptor left.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in _NOT_REGULAR:
            raise _not_regular() from exc
        if exc.errno in _OF_THE_MACHINE:
            raise
        raise unreadable(exc) from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular()
    return os.fdopen(handle, "rb")


def read_regular(path: str | Path, *, bytes_max: int, advice: str = "") -> bytes:
    """Return the content of a small regular file; raises as `open_regular`, or `file_too_large`.

    `advice` says in that message how to make the file smaller.
    """
    with open_regular(path) as file:
        try:
            data = file.read(bytes_max + 1)
        except OSError as exc:
            if exc.errno in _OF_THE_MACHINE:
                raise
            raise unreadable(exc) from exc
    if len(data) > bytes_max:
        limit = "which is the limit for a file of this kind"
        message = f"the file has more than {bytes_max} bytes, {limit}{advice}"
        raise FileRejectedError("file_too_large", message)
    return data


def unreadable(error: OSError) -> FileRejectedError:
    """Return the rejection for a file whose bytes cannot be read."""
    cause = error.strerror or str(error)
    message = (
        f"the service cannot read the file ({cause}); make the file readable and drop it again"
    )
    return FileRejectedError("file_unreadable", message, cause=cause)


def _not_regular() -> FileRejectedError:
    return FileRejectedError(
        "not_regular", "not a regular file; links and devices are not accepted"
    )


READ_BYTES = 1 << 20


def never() -> bool:
    """Return False: no stop of the reader is requested."""
    return False


def ignore_progress(_bytes: int) -> None:
    """Ignore the number of bytes that were read."""


class ClaimedContent:
    """One pass over a file; a context manager that closes it. Opens it as `open_regular`."""

    def __init__(
        self,
        path: str,
        limits: IngestLimits,
        stopping: Callable[[], bool] = never,
        worked: Callable[[int], object] = ignore_progress,
    ) -> None:
        self.path, self._stopping, self._worked = path, stopping, worked
        self._file = open_regular(path)
        self._limits = limits
        self._before = self._identity()
        self._sha256 = hashlib.sha256()
        self._digest = ""
        self.bytes_read = 0
        if self.size > limits.file_bytes_max:
            self.close()
            message = (
                f"the file has {self.size} bytes, but at most {limits.file_bytes_max} are "
                "allowed; write smaller files, or raise CBP_FILE_BYTES_MAX"
            )
            raise FileRejectedError("file_too_large", message)

    def __enter__(self) -> ClaimedContent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Size of the file in bytes when it was opened."""
        return self._before[0]

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()

    def beside(self, path: str) -> ClaimedContent:
        """Open another file that belongs to this one, with the same limits, stop and progress."""
        return ClaimedContent(path, self._limits, self._stopping, self._worked)

    def go_on(self, decoded: int = 0) -> None:
        """Count `decoded` more bytes; raise `IntakeStoppedError` if the service is stopping."""
        self._worked(decoded)
        if self._stopping():
            raise IntakeStoppedError(self.path)

    def peek(self, count: int) -> bytes:
        """Return the first bytes without consuming them."""
        return os.pread(self._file.fileno(), count, 0)

    def last(self, count: int) -> bytes:
        """Return the last bytes without consuming them."""
        return os.pread(self._file.fileno(), count, max(0, self.size - count))

    def read(self, count: int) -> bytes:
        """Return the next bytes and hash them; `b""` at the end. Raises `IntakeStoppedError`."""
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
        """Read the remaining bytes; return the SHA-256 in hex, or raise `file_changed`."""
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
                "the file was changed after it was claimed; write files under a name that ends in "
                ".part, and rename them when they are complete"
            )
            raise FileRejectedError("file_changed", message)

    def seekable(self) -> BinaryIO:
        """Return the file for random access; bytes read through it are not hashed."""
        self._file.seek(0)
        return self._file

    def _identity(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


Compression = Literal["none", "gzip", "bzip2", "zstd"]

_COMPRESSED_BYTES = 1 << 16
_MEMBER_BYTES = 1 << 9
"""Size of the first input of a member, then doubled; small, as bytes after a member are copied."""
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
"""First bytes of files that are not plain text."""


def sniff(content: ClaimedContent) -> Compression:
    """Detect how a text file is compressed; refuses archives and binary formats."""
    head = content.peek(10)
    for magic, kind in _MAGIC:
        # "BZh" may also begin a line of text; a bzip2 stream continues with its size and a number.
        if head.startswith(magic) and (kind != "bzip2" or _is_bzip2(head)):
            return kind
    for magic, name in _REFUSED:
        if head.startswith(magic):
            binary = name in ("Parquet", "Avro")
            rule = "format_mismatch" if binary else "compression_unsupported"
            message = (
                f"the content is {name}; expected text, plain or compressed by gzip, bzip2 or zstd"
            )
            raise FileRejectedError(rule, message)
    return "none"


def _is_bzip2(head: bytes) -> bool:
    block, end = b"1AY&SY", b"\x17rE8P\x90"
    return head[3:4].isdigit() and (head[4:] in (block, end) or len(head) < 10)


def decompressed(
    content: ClaimedContent, compression: Compression, limits: IngestLimits
) -> Iterator[bytes]:
    """Yield the decompressed bytes in chunks of bounded size, to the end of the file."""
    if compression == "none":
        while chunk := content.read(READ_BYTES):
            yield chunk
        return
    is_zstd = compression == "zstd"
    pieces = _unzstd(content) if is_zstd else _members(content, compression, limits)
    total = 0
    # Otherwise each tiny member would become a block of lines of its own.
    for chunk in _joined(pieces):
        if total == 0 and chunk.startswith(tuple(magic for magic, _ in _MAGIC)):
            message = "the file is compressed twice; compress it once"
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
            f"the file decompresses to more than {limits.decompressed_bytes_max} bytes; write "
            "smaller files, or raise CBP_DECOMPRESSED_BYTES_MAX"
        )
        raise FileRejectedError(rule="decompressed_too_large", message=message)
    if total > limits.ratio_floor_bytes and total > limits.ratio_max * compressed:
        message = (
            f"the file decompresses to more than {limits.ratio_max} times its size; if this is "
            "expected, raise CBP_DECOMPRESSION_RATIO_MAX"
        )
        raise FileRejectedError("decompression_ratio", message)


class _Bzip2Member:
    """One bzip2 stream of a file; it hands back unconsumed bytes, as zlib's streams do."""

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
        # The stream buffers its input, so it gets no more before it needs some.
        given = data if self._stream.needs_input else b""
        self.unconsumed_tail = data[len(given) :]
        return self._stream.decompress(given, max_length)


def _begin_member(codec: Compression) -> Any:
    return zlib.decompressobj(wbits=31) if codec == "gzip" else _Bzip2Member()


def _members(content: ClaimedContent, codec: Compression, limits: IngestLimits) -> Iterator[bytes]:
    magic = next(magic for magic, name in _MAGIC if name == codec)
    member, members, fed = _begin_member(codec), 1, _MEMBER_BYTES
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
                message = (
                    f"the file has more than {limits.members_max} {codec} members; compress it in "
                    "fewer members"
                )
                raise FileRejectedError(rule="decompressed_too_large", message=message)
            if not pending.startswith(magic[: len(pending)]):
                raise _trailing(codec, "")
            member = _begin_member(codec)
        at_end = not pending
        try:
            chunk = member.decompress(pending, READ_BYTES)
        except (zlib.error, OSError) as exc:
            raise _damage(codec, members, exc) from exc
        pending = member.unused_data if member.eof else member.unconsumed_tail
        if chunk:
            yield chunk
        elif at_end and not member.eof:
            message = f"the {codec} stream is truncated; the file was not copied completely"
            raise FileRejectedError(rule="compressed_truncated", message=message)


def _damage(codec: Compression, members: int, error: Exception) -> FileRejectedError:
    if members > 1 and "header" in str(error):
        return _trailing(codec, str(error))
    message = f"the {codec} stream is damaged"
    return FileRejectedError("compressed_damaged", message, cause=str(error))


def _trailing(codec: Compression, cause: str) -> FileRejectedError:
    message = f"the compressed data is followed by bytes that are not a {codec} member"
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
            message = f"the zstd stream is {'truncated' if cut else 'damaged'}"
            raise FileRejectedError(rule, message, cause=str(exc)) from exc
        if not count:
            break
        yield bytes(memoryview(buffer)[:count])
    if content.last(len(_PZSTD_HEADER) + 4).startswith(_PZSTD_HEADER):
        message = "the zstd stream is truncated: pzstd announced a frame that is missing"
        raise FileRejectedError(rule="compressed_truncated", message=message)
