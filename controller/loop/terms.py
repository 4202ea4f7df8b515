"""Terms: what an instance puts about a dataflow's past is refused once another one leads.

    <tables>/.terms/00000000000000000007-1f0c/    one folder: of the instance that leads

    (1) a folder of the next number is made
    (2) the database is asked whether this instance still leads; if not, (1) is undone
    (3) the folders of other numbers are removed; what the logs hold is read only now

A version, a roll-back and a close are right at one moment only: put behind a take-over they
would undo what the successor did. A lease cannot prevent that, since a process may stand still
between the question whether it leads and its put. So the bytes of such a put wait in the
folder of the term, and link(2) gives them their name on two conditions: the number is free,
and the folder is there. The successor takes the second one away before it reads any log.

Guaranteed (tests/controller/test_terms.py): a put of a term that has ended raises, and leaves
nothing. Who stands still in (1) to (3) cuts off nobody: its folder has a number below that
of whoever took the lease after (2), and before (2) it removes only its own.
Not guaranteed: anything about records of runs; they stand if they were first (decision 38).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from cbp.engine.faults import Faults
from cbp.engine.files import Files, local_path
from cbp.errors import LeaseLostError, OperatingError
from controller.store.base import Store

__all__ = ["Terms"]

_FOLDER = ".terms"
_NONE = "none"
"""Is never made: between two terms nothing is put."""

_ENDED = "ended-"

_log = structlog.get_logger(__name__)


class Terms:
    """Begins the terms of one instance; see the header.

    Args:
        store: Says who leads.
        files: On which the tables lie.
        root: Folder of all dataflows.
        random_hex: Returns that many random bytes, in hexadecimal.
        faults: Told at every durable effect.

    Attributes:
        folder: Where puts of this term wait; `""` before the first: nobody else can lead.
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
        self.folder = ""

    def begin(self, epoch: int) -> None:
        """End the terms of all others; before any log is read.

        Args:
            epoch: Of the lease that this instance holds.

        Raises:
            LeaseLostError: If another one has taken it meanwhile.
            OperatingError: If a folder cannot be made or removed; to be tried again.
        """
        self.folder = f"{self._root}/{_NONE}"
        known = [name for name in self._files.list_names(self._root) if name[0].isdigit()]
        number = max((int(name.partition("-")[0]) for name in known), default=0) + 1
        mine = f"{number:020d}-{self._random_hex(4)}"
        self._make(mine)
        lease, _ = self._store.lease()
        if lease.epoch != epoch:
            self._end(mine)
            raise LeaseLostError(epoch, f"epoch {lease.epoch} leads at {lease.address}")
        for name in self._files.list_names(self._root):
            if name.startswith(_ENDED):
                self._remove(name)
            elif name[0].isdigit() and int(name.partition("-")[0]) < number:
                self._end(name)
        self.folder = f"{self._root}/{mine}"
        _log.info("term.begun", term=mine, epoch=epoch)

    def _make(self, name: str) -> None:
        self._files.make_dirs(self._root)
        with _operating(path := self._path(name)):
            self._faults("term.before")
            os.mkdir(path)
            self._files.sync_dir(self._root)
            self._faults("term.after")

    def _end(self, name: str) -> None:
        """Take a folder's name away: from then on nothing in it can be linked or made."""
        with _operating(path := self._path(name)):
            self._faults("term.before")
            os.rename(path, self._path(_ENDED + name))
            self._files.sync_dir(self._root)
            self._faults("term.after")
        self._remove(_ENDED + name)

    def _remove(self, name: str) -> None:
        """Remove a folder that has ended, as far as it goes; the next term does the rest."""
        shutil.rmtree(self._path(name), ignore_errors=True)

    def _path(self, name: str) -> str:
        return local_path(f"{self._root}/{name}")


@contextmanager
def _operating(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be made or removed: {error.strerror or error}"
        raise OperatingError(message, path=path) from error
