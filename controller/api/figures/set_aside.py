"""How many records each stage has set aside: read from the logs of their tables, never remembered.

So a restart, a store made anew and an instance that only reads give the same figure. A stage
without the option costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from cbp.engine.delta.tables import open_table
from cbp.engine.storage.files import files_for, local_path
from cbp.engine.storage.table_names import set_aside_table
from cbp.errors import CbpError, NotFoundError
from controller.store.base import DataflowRecord

_log = structlog.get_logger(__name__)


def set_aside_by_stage(record: DataflowRecord) -> dict[str, int]:
    """Return how many records are set aside now, by stage; a stage without any is left out.

    A stage whose table cannot be read is left out too, and logged: `cbp doctor` names it.
    """
    counts = {}
    stages = record.document.get("stages")
    for stage, node in stages.items() if isinstance(stages, Mapping) else ():
        if not isinstance(node, Mapping) or node.get("on_error") != "set_aside":
            continue
        path = f"{local_path(record.folder)}/{set_aside_table(stage)}"
        try:
            live = open_table(path, files_for(path)).snapshot.live.values()
        except NotFoundError:  # a new version, whose tables are not made yet
            continue
        except CbpError as error:
            _log.warning("set_aside.unreadable", table=path, error=error.message)
            continue
        if count := sum(file.rows - file.dead for file in live):
            counts[stage] = count
    return counts
