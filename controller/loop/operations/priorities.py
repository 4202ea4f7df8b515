"""Priorities: sets the priority of a stage, and gives the store those that lie beside the tables.

The file beside the tables is the truth, the store an index over it. It is written first. So a
priority that was acknowledged is in both, and outlives a lost store; after a crash between the two
the next recovery gives the store what the file says.

Guaranteed: both agree after `set_priority` and after `bring`, unless the file is damaged
(tests/controller/loop/operations/test_priorities.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from cbp.engine.storage.files import Files
from cbp.model.schedule.priority import Priority
from controller.loop.records.catalog import Catalog
from controller.loop.records.priority_file import read_priorities, write_priorities
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord, Store

_log = structlog.get_logger(__name__)


@dataclass
class Priorities:
    """Sets priorities; safe to use from several threads of the instance that leads."""

    store: Store
    files: Files
    catalog: Catalog
    holds: Holds

    def set_priority(self, dataflow: str, stage: str, priority: Priority) -> None:
        """Set the priority of a stage, and of those that run with it; durable, idempotent.

        Raises:
            NotFoundError: If there is no such dataflow or stage.
        """
        with self.holds.lock:
            leader = self.catalog.leader(dataflow, stage)
            record = self.store.dataflow(dataflow)
            known = read_priorities(self.files, record.folder)
            if known is None:
                known = {one.stage: one.priority for one in self.store.stages(dataflow)}
            names = self.catalog.units(record)[leader].names
            priorities = {**known, **dict.fromkeys(names, priority)}
            write_priorities(self.files, record.folder, priorities)
            self.store.set_priorities(dataflow, priorities)
        _log.info("stage.prioritized", dataflow=dataflow, stage=leader, priority=priority)

    def bring(self, record: DataflowRecord) -> None:
        """Give the store the priorities that lie beside the tables; idempotent.

        The caller holds the lock of `holds`.
        """
        known = read_priorities(self.files, record.folder)
        if known is not None:
            self.store.set_priorities(record.name, known)
