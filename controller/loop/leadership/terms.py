"""Terms: once another instance leads, the logs refuse late writes of the former leader.

    <tables>/.terms/00000000000000000007-1f0c/    the one folder of the instance that leads

    (1) a folder with the next number is made
    (2) the database is asked whether this instance still leads; if not, (1) is undone
    (3) the folders with other numbers are removed; only then are the logs read

A version, a roll-back and a close are valid at one moment only: put after a take-over they would
undo the successor's work. A lease cannot prevent that, since a process may stall between the
check that it leads and its put. So the bytes of such a put are staged in the folder of the term.
link(2) gives them their name on two conditions: the number is free, and the folder exists. The
successor removes the folder before it reads any log.

`CurrentTerm` says whether this controller may start anything: after `depose` nothing is started
until the next `begin` (tests/controller/loop/runs/test_retry_policy.py).

Guaranteed (tests/controller/loop/leadership/test_terms.py): a put of a term that has ended raises,
and leaves nothing. An instance that stalls in (1) to (3) removes the folder of no other: after (2)
its folder's number is below that of any instance which took the lease later, and before (2) it
removes only its own. Not guaranteed: anything about records of runs; the first one put counts
(controller/loop/README.md, "A zombie's record counts if it was first").
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files, local_path
from cbp.errors import LeaseLostError, LogConflictError, OperatingError
from controller.store.base import Store

_FOLDER = ".terms"
_NONE = "none"
"""The name of a folder that is never made, so that nothing can be put between two terms."""

_ENDED = "ended-"
_TERM = re.compile(r"(\d{20})-[0-9a-f]+", re.ASCII)

_log = structlog.get_logger(__name__)


class Terms:
    """Begins the terms of one instance; see the header.

    Attributes:
        folder: Folder in which puts of this term are staged; `""` before the first term, when
            no other instance can lead.
        epoch, address: Epoch and address in the lease of the last term; 0 and `""` before the
            first term.
    """

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        root: str,
        random_hex: Callable[[int], str],
        faults: Faults,
    ) -> None:
        self._store, self._files, self._root = store, files, f"{root}/{_FOLDER}"
        self._random_hex, self._faults = random_hex, faults
        self.folder, self.epoch, self.address = "", 0, ""

    def begin(self, epoch: int) -> None:
        """End the terms of all other instances, before any log is read; raises `LeaseLostError`."""
        self.folder = f"{self._root}/{_NONE}"
        number = max(map(_number_of, self._files.list_names(self._root)), default=0) + 1
        mine = f"{number:020d}-{self._random_hex(4)}"
        self._make(mine)
        lease, _ = self._store.lease()
        if lease.epoch != epoch:
            self._end(mine)
            why = f"the controller at {lease.address} leads (epoch {lease.epoch})"
            raise LeaseLostError(epoch, why)
        for name in self._files.list_names(self._root):
            if name.startswith(_ENDED):
                self._remove(name)
            elif 0 < _number_of(name) < number:
                self._end(name)
        self.folder, self.epoch, self.address = f"{self._root}/{mine}", epoch, lease.address
        _log.info("term.begun", term=mine, epoch=epoch)

    def _make(self, name: str) -> None:
        self._files.make_dirs(self._root)
        with _operating(path := self._path(name)):
            self._faults("term.before")
            os.mkdir(path)
            self._files.sync_dir(self._root)
            self._faults("term.after")

    def _end(self, name: str) -> None:
        """Rename the folder of a term, so that nothing can be created in it or linked from it."""
        with _operating(path := self._path(name)):
            self._faults("term.before")
            os.rename(path, self._path(_ENDED + name))
            self._files.sync_dir(self._root)
            self._faults("term.after")
        self._remove(_ENDED + name)

    def _remove(self, name: str) -> None:
        """Remove a folder of an ended term, as far as possible; the next term does the rest."""
        path = self._path(name)
        if os.path.isdir(path):  # `rmtree` opens the path, and would wait at a FIFO
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)

    def _path(self, name: str) -> str:
        return local_path(f"{self._root}/{name}")


def _number_of(name: str) -> int:
    """Return the number of a term's folder; 0 for any other folder, such as a copy of one."""
    match = _TERM.fullmatch(name)
    return int(match[1]) if match else 0


@contextmanager
def _operating(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be created or removed: {error.strerror or error}"
        raise OperatingError(message, path=path) from error


class CurrentTerm:
    """Whether this controller leads; safe to use from several threads."""

    def __init__(self) -> None:
        self.deposed, self.leader_epoch = "", 0

    def begin(self, leader_epoch: int) -> None:
        """Begin a term as leader, under this epoch of the lease."""
        self.deposed, self.leader_epoch = "", leader_epoch

    def depose(self, reason: str) -> None:
        """Start nothing from now on, since another controller leads."""
        self.deposed = reason
        _log.error("controller.deposed", reason=reason)

    def follow(self, reason: str) -> None:
        """Start nothing, since another controller leads; this is not an error."""
        self.deposed = reason

    @contextmanager
    def deposing(self) -> Iterator[None]:
        """Stop starting runs if the block finds a record of another controller."""
        try:
            yield
        except LogConflictError as error:
            self.depose(error.message)
            raise
