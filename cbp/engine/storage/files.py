"""Durable file operations: atomic put-if-absent, whole writes, syncs.

Guaranteed by `Files`:
- `put_if_absent` returns `Written` to exactly one of any number of writers, in one
  process or in many. Every other writer gets the winner's bytes. A reader
  never sees a part of a file (tests/cbp/engine/storage/test_files.py races two processes).
- What was acknowledged (`Written`, `Exists`, a return) is on the disk, with its
  name. This holds for `Exists` too, because a writer that finds its own entry takes it as done.
- A temporary file never outlives the call that made it. Temporary files that a killed process left
  are not listed, and stay until `remove_temporaries`.

Not guaranteed: after an `OperatingError` from a put the outcome is open; put again and compare.

A log entry must have exactly one writer. What ensures that depends on the file system:

    plain path, file:         link(2), `LocalFiles`
    hdfs, abfs, gs, ...       Delta's LogStore; refused for now, because tasks write to POSIX paths
    s3, s3a, s3n              a LogStore that arbitrates through DynamoDB, if one is configured

Refused by name: Delta's LogStore on `file:`, which lets two processes both create the same file
(tests/spark/test_log_store.py), and the single-driver store on S3, whose locks are in one JVM.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.errors import (
    DiskFullError,
    FileDamagedError,
    FileSystemUnsafeError,
    LogConflictError,
    NotFoundError,
    OperatingError,
)

LOCAL = ("", "file")
_AZURE = "io.delta.storage.AzureLogStore"
_SAFE = {
    "hdfs": "io.delta.storage.HDFSLogStore",
    "abfs": _AZURE,
    "abfss": _AZURE,
    "wasb": _AZURE,
    "wasbs": _AZURE,
    "adl": _AZURE,
    "gs": "io.delta.storage.GCSLogStore",
}
_S3 = ("s3", "s3a", "s3n")
_ONE_WRITER = ("S3SingleDriverLogStore", "LocalLogStore")
_S3_HOW = (
    "set {setting}=io.delta.storage.S3DynamoDBLogStore, name its table "
    "(spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName, .ddb.region), and add the package "
    "io.delta:delta-storage-s3-dynamodb"
)

_TEMPORARY = ".tmp"


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case, `""` for a plain path."""
    return urlsplit(uri).scheme.lower()


def setting_of(scheme: str) -> str:
    """Return the Spark setting that names a scheme's LogStore."""
    return f"spark.delta.logStore.{scheme}.impl"


def log_store_class(uri: str, settings: Mapping[str, str]) -> str:
    """Return the Java class of the LogStore that is safe between processes for `uri`.

    One in Spark's settings takes precedence. `FileSystemUnsafeError` if there is none; the message
    says what to configure.
    """
    scheme = scheme_of(uri)
    if scheme in LOCAL:
        why = "on a local disk, Delta's LogStore lets two processes write the same log entry"
        raise FileSystemUnsafeError(uri, scheme, why, "use LocalFiles, which prevents that")
    how = _S3_HOW if scheme in _S3 else "set {setting} to a LogStore that prevents it"
    how = how.format(setting=setting_of(scheme))
    class_name = settings.get(setting_of(scheme)) or _SAFE.get(scheme)
    if class_name is None:
        why = "this file system does not prevent two processes from writing the same log entry"
        raise FileSystemUnsafeError(uri, scheme, why, how)
    if class_name.rpartition(".")[2] in _ONE_WRITER:
        why = f"{class_name} is safe only within one process"
        raise FileSystemUnsafeError(uri, scheme, why, how)
    return class_name


def open_regular(path: str, *, buffering: int = -1) -> BinaryIO:
    """Open a file for reading; never blocks. Raises `FileDamagedError` if it is no regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb", buffering)
    os.close(handle)
    raise FileDamagedError(path, "it is a folder, a FIFO or a device, not a file")


@dataclass(frozen=True, slots=True)
class Written:
    """The caller's bytes are durable under the name."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The file exists already."""

    data: bytes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the garbage collector sees it; its path is relative to the folder that was listed.

    Attributes:
        age_seconds: Time since the last write, by the clock of this machine.
        temporary: Whether it is an unfinished put or write, perhaps of a killed writer.
    """

    path: str
    bytes: int
    age_seconds: float
    temporary: bool


class Files(Protocol):
    """Durable effects on one file system; picklable, without open handles.

    `what` names the effect for fault injection, one of `failpoints.EFFECTS`.
    Every method raises DiskFullError when the device is full, NotFoundError
    when a file to be read is absent, FileDamagedError when it is not a file (a folder, a FIFO),
    and OperatingError for any other failure.
    """

    def put_if_absent(
        self, path: str, data: bytes, *, what: str = "log_entry", staged: str = ""
    ) -> Written | Exists:
        """Create a file with `data` unless it exists; missing folders are made.

        The temporary file is made beside it, or in the folder `staged` of the same file system.
        Renaming that folder makes all puts staged in it fail, now or later: `LogConflictError` is
        raised, and nothing is put.
        """

    def write_durable(self, path: str, data: bytes, *, what: str = "data_file") -> None:
        """Create or replace a file atomically; missing folders are made."""

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end."""

    def list_names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted, temporaries left out; [] if absent."""

    def list_files(self, path: str) -> list[StoredFile]:
        """Return every file below a folder, temporaries included, by path; [] if absent."""

    def remove(self, path: str, *, what: str = "clean_up") -> None:
        """Remove a file if it exists; not synced, so it may reappear after a crash."""

    def remove_temporaries(self, path: str) -> int:
        """Remove temporary files of killed writers in a folder; return how many.

        Only for a folder in which no other writer is at work: an unfinished put of
        another process would fail with OperatingError and write nothing.
        """

    def make_dirs(self, *paths: str) -> None:
        """Create folders and their missing parents, durably; each parent is synced once."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""


def local_path(uri: str) -> str:
    """Return the local path of a plain path or a `file:` URI."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def files_for(
    uri: str, *, faults: Faults = NO_FAULTS, settings: Mapping[str, str] | None = None
) -> Files:
    """Return the `Files` of the file system that a path or URI names, if tables may be there.

    `FileSystemUnsafeError` if the scheme has no safe `put_if_absent`, even by a LogStore that
    Spark's settings name, or if it has one but tasks cannot write there yet.
    """
    scheme = scheme_of(uri)
    if scheme in LOCAL:
        return LocalFiles(faults)
    log_store_class(uri, settings or {})
    why = "the tasks of this release write tables to POSIX paths only"
    how = "use a local or shared POSIX path (/data/tables or file:/data/tables)"
    raise FileSystemUnsafeError(uri, scheme, why, how)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """`Files` on a POSIX file system: content before name, name before acknowledgement."""

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
                # On a network file system the answer can be lost although the link was made.
                linked = _is_same_file(temporary, path)
                if not linked and not isinstance(exc, FileExistsError):
                    raise
            self.sync_dir(os.path.dirname(path))
            if not linked:
                return Exists(self.read(path))
            self.faults(f"{what}.after")
            return Written()

    def write_durable(self, path: str, data: bytes, *, what: str = "data_file") -> None:
        """Create or replace a file atomically; see `Files`."""
        path = local_path(path)
        with _operating(path), self._temporary(path, data) as temporary:
            self.faults(f"{what}.before")
            os.rename(temporary, path)
            self.sync_dir(os.path.dirname(path))
            self.faults(f"{what}.after")

    def read(self, path: str) -> bytes:
        """Return a file's bytes; see `Files`."""
        path = local_path(path)
        with _operating(path), open_regular(path) as file:
            return file.read()

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; see `Files`."""
        path = local_path(path)
        with _operating(path), open_regular(path) as file:
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
        """Remove a file if it exists; see `Files`."""
        path = local_path(path)
        with _operating(path):
            self.faults(f"{what}.before")
            with suppress(FileNotFoundError):
                os.unlink(path)
            self.faults(f"{what}.after")

    def remove_temporaries(self, path: str) -> int:
        """Remove temporary files of killed writers in a folder; see `Files`."""
        left = [name for name in _names(local_path(path)) if _is_temporary(name)]
        for name in left:
            self.remove(f"{local_path(path)}/{name}")
        return len(left)

    def make_dirs(self, *paths: str) -> None:
        """Create folders and their missing parents, durably; see `Files`."""
        grown: dict[str, None] = {}
        for path in paths:
            _make_dirs(local_path(path).rstrip("/") or "/", grown)
        for parent in grown:
            self.sync_dir(parent)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable; see `Files`."""
        path = local_path(path) or "."
        with _operating(path):
            sync_path(path)

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists; see `Files`."""
        return os.path.exists(local_path(path))

    @contextmanager
    def _temporary(self, path: str, data: bytes, staged: str = "") -> Iterator[str]:
        """Yield a durable temporary file of `data` by `path` or in `staged`; then remove it."""
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
    for folder, _, names in os.walk(root, onerror=_raise_unless_gone):
        for name in names:
            full = f"{folder}/{name}"
            try:
                status = os.stat(full)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ELOOP):
                    continue  # removed meanwhile, or a dangling link
                raise
            path = full.removeprefix(f"{root}/")
            age = now - status.st_mtime
            yield StoredFile(path, status.st_size, age, _is_temporary(name))


def _raise_unless_gone(error: OSError) -> None:
    """Fail a listing of an unreadable folder, whose files would otherwise seem to be gone."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _make_dirs(path: str, grown: dict[str, None]) -> None:
    """Create a folder and its missing parents; add folders that got a new entry to `grown`."""
    if os.path.isdir(path):
        return
    if parent := os.path.dirname(path):
        _make_dirs(parent, grown)
    with _operating(path), suppress(FileExistsError):
        os.mkdir(path)
    grown[parent or "."] = None


def sync_path(path: str) -> None:
    """Sync a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _operating(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise NotFoundError(kind="file", name=path) from exc
    except OSError as exc:
        if DiskFullError.is_disk_full(exc):
            raise DiskFullError(path) from exc
        message = f"{path}: {exc.strerror or exc}"
        raise OperatingError(message, path=path, errno=exc.errno) from exc
