"""Main program of a reader process, which reads claimed files one by one.

`reader_pool` starts the process, holds the other ends of two pipes, and kills the process when a
file takes too long: a regular expression or a native decoder cannot be asked to stop. The process
imports nothing from the working directory and holds no secret of the service.

    request   a pickled `ReadRequest`
    answers   from time to time how many bytes were read and decoded so far; then a `ReadResult`,
              or the error that ended the reading
    place     a file without a name: the position in the request of the file that is being read,
              followed by a byte that the parent sets so that no other file is begun. A message
              for each small file would cost more than the file, since both sides wake up for it

It ends with the service: the kernel signals it when the other end of a pipe is closed, even
while a file holds the interpreter.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.abc import MetaPathFinder
from multiprocessing.connection import Connection
from types import ModuleType

from cbp.clock import MACHINE
from cbp.engine.workers.end_with_parent import end_with
from controller.ingest.formats import parquet as _parquet  # imported before the first file
from controller.ingest.reader.file_reader import ReadRequest, ReadResult, read_files
from controller.ingest.rejection import FileRejectedError, unforeseen

NICENESS = 3
TELL_SECONDS = 0.2
PLACE_BYTES = 8
HURRY = b"\x01"
COLLECT_SECONDS = 1.0
PREPARED = (_parquet,)


_OF_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors that only writing causes, so they are not those of the file that is read."""


class _Progress:
    def __init__(
        self, link: Connection, place: int, seconds: Callable[[], float] = MACHINE.seconds
    ) -> None:
        self._link, self._place, self.seconds = link, place, seconds
        self._bytes, self._reported_at = 0, seconds()

    def add(self, count: int) -> None:
        self._bytes += count
        now = self.seconds()
        if now - self._reported_at >= TELL_SECONDS:
            self._reported_at = now
            self._link.send_bytes(pickle.dumps(self._bytes))

    def begin(self, position: int) -> None:
        os.pwrite(self._place, position.to_bytes(PLACE_BYTES, "little"), 0)

    def is_over(self, until: float) -> bool:
        """Return whether to begin no other file: the time is over, or the parent says so."""
        return self.seconds() >= until or os.pread(self._place, 1, PLACE_BYTES) == HURRY


def answer(request: ReadRequest, progress: _Progress) -> ReadResult | FileRejectedError | OSError:
    """Read files; return the result, or the error that ended the reading."""
    limit_memory(request.limits.memory_bytes_max)
    is_over = partial(progress.is_over, progress.seconds() + request.seconds)
    try:
        return read_files(request, hurried=is_over, worked=progress.add, begun=progress.begin)
    except FileRejectedError as error:
        return error
    except MemoryError:
        limit_memory(None)
        return _too_large(request.limits.memory_bytes_max)
    except OSError as error:
        place = _place(error, request)
        return OSError(error.errno or errno.EIO, error.strerror or str(error), place)
    except Exception as error:  # whatever failed, this file is rejected; see `unforeseen`
        traceback.print_exc()
        return unforeseen(error)
    finally:
        limit_memory(None)


def _place(error: OSError, request: ReadRequest) -> str:
    """Return the file that an error is about, or the folder that could not be written."""
    if isinstance(error.filename, str):
        return error.filename
    return request.folder if error.errno in _OF_WRITING else request.path


def _too_large(memory_bytes_max: int) -> FileRejectedError:
    message = (
        f"reading the file takes more than {memory_bytes_max >> 20} MiB of memory; write smaller "
        "records, row groups or files, or raise CBP_FILE_MEMORY_BYTES_MAX"
    )
    return FileRejectedError(rule="file_too_large_in_memory", message=message)


def limit_memory(more: int | None) -> None:
    """Limit this process to `more` bytes beyond its present memory; None means no limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = resource.RLIM_INFINITY if more is None else memory_bytes(os.getpid())[0] + more
    if hard != resource.RLIM_INFINITY:
        soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def memory_bytes(pid: int) -> tuple[int, int]:
    """Return a process's address space and resident memory in bytes; zeros where unknown."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            size, resident = map(int, file.read().split()[:2])
    except OSError:
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return size * page, resident * page


def _serve(link: Connection, place: int) -> None:
    link.send_bytes(b"ready")
    while True:
        try:
            request = pickle.loads(link.recv_bytes())
        except EOFError:
            return
        progress = _Progress(link, place)
        begun = progress.seconds()
        link.send_bytes(pickle.dumps(answer(request, progress)))
        if progress.seconds() - begun > COLLECT_SECONDS:
            gc.collect()  # frees what a large file left, while nobody waits


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which Arrow would import to check whether a plain list is a Series.

    The import takes 0.4 s at the first file, and some 40 MB in each reader.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def main(link: int, alive: int, place: int) -> None:
    """Serve until the parent closes its ends."""
    sys.meta_path.insert(0, _WithoutPandas())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals the whole group
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(OSError):
        os.nice(NICENESS)
    end_with(alive)
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError, ConnectionResetError):
        _serve(Connection(link), place)
    os._exit(0)
