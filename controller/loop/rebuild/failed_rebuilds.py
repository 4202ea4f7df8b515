"""Rebuilds that failed, until a person has dealt with it.

A failure is kept with the order, in the dataflow's folder (`build_order.py`), so it is known after
a restart too. It is dealt with by another rebuild, a new version, a roll-back, the deletion of the
dataflow, or a cancel of the failed rebuild, which then counts as cancelled.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime

from cbp.engine.storage.files import Files
from controller.loop.rebuild.build_in_progress import Job, RebuildJob
from controller.loop.rebuild.build_order import BuildOrder, end_order, read_order
from controller.store.base import DataflowRecord


class FailedRebuilds:
    """The newest rebuild of each dataflow, if it failed; safe to use from several threads.

    Attributes:
        writing: Held while an order is written whose dataflow may have a failed one: the orders of
            a dataflow share a file.
    """

    def __init__(self, files: Files) -> None:
        self.writing = threading.Lock()
        self._files, self._lock = files, threading.Lock()
        self._orders: dict[str, BuildOrder] = {}

    def read(self, record: DataflowRecord) -> None:
        """Take over what the folder of a dataflow says of its last rebuild."""
        order = read_order(self._files, record.folder)
        self.forget(record.name)
        if order is not None and order.outcome is not None and order.outcome.status == "failed":
            with self._lock:
                self._orders[record.name] = order

    def note(self, job: Job, at: datetime) -> None:
        """Note a job that has just failed, also if that could not be recorded."""
        outcome = job.order.outcome or job.shown.outcome("failed", at, "")
        with self._lock:
            self._orders[job.shown.dataflow] = replace(job.order, outcome=outcome)

    def forget(self, name: str) -> BuildOrder | None:
        """Forget the failure of a dataflow; return its order if there was one."""
        with self._lock:
            return self._orders.pop(name, None)

    def put_back(self, name: str, order: BuildOrder | None) -> None:
        """Undo `forget`, given what it returned."""
        if order is not None:
            with self._lock:
                self._orders[name] = order

    def of(self, record: DataflowRecord) -> RebuildJob | None:
        """Return the rebuild of a dataflow that failed, unless that is dealt with."""
        with self._lock:
            order = self._orders.get(record.name)
        if order is None or order.outcome is None or not order.is_for(record):
            return None
        if order.began_at < record.created_at:  # the folder was taken over by a registration
            return None
        return RebuildJob.recorded(record.name, order, order.outcome)

    def cancel(self, record: DataflowRecord, id_: str, *, by: str) -> BuildOrder | None:
        """Let a rebuild that failed count as cancelled, durably; `None` if none of this id did."""
        with self.writing:
            with self._lock:
                order = self._orders.get(record.name)
            if order is None or order.outcome is None or order.id != id_:
                return None
            outcome = replace(order.outcome, status="cancelled", by=by)
            end_order(self._files, record.folder, order, outcome)
            self.forget(record.name)
        return replace(order, outcome=outcome)
