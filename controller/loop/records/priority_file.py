"""The priorities of a dataflow's stages, kept beside its tables, so that they outlive the store.

    _description/priorities/stages.json     stage -> priority, of those that are not normal

It names stages, not leaders of stages that run together, so a priority stays with a stage that
leads itself in a later version. The names of removed stages stay too: a stage that a later version
adds again has the priority that it had.

It is not a record of the dataflow: no result depends on it. So one file is replaced, and a damaged
one stops nothing: the store then keeps what it has.

Guaranteed: `read_priorities` returns what was written last
(tests/controller/loop/operations/test_priorities.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import structlog

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import FileDamagedError, NotFoundError
from cbp.model.schedule.priority import NORMAL, PRIORITIES, Priority
from controller.loop.records.description_log import FOLDER

_log = structlog.get_logger(__name__)


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
    # A priority that only a later version knows is normal here.
    return {stage: one for stage, one in value["stages"].items() if one in PRIORITIES}
