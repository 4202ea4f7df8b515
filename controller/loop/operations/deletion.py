"""Deletion of a dataflow: its runs, its rows in the store, and its folder if requested.

Guaranteed: finished runs are published before the store forgets the dataflow, unless the folder
is removed. A folder is renamed before it is removed: after a crash it is either complete, or the
next start removes it (tests/controller/loop/runs/test_publication.py, test_recovery.py). Other
dataflows are ticked meanwhile, however large the folder is (test_stalls.py). Not guaranteed:
deletion of a dataflow whose runs do not end; that dataflow continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from cbp.engine.interface.tables import TableAdministration
from cbp.engine.storage.failpoints import Faults
from cbp.errors import OperatingError
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.author.runnables import RunnableAnswers
from controller.loop.housekeeping.collector import Collector
from controller.loop.housekeeping.scrubbing import Scrubs
from controller.loop.operations import amendments, versions
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.jobs import GiveBackJobs, RollbackJobs
from controller.loop.records.dataflow_folder import remove_purged, set_aside
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.isolation import UNRECOVERED, Isolation
from controller.loop.runs.run_commit import PUBLISHED, RunCommit
from controller.loop.runs.run_counts import RunCounts
from controller.loop.tick.holds import Holds
from controller.loop.tick.run_starts import RunIds
from controller.loop.verification.verifications import Verifications

_LASTING = (UNRECOVERED, amendments.UNFINISHED, versions.UNFINISHED)
"""Reasons of holds that no thread releases: the dataflow stays held until it is repaired."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class Deletion(DataflowPart):
    """Deletes dataflows; safe to use from several threads."""

    tables: TableAdministration
    in_flight: InFlight
    run_commit: RunCommit
    holds: Holds
    ids: RunIds
    framer: Framer
    answers: RunnableAnswers
    punctuations: Punctuations
    amendments: Amendments
    rollback_jobs: RollbackJobs
    give_back_jobs: GiveBackJobs
    verifications: Verifications
    housekeeping: Collector
    scrubs: Scrubs
    run_counts: RunCounts
    exclusion: DataflowLocks
    isolation: Isolation
    faults: Faults
    end_builds: Callable[[str, str], object]
    cancel_seconds: float

    def delete(self, name: str, *, purge: bool) -> None:
        """Cancel the runs of a dataflow, wait for them, publish, and delete it.

        With `purge` its folder is removed, too, and nothing is published. Raises `NotFoundError`,
        or `OperatingError` if a run does not end (the dataflow continues then), or if the folder
        cannot be removed.
        """
        folder, away = self.store.dataflow(name).folder, ""
        with self.holds.lock:
            self.holds.deleting.add(name)
        try:
            self.amendments.cancel_all(name)
            if not self.in_flight.wait(name, timeout=self.cancel_seconds):
                after = f"{self.cancel_seconds:.0f} s"
                message = f"a run of {name!r} has not ended after {after}; try again"
                raise OperatingError(message, dataflow=name)
            with self.exclusion.hold(name, "is deleted"):
                self._take_out(name, folder, purge=purge)
                try:
                    if purge:
                        id_ = self.ids.new_id()
                        away = set_aside(self.files, folder, run=id_, faults=self.faults)
                except OperatingError:  # only its folder stays: the dataflow is deleted
                    self._end_work(name, folder, purge=purge)
                    raise
                self._end_work(name, folder, purge=purge)
        finally:
            self.holds.deleting.discard(name)
        if away:
            remove_purged(away)
        _log.info("dataflow.deleted", dataflow=name, purged=purge)

    def _take_out(self, name: str, folder: str, *, purge: bool) -> None:
        """Publish a dataflow without runs unless it is purged, delete it, and forget it.

        Publishing may take long, so it does not hold the lock of the tick.
        """
        if not purge:
            # If this fails, the records stay; a later registration of the folder publishes them.
            publish = partial(self.run_commit.publish, self.store.dataflow(name))
            self.isolation.attempt(name, PUBLISHED, publish)
        with self.holds.lock:
            self.store.delete(name)
            self._forget(name, folder)

    def _end_work(self, name: str, folder: str, *, purge: bool) -> None:
        """End the work on a deleted dataflow that is no run, and forget what is known of it."""
        self.run_counts.forget(name)
        self.rollback_jobs.forget(name)
        self.give_back_jobs.forget(name)
        self.housekeeping.forget(name, folder)
        if purge:  # otherwise the damage stays, and comes back with the folder
            self.housekeeping.scrubbing.forget(name)
            self.scrubs.forget(name)
        self.verifications.forget(name)
        self.end_builds(name, folder)

    def _forget(self, name: str, folder: str) -> None:
        self.run_commit.forget(name)
        self.isolation.forget(name)
        if self.holds.held.get(name) in _LASTING:
            del self.holds.held[name]
        self.framer.forget(name)
        self.answers.forget(name)
        self.punctuations.forget(name)
        self.catalog.forget(name)
        self.descriptions.forget(folder)
        self.tables.forget(folder)
