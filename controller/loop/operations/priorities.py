"""Priorities: sets the priority of a stage, and copies the priorities of a folder to the store.

The file beside the tables is the truth, and is written first; the store is an index over it.

    _description/priorities/stages.json     stage -> priority, unless it is normal

The file names each stage, not only the leader of stages that run together. So a stage keeps its
priority if it leads itself in a later version. The names of removed stages stay, too. No result
depends on the file, so a damaged one stops nothing. After a crash between the two writes, the next
recovery updates the store.

Guaranteed: both agree after `set_priority` and after `bring`, unless the file is damaged
(tests/controller/loop/operations/test_priorities.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import FileDamagedError, NotFoundError
from cbp.model.schedule.priority import NORMAL, PRIORITIES, Priority
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import FOLDER
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord


def path_of(folder: str) -> str:
    """Return the path of the priorities of the dataflow in a folder."""
    return f"{folder}/{FOLDER}/priorities/stages.json"


def read_priorities(files: Files, folder: str) -> dict[str, Priority] | None:
    """Return stage -> priority, without normal ones; `None` if the file is damaged."""
    try:
        return read_record(files, path_of(folder), _priorities_of)
    except NotFoundError:
        return {}
    except FileDamagedError as error:
        _log.warning("priorities.damaged", error=error.as_dict())
        return None


def write_priorities(files: Files, folder: str, priorities: Mapping[str, Priority]) -> None:
    """Replace the priorities of a dataflow; durable once this returns."""
    path = path_of(folder)
    stages = {stage: one for stage, one in sorted(priorities.items()) if one != NORMAL}
    data = digested(json.dumps({"stages": stages}).encode(), path)
    files.write_durable(path, data, what="priority")


def _priorities_of(value: Mapping[str, Any]) -> dict[str, Priority]:
    # A priority that only a later release knows counts as normal here.
    return {stage: one for stage, one in value["stages"].items() if one in PRIORITIES}


_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class Priorities(DataflowPart):
    """Sets priorities; safe to use from several threads of the instance that leads."""

    holds: Holds

    def set_priority(self, dataflow: str, stage: str, priority: Priority) -> None:
        """Set the priority of a stage and of the stages that run with it; durable, idempotent."""
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
        """Copy the priorities beside the tables into the store; idempotent.

        The caller holds the lock of `holds`.
        """
        known = read_priorities(self.files, record.folder)
        if known is not None:
            self.store.set_priorities(record.name, known)
