"""How a dataflow is forgotten: its runs, its place in the store, and its folder if asked.

Guaranteed: what is finished is published before the store forgets it, unless the folder
goes; a folder that goes is renamed first, so that a crash leaves it whole, or to the next
start (tests/controller/test_publication.py, test_recovery.py).
Not guaranteed: that a dataflow whose runs do not end is forgotten; it then runs on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import structlog

from cbp.engine.base import Engine
from cbp.engine.faults import Faults
from cbp.engine.files import Files
from cbp.errors import OperatingError
from controller.loop.amendments import CANCEL_SECONDS, Amendments
from controller.loop.answers import Answers
from controller.loop.catalog import Catalog
from controller.loop.folder import purge_folder
from controller.loop.frames import Framer
from controller.loop.punctuations import Punctuations
from controller.loop.runs import Runs
from controller.loop.tick import Ticker
from controller.store.base import Store

__all__ = ["Deletion"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Forgets dataflows; safe to use from several threads.

    Attributes:
        exclusive: Gives the lock under which a dataflow is neither registered nor deleted.
    """

    store: Store
    engine: Engine
    files: Files
    catalog: Catalog
    runs: Runs
    ticker: Ticker
    framer: Framer
    answers: Answers
    punctuations: Punctuations
    amendments: Amendments
    exclusive: Callable[[str], AbstractContextManager[object]]
    faults: Faults

    def delete(self, name: str, *, purge: bool) -> None:
        """Cancel the runs of a dataflow, wait for them, publish, and forget it.

        Args:
            name: The dataflow.
            purge: Remove its folder too, and publish nothing.

        Raises:
            NotFoundError: If there is no such dataflow.
            OperatingError: If a run does not end, or the folder cannot be removed.
        """
        folder = self.store.dataflow(name).folder
        with self.ticker.lock:
            self.ticker.deleting.add(name)
        try:
            self.amendments.cancel_all(name)
            if not self.runs.wait(name, timeout=CANCEL_SECONDS):
                message = f"a run of {name!r} has not ended after {CANCEL_SECONDS:.0f} s; try again"
                raise OperatingError(message, dataflow=name)
            with self.exclusive(name), self.ticker.lock:
                if not purge:
                    self.runs.publish(self.store.dataflow(name))
                self.store.delete(name)
                self._forget(name, folder)
                if purge:
                    run = self.ticker.new_id()
                    purge_folder(self.files, folder, run=run, faults=self.faults)
        finally:
            self.ticker.deleting.discard(name)
        _log.info("dataflow.deleted", dataflow=name, purged=purge)

    def _forget(self, name: str, folder: str) -> None:
        self.runs.forget(name)
        self.framer.forget(name)
        self.answers.forget(name)
        self.punctuations.forget(name)
        self.catalog.forget(name)
        self.engine.forget(folder)
