"""Opens a regular file for reading, and refuses anything else under its name.

A folder, a FIFO or a device can lie where a file was: a restored backup, a mistake of an
operator. Opening a FIFO that nobody writes to would block for ever, in a thread that holds locks.
Links are followed: a folder of tables may be put together of them.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from cbp.errors import FileDamagedError


def open_regular(path: str, *, buffering: int = -1) -> BinaryIO:
    """Open a file for reading; never blocks.

    Raises:
        FileDamagedError: It is a folder, a FIFO or a device.
        OSError: As for `open`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb", buffering)
    os.close(handle)
    raise FileDamagedError(path, "it is a folder, a FIFO or a device, not a file")
