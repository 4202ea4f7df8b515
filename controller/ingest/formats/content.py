"""The bytes of one claimed file: read once, hashed while reading.

Guaranteed:
- `finish` returns the SHA-256 of exactly the bytes that the reader got. A file that
  changed meanwhile is rejected (`file_changed`).
- Symbolic links are not followed, and devices are not opened for data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import BinaryIO

from controller.ingest.errors import IntakeStoppedError
from controller.ingest.formats.regular_file import open_regular, unreadable
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

__all__ = ["READ_BYTES", "ClaimedContent", "ignore_progress", "never"]

READ_BYTES = 1 << 20


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

    def beside(self, path: str) -> ClaimedContent:
        """Return another file that is read for this one: same limits, stop and progress."""
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
