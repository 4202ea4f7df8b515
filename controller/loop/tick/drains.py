"""Drains: a draining dataflow takes in no files, and is drained once its work is done.

    draining    no new file is claimed; claimed files, waiting increments and loops go on
    drained     nothing is left to do; it starts no runs, as if it were paused

Guaranteed: a resume that comes meanwhile wins, and a listing under way is waited for
(tests/controller/loop/tick/test_drains.py).
Not guaranteed: an upload that had begun before, or a timer that becomes due, can bring something
after the end; it waits for the resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from cbp.model.schedule.quiescence import left_to_do
from controller.loop.records.catalog import Catalog
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.finisher import ParkedRuns
from controller.loop.runs.in_flight import InFlight
from controller.store.base import DataflowRecord, Store

_log = structlog.get_logger(__name__)


@dataclass
class Drains:
    """Ends the drains of dataflows without remaining work."""

    store: Store
    catalog: Catalog
    in_flight: InFlight
    parked: ParkedRuns
    exclusion: DataflowLocks
    wake: Callable[[], object]

    def end(self, record: DataflowRecord) -> None:
        """Note that a draining dataflow is drained, if no work is left; never waits."""
        # The listing of its folders has the lock, and reads the record under it.
        with self.exclusion.attempt(record.name, "is drained") as free:
            if not free or self._is_left(record):
                return
            self.store.set_desired(record.name, "drained", instead_of="draining")
        _log.info("dataflow.drained", dataflow=record.name)
        self.wake()

    def _is_left(self, record: DataflowRecord) -> bool:
        name = record.name
        if any(self.store.open_claims(name, one) for one in record.document.get("sources", ())):
            return True
        units = self.catalog.units(record)
        rules = {leader: unit.leader.runnable for leader, unit in units.items()}
        under_way = {*self.in_flight.busy(), *self.parked.all()}
        stages = {stage for dataflow, stage in under_way if dataflow == name and stage}
        return bool(left_to_do(rules, self.store.position(name), stages))
