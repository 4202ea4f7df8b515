"""How many records each stage has set aside now; for people, no decision depends on it.

The counts are read from the logs of the tables, so a restart, a rebuilt store and an instance
that only reads give the same figure. They are kept until the dataflow changes: an idle dataflow
costs nothing, nor does a stage without the option.

A table is published after the run that changed it was committed. Counts are kept once they are
those that the newest run of the stage has in its figures; until then they are read again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import structlog

from cbp.engine.delta.tables import open_table
from cbp.engine.storage.files import files_for, local_path
from cbp.engine.storage.table_names import set_aside_table
from cbp.errors import CbpError, NotFoundError
from cbp.model.run.intention import RunStatus
from controller.store.base import DataflowRecord, Store

KEPT_MAX = 10_000
"""Dataflows whose counts are kept."""

_log = structlog.get_logger(__name__)


class SetAsideCounts:
    """Counts of all dataflows; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[object, dict[str, int]]] = {}

    def of(
        self, record: DataflowRecord, revisions: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return how many records are set aside now, by stage; a stage without any is left out.

        A stage whose table cannot be read is also left out, and logged; `cbp doctor` names it.

        Args:
            revisions: Revisions of all dataflows (`Store.revisions`), if they are read already.
        """
        stages = list(_able(record))
        if not stages:
            return {}
        known = self._store.revisions() if revisions is None else revisions
        key = (known.get(record.name), record.folder, record.version)
        with self._lock:
            kept = self._kept.get(record.name)
        if kept is not None and kept[0] == key:
            return dict(kept[1])
        counts = {stage: _count(record, stage) for stage in stages}
        found = {stage: count for stage, count in counts.items() if count}
        if key[0] is not None and self._are_shown(record, counts):
            with self._lock:
                self._kept.pop(record.name, None)
                self._kept[record.name] = key, found
                while len(self._kept) > KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
        return dict(found)

    def _are_shown(self, record: DataflowRecord, counts: Mapping[str, int | None]) -> bool:
        """Return whether the tables show the newest runs of their stages."""
        epochs = {one.stage: one.epoch for one in self._store.stages(record.name)}
        for stage, count in counts.items():
            runs = self._store.runs(
                record.name, stage=stage, status=RunStatus.COMMITTED, limit=1
            ).items
            now = runs[0].figures.get("set_aside_now") if runs else None
            newest = bool(runs) and runs[0].epoch + 1 == epochs.get(stage)
            if count is None or (newest and now is not None and now != count):
                return False
        return True


def _able(record: DataflowRecord) -> Iterator[str]:
    stages = record.document.get("stages")
    for stage, node in stages.items() if isinstance(stages, Mapping) else ():
        if isinstance(node, Mapping) and node.get("on_error") == "set_aside":
            yield stage


def _count(record: DataflowRecord, stage: str) -> int | None:
    """Return how many records a stage has set aside; `None` if its table cannot be read."""
    path = f"{local_path(record.folder)}/{set_aside_table(stage)}"
    try:
        live = open_table(path, files_for(path)).snapshot.live.values()
    except NotFoundError:  # a new version, whose tables are not made yet
        return None
    except CbpError as error:
        _log.warning("set_aside.unreadable", table=path, error=error.message)
        return None
    return sum(file.rows - file.dead for file in live)
