"""Copies files into a drop folder as a producer should: complete, durable, replacing no file.

    hidden part, synced -> linked to its name in one step

A file is identified by its name and content, so a copy keeps its name. If a file with that name and
the same content waits already, nothing is copied. If the content differs, the copy waits its turn.

Guaranteed (tests/controller/client/test_drop_folder.py): no reader sees half of a file; a file that
waits is never replaced; nothing is left behind.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cbp.errors import DiskFullError
from controller.client.service_client import FileUnreadableError, FileWaitsError

CHUNK_BYTES = 1 << 20

Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Copied:
    """A file in a drop folder; `waited`: it was there already, so nothing was copied."""

    path: Path
    waited: bool


def copy_into(
    folder: Path,
    file: Path,
    advance: Advance = lambda _: None,
    *,
    before: Callable[[str], object] = lambda sha256: None,
    patience: Callable[[], bool] = lambda: False,
) -> Copied:
    """Copy a file into a drop folder under its name, atomically; durable on return.

    Args:
        folder: The folder `incoming` of a source.
        file: Any regular file.
        advance: Called with the number of bytes of each part that was read.
        before: Called with the SHA-256 before the file can be taken in.
        patience: Called while a file of this name with other content waits; may sleep. If it
            returns `False`, `FileWaitsError` is raised.
    """
    part = folder / f".{secrets.token_hex(8)}.part"
    placed, digest = folder / file.name, hashlib.sha256()
    try:
        with part.open("xb") as target:
            for chunk in _chunks(file, advance):
                digest.update(chunk)
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        before(digest.hexdigest())
        while not (linked := _linked(part, placed)):
            placed_digest = _sha256(placed)
            if placed_digest == digest.hexdigest():
                break
            if placed_digest and not patience():
                raise FileWaitsError(placed)
        sync_folder(folder)
    except OSError as error:
        if DiskFullError.is_disk_full(error):
            raise DiskFullError(str(folder)) from error
        raise FileUnreadableError(folder, error.strerror or str(error)) from error
    finally:
        with suppress(OSError):  # on a read-only disk this fails as the copy did
            part.unlink(missing_ok=True)
    return Copied(placed, waited=not linked)


def _chunks(file: Path, advance: Advance) -> Iterator[bytes]:
    """Yield a file's content in parts; raise `FileUnreadableError` if it cannot be read."""
    try:
        with file.open("rb") as content:
            while chunk := content.read(CHUNK_BYTES):
                yield chunk
                advance(len(chunk))
    except OSError as error:
        raise FileUnreadableError(file, error.strerror or str(error)) from error


def _linked(part: Path, placed: Path) -> bool:
    """Give a finished part its name; `link` fails if the name exists, `rename` would replace it."""
    try:
        os.link(part, placed)
    except FileExistsError:
        return False
    return True


def _sha256(waiting: Path) -> str:
    """Return the digest of a file that waits; `""` if it was taken in meanwhile.

    The result for anything but a regular file equals no digest.
    """
    try:
        if not stat.S_ISREG(waiting.lstat().st_mode):
            return "not a file"
        # O_NONBLOCK: if a FIFO takes the file's place now, do not wait for a writer.
        with open(os.open(waiting, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable"


def sync_folder(folder: Path) -> None:
    """Make the names of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
