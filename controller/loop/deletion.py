"""How a dataflow is forgotten: its runs, its place in the store, and its folder if asked.

Guaranteed: what is finished is published before the store forgets it, unless the folder
goes; a folder that goes is renamed first, so that a crash leaves it whole, or to the next
start (tests/controller/test_publication.py, test_recovery.py). Other dataflows are ticked
meanwhile, however large it is (test_stalls.py).
Not guaranteed: that a dataflow whose runs do not end is forgotten; it then runs on.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from cbp.engine.base import Engine
from cbp.engine.faults import Faults
from cbp.engine.files import Files
from cbp.errors import OperatingError
from controller.loop.amendments import CANCEL_SECONDS, Amendments
from controller.loop.answers import Answers
from controller.loop.catalog import Catalog
from controller.loop.exclusion import Exclusion
from controller.loop.folder import remove_purged, set_aside
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
        exclusion: Gives the turns to work on a dataflow.
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
    exclusion: Exclusion
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
            with self.exclusion.hold(name, "is deleted"):
                away = self._take_out(name, folder, purge=purge)
        finally:
            self.ticker.deleting.discard(name)
        if away:
            remove_purged(away)
        _log.info("dataflow.deleted", dataflow=name, purged=purge)

    def _take_out(self, name: str, folder: str, *, purge: bool) -> str:
        """Forget a dataflow of which nothing runs; return where its folder lies now, if it goes.

        What takes long, publishing and removing, is not done while no tick may come.
        """
        if not purge:
            self.runs.publish(self.store.dataflow(name))
        with self.ticker.lock:
            self.store.delete(name)
            self._forget(name, folder)
            if not purge:
                return ""
            return set_aside(self.files, folder, run=self.ticker.new_id(), faults=self.faults)

    def _forget(self, name: str, folder: str) -> None:
        self.runs.forget(name)
        self.framer.forget(name)
        self.answers.forget(name)
        self.punctuations.forget(name)
        self.catalog.forget(name)
        self.engine.forget(folder)
