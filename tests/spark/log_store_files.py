"""`Files` on file systems that Hadoop knows: Delta's LogStore, and Hadoop's FileSystem.

The product stores tables on POSIX paths only, because tasks write there. This shows what the port
would need elsewhere, and what Delta's LogStore does when two writers race.

It works in the driver only, since it calls the driver's JVM. `put_if_absent` is the LogStore's
`write(overwrite=false)`, whose class `cbp.engine.storage.files` chooses; everything
else is plain reading and writing.

Guaranteed: what `Files` guarantees, as far as the LogStore is safe between processes. If the
outcome of a put is unknown, the entry is read: if it holds our bytes, the put has succeeded.
The contents of a put are text; a last newline is added if it is missing, because a LogStore writes
lines.

Not guaranteed: syncs of folders and existing files do nothing, since these file systems
acknowledge a write only when it is durable.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from cbp.clock import MACHINE
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Exists, StoredFile, Written, scheme_of
from cbp.errors import (
    DiskFullError,
    FileSystemUnsafeError,
    NotFoundError,
    OperatingError,
)

__all__ = ["LogStoreFiles"]

_TEMPORARY = ".tmp"
_ABSENT = ("FileNotFoundException", "NoSuchFileException")
_TAKEN = "FileAlreadyExistsException"
_THROWN = (Py4JJavaError, CapturedException)
"""Exceptions of the JVM; PySpark converts some, such as an illegal argument, to the second type."""
_FULL = ("QuotaExceeded", "No space left", "quota")


class LogStoreFiles:
    """Implements `cbp.engine.storage.files.Files` in the driver; see the module header.

    Args:
        jvm: The driver's JVM, through py4j.
        conf: Hadoop's configuration there.
        store: Class name of the LogStore.
        faults: Failpoints, called at every durable effect.
    """

    def __init__(self, jvm: Any, conf: Any, store: str, *, faults: Faults = NO_FAULTS) -> None:
        self._jvm, self._conf, self.faults = jvm, conf, faults
        made: Any = jvm
        for part in store.split("."):
            made = getattr(made, part)
        self._store = made(conf)

    def put_if_absent(
        self, path: str, data: bytes, *, what: str = "log_entry", staged: str = ""
    ) -> Written | Exists:
        """Create a file with the text `data` unless it exists; see `Files`.

        Raises:
            FileSystemUnsafeError: If `staged` is given: a LogStore has no put with two conditions.
        """
        if staged:
            why = "a LogStore refuses a name that is taken, not a writer that was deposed"
            how = "put what amends a dataflow on a POSIX path"
            raise FileSystemUnsafeError(path, scheme_of(path), why, how)
        text = data.decode().removesuffix("\n")
        stored = f"{text}\n".encode()
        lines = self._jvm.java.util.Collections.singletonList(text).iterator()
        self.make_dirs(path.rpartition("/")[0])
        self.faults(f"{what}.before")
        try:
            self._store.write(self._path(path), lines, False, self._conf)
        except _THROWN as exc:
            actual = self._found(path)
            if actual is None:
                raise _coded(exc, path) from exc
            if _is(exc, _TAKEN) or actual != stored:
                # Return the caller's own bytes without the added newline, to be recognized.
                return Exists(data if actual == stored else actual)
        self.faults(f"{what}.after")
        return Written()

    def write_durable(self, path: str, data: bytes, *, what: str = "data_file") -> None:
        """Create or replace a file, whole or not at all; see `Files`."""
        with _operating(path):
            partial = self._store.isPartialWriteVisible(self._path(path), self._conf)
            self.faults(f"{what}.before")
            if partial:
                self._replace(path, data)
            else:
                self._write(path, data)
            self.faults(f"{what}.after")

    def read(self, path: str) -> bytes:
        """Return a file's bytes; see `Files`."""
        return self.read_range(path, 0, self.size(path))

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; see `Files`."""
        length = max(0, min(size, self.size(path) - offset))
        with _operating(path):
            stream = self._system(path).open(self._path(path))
            try:
                stream.seek(offset)
                actual = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, length)
            finally:
                stream.close()
        return bytes(actual)

    def list_names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; see `Files`."""
        return [name for name in self._names(path) if not _is_temporary(name)]

    def list_files(self, path: str) -> list[StoredFile]:
        """Return every file below a folder, by path; see `Files`."""
        if not self.exists(path):
            return []
        actual, now = [], MACHINE.now().timestamp()
        with _operating(path):
            root = self._system(path).getFileStatus(self._path(path)).getPath().toString()
            listed = self._system(path).listFiles(self._path(path), True)
            while listed.hasNext():
                status = listed.next()
                relative = status.getPath().toString().removeprefix(f"{root}/")
                age = now - status.getModificationTime() / 1000
                temporary = _is_temporary(relative.rpartition("/")[2])
                actual.append(StoredFile(relative, status.getLen(), age, temporary))
        return sorted(actual, key=lambda file: file.path)

    def remove(self, path: str, *, what: str = "clean_up") -> None:
        """Remove a file if it is there; see `Files`."""
        with _operating(path):
            self.faults(f"{what}.before")
            self._system(path).delete(self._path(path), False)
            self.faults(f"{what}.after")

    def remove_temporaries(self, path: str) -> int:
        """Remove temporary files that killed writers left in a folder; see `Files`."""
        left = [name for name in self._names(path) if _is_temporary(name)]
        for name in left:
            self.remove(f"{path}/{name}")
        return len(left)

    def make_dirs(self, *paths: str) -> None:
        """Create folders and their missing parents; see `Files`."""
        for path in paths:
            with _operating(path):
                self._system(path).mkdirs(self._path(path))

    def sync_dir(self, path: str) -> None:
        """Do nothing; see the module header."""

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder exists; see `Files`."""
        with _operating(path):
            return bool(self._system(path).exists(self._path(path)))

    def size(self, path: str) -> int:
        """Return a file's size in bytes; see `Files`."""
        with _operating(path):
            return int(self._system(path).getFileStatus(self._path(path)).getLen())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)

    def _names(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        with _operating(path):
            listed = self._system(path).listStatus(self._path(path))
            return sorted(status.getPath().getName() for status in listed)

    def _found(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFoundError:
            return None

    def _write(self, path: str, data: bytes) -> None:
        stream = self._system(path).create(self._path(path), True)
        try:
            stream.write(data)
            stream.hsync()
        finally:
            stream.close()

    def _replace(self, path: str, data: bytes) -> None:
        """Write a temporary file in the same folder, and rename it over the file."""
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}{_TEMPORARY}"
        self._write(temporary, data)
        context = self._jvm.org.apache.hadoop.fs.FileContext
        overwrite = getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename").OVERWRITE
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite.getClass(), 1)
        options[0] = overwrite
        there = context.getFileContext(self._path(path).toUri(), self._conf)
        there.rename(self._path(temporary), self._path(path), options)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)


def _is(exc: Py4JJavaError | CapturedException, *names: str) -> bool:
    return _java(exc).getClass().getSimpleName() in names


def _java(exc: Py4JJavaError | CapturedException) -> Any:
    return exc.java_exception if isinstance(exc, Py4JJavaError) else exc._origin


@contextmanager
def _operating(path: str) -> Iterator[None]:
    """Turn exceptions of the JVM into the library's errors."""
    try:
        yield
    except _THROWN as exc:
        raise _coded(exc, path) from exc


def _coded(exc: Py4JJavaError | CapturedException, path: str) -> OperatingError:
    if _is(exc, *_ABSENT):
        return NotFoundError(kind="file", name=path)
    cause = _java(exc).toString()
    if any(mark in cause for mark in _FULL):
        return DiskFullError(path)
    return OperatingError(f"{path}: {cause[:500]}", path=path)
