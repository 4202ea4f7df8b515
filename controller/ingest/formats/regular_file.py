"""Opens files in a drop folder safely, whatever is there.

Anybody may put anything there: a link to a secret, a FIFO that nobody writes to, a device, a
folder, a file of many gigabytes under the name of a marker. Claimed files, manifests, reasons
and all other files of the folder are opened here and nowhere else.

Guaranteed (tests/controller/ingest/folder/test_strange_files.py):
- A link is not followed, and opening never blocks.
- Only a regular file is read, at most `bytes_max` bytes of it.
- An error that belongs to the file is a `FileRejectedError`. An `OSError` means that the file is
  gone, or that the machine has a problem (no memory, too many open files).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from controller.ingest.rejection import FileRejectedError

__all__ = ["open_regular", "read_regular", "unreadable"]

_NOT_REGULAR = (errno.ELOOP, errno.ENXIO, errno.ENODEV)
_OF_THE_MACHINE = (errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; never blocks.

    Raises:
        FileRejectedError: `not_regular` or `file_unreadable`.
        FileNotFoundError: There is no such file.
        OSError: The machine has no memory or no file descriptor left.
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


def read_regular(path: str | Path, *, bytes_max: int) -> bytes:
    """Return the content of a small regular file.

    Raises:
        FileRejectedError: `not_regular`, `file_unreadable` or `file_too_large`.
        OSError: As `open_regular`.
    """
    with open_regular(path) as file:
        try:
            data = file.read(bytes_max + 1)
        except OSError as exc:
            if exc.errno in _OF_THE_MACHINE:
                raise
            raise unreadable(exc) from exc
    if len(data) > bytes_max:
        message = f"may have {bytes_max} bytes at most"
        raise FileRejectedError(rule="file_too_large", message=message)
    return data


def unreadable(error: OSError) -> FileRejectedError:
    """Return the rejection for a file whose bytes cannot be read."""
    cause = error.strerror or str(error)
    message = f"the service cannot read the file ({cause}); make it readable and drop it again"
    return FileRejectedError(rule="file_unreadable", message=message, cause=cause)


def _not_regular() -> FileRejectedError:
    return FileRejectedError(
        rule="not_regular", message="not a regular file; links and devices are not taken"
    )
