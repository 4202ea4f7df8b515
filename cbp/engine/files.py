"""The narrow port through which the engine makes bytes durable.

Guaranteed by `Files`:
- `put_if_absent` tells exactly one of any number of writers `Written`, in one
  process or in many, and everybody else gets the winner's bytes; a reader
  never sees a part of a file (tests/cbp/engine/test_files.py races two processes).
- What was acknowledged (`Written`, `Exists`, a return) is on the disk, name
  included: `Exists` too, because whoever finds its own entry takes it for done.
- A temporary file never stays behind a call that returns or raises, and those
  that a killed process left are not listed.

Not guaranteed: an `OperatingError` from a put leaves the outcome open; put
again and compare. Files of a killed process stay until `remove_temporaries`.

Delta's own local log store is no substitute: it lets two processes both
believe that they wrote one entry, and it takes 30 ms where link(2) takes 0.4.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.filesystems import LOCAL, log_store_class, scheme_of
from cbp.errors import (
    DiskFullError,
    FileSystemUnsafeError,
    LogConflictError,
    NotFoundError,
    OperatingError,
)

__all__ = ["Exists", "Files", "LocalFiles", "StoredFile", "Written", "files_for", "local_path"]

_TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True)
class Written:
    """The caller's bytes are durable under the name."""


@dataclass(frozen=True, slots=True)
class Exists:
    """Somebody was first.

    Attributes:
        data: The bytes that stand under the name.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a collector sees it.

    Attributes:
        path: Relative to the folder that was listed.
        age_seconds: Since it was last written, by the clock of this machine.
        temporary: An unfinished put or write, perhaps of a writer that was killed.
    """

    path: str
    bytes: int
    age_seconds: float
    temporary: bool


class Files(Protocol):
    """Durable effects on one file system; picklable, without open handles.

    `what` names the effect for fault injection, one of `faults.EFFECTS`.
    Every method raises DiskFullError when the device is full, NotFoundError
    when a file to be read is absent and OperatingError for any other failure.
    """

    def put_if_absent(
        self, path: str, data: bytes, *, what: str = "log_entry", staged: str = ""
    ) -> Written | Exists:
        """Create a file with `data` unless it exists; missing folders are made.

        Args:
            path: Its name.
            data: Its bytes.
            what: See above.
            staged: A folder of the same file system in which the bytes wait; `""`: beside it.
                Whoever takes its name away refuses every put that waits in it, or will.

        Raises:
            LogConflictError: If the folder `staged` is not there; nothing is put.
        """

    def write_durable(self, path: str, data: bytes, *, what: str = "data_file") -> None:
        """Create or replace a file, whole or not at all; missing folders are made."""

    def sync_file(self, path: str, *, what: str = "data_file") -> None:
        """Make an existing file's content and its name durable."""

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end."""

    def list_names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted, temporaries left out; [] if absent."""

    def list_files(self, path: str) -> list[StoredFile]:
        """Return every file below a folder, temporaries included, by path; [] if absent."""

    def remove(self, path: str, *, what: str = "clean_up") -> None:
        """Remove a file if it is there; not synced, so it may come back after a crash."""

    def remove_temporaries(self, path: str) -> int:
        """Remove what killed writers left in a folder; return how many.

        Only for a folder with no other writer at work: an unfinished put of
        another process then fails with OperatingError, and writes nothing.
        """

    def make_dirs(self, path: str) -> None:
        """Create a folder and its missing parents, durably."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder exists."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""


def local_path(uri: str) -> str:
    """Return the local path of a plain path or a `file:` URI."""
    if not uri.startswith("file:"):
        return uri
    return unquote(urlsplit(uri).path)


def files_for(
    uri: str, *, faults: Faults = NO_FAULTS, settings: Mapping[str, str] | None = None
) -> Files:
    """Return the port for the file system that `uri` names, if tables may lie there.

    Args:
        uri: A plain path or a URI.
        faults: Told at every durable effect.
        settings: Spark's settings, which may name a LogStore.

    Raises:
        FileSystemUnsafeError: If no safe implementation of `put_if_absent` exists for the
            scheme; or there is one, but tasks cannot write there yet.
    """
    scheme = scheme_of(uri)
    if scheme in LOCAL:
        return LocalFiles(faults)
    store = log_store_class(uri, settings or {})
    why = f"{store} would arbitrate between writers, but tasks write to POSIX paths only"
    how = "use a local or shared POSIX path (/data/tables or file:/data/tables)"
    raise FileSystemUnsafeError(uri, scheme, why, how)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """`Files` on a POSIX file system with hard links.

    Source:
        ours; the order of the steps is that of link(2) and fsync(2): content
        before name, name before acknowledgement.
    """

    faults: Faults = NO_FAULTS

    def put_if_absent(
        self, path: str, data: bytes, *, what: str = "log_entry", staged: str = ""
    ) -> Written | Exists:
        """Create a file with `data` unless it exists; see `Files`."""
        path, staged = local_path(path), local_path(staged)
        try:
            return self._put_if_absent(path, data, what, staged)
        except NotFoundError as exc:
            if staged and not os.path.isdir(staged):
                raise LogConflictError(path) from exc
            raise

    def _put_if_absent(self, path: str, data: bytes, what: str, staged: str) -> Written | Exists:
        with _operating(path), self._temporary(path, data, staged) as temporary:
            self.faults(f"{what}.before")
            try:
                os.link(temporary, path)
                linked = True
            except OSError as exc:
                # A lost answer from a network file system: the link may be ours all the same.
                linked = _is_same_file(temporary, path)
                if not linked and not isinstance(exc, FileExistsError):
                    raise
            self.sync_dir(os.path.dirname(path))
            if not linked:
                return Exists(self.read(path))
            self.faults(f"{what}.after")
            return Written()

    def write_durable(self, path: str, data: bytes, *, what: str = "data_file") -> None:
        """Create or replace a file, whole or not at all; see `Files`."""
        path = local_path(path)
        with _operating(path), self._temporary(path, data) as temporary:
            self.faults(f"{what}.before")
            os.rename(temporary, path)
            self.sync_dir(os.path.dirname(path))
            self.faults(f"{what}.after")

    def sync_file(self, path: str, *, what: str = "data_file") -> None:
        """Make an existing file's content and its name durable; see `Files`."""
        path = local_path(path)
        with _operating(path):
            self.faults(f"{what}.before")
            _fsync(path)
            self.sync_dir(os.path.dirname(path))
            self.faults(f"{what}.after")

    def read(self, path: str) -> bytes:
        """Return a file's bytes; see `Files`."""
        path = local_path(path)
        with _operating(path), open(path, "rb") as file:
            return file.read()

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; see `Files`."""
        path = local_path(path)
        with _operating(path), open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def list_names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; see `Files`."""
        return [name for name in _names(local_path(path)) if not _is_temporary(name)]

    def list_files(self, path: str) -> list[StoredFile]:
        """Return every file below a folder; see `Files`."""
        root = local_path(path).rstrip("/")
        with _operating(root):
            return sorted(_below(root, time.time()), key=lambda file: file.path)

    def remove(self, path: str, *, what: str = "clean_up") -> None:
        """Remove a file if it is there; see `Files`."""
        path = local_path(path)
        with _operating(path):
            self.faults(f"{what}.before")
            with suppress(FileNotFoundError):
                os.unlink(path)
            self.faults(f"{what}.after")

    def remove_temporaries(self, path: str) -> int:
        """Remove what killed writers left in a folder; see `Files`."""
        left = [name for name in _names(local_path(path)) if _is_temporary(name)]
        for name in left:
            self.remove(f"{local_path(path)}/{name}")
        return len(left)

    def make_dirs(self, path: str) -> None:
        """Create a folder and its missing parents, durably; see `Files`."""
        path = local_path(path).rstrip("/") or "/"
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent:
            self.make_dirs(parent)
        with _operating(path):
            with suppress(FileExistsError):
                os.mkdir(path)
            _fsync(parent or ".")

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable; see `Files`."""
        path = local_path(path) or "."
        with _operating(path):
            _fsync(path)

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder exists; see `Files`."""
        return os.path.exists(local_path(path))

    def size(self, path: str) -> int:
        """Return a file's size in bytes; see `Files`."""
        path = local_path(path)
        with _operating(path):
            return os.stat(path).st_size

    @contextmanager
    def _temporary(self, path: str, data: bytes, staged: str = "") -> Iterator[str]:
        """Write `data` durably under a name of its own, beside `path` or staged, and remove it."""
        folder, name = os.path.split(path)
        self.make_dirs(folder or ".")
        temporary = os.path.join(staged or folder, f".{name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)


def _names(path: str) -> list[str]:
    with _operating(path):
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []


def _below(root: str, now: float) -> Iterator[StoredFile]:
    for folder, _, names in os.walk(root):
        for name in names:
            full = f"{folder}/{name}"
            with suppress(FileNotFoundError):  # removed meanwhile
                found = os.stat(full)
                path = full.removeprefix(f"{root}/")
                age = now - found.st_mtime
                yield StoredFile(path, found.st_size, age, _is_temporary(name))


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _operating(path: str) -> Iterator[None]:
    """Turn what the operating system raises into the library's errors."""
    try:
        yield
    except FileNotFoundError as exc:
        raise NotFoundError(kind="file", name=path) from exc
    except OSError as exc:
        if DiskFullError.is_told_by(exc):
            raise DiskFullError(path) from exc
        message = f"{path}: {exc.strerror or exc}"
        raise OperatingError(message, path=path, errno=exc.errno) from exc
