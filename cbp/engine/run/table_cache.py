"""Cache of an engine's open tables and their live files; each table is opened once.

Guaranteed: a state whose records are placed by another hash or number of buckets than the stage
declares is refused here, before any look-up.
Not guaranteed: that a table is as new as its log; call `refresh` where that matters. A table that
was dropped from the cache is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cbp.engine.commit.table_entries import horizon, live_files
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.foreign_writer_fence import require_placement
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.tables import ManagedTable, open_table
from cbp.engine.outputs.compaction import live_of
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import IncrementCollectedError, NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.increment import Increment
from cbp.model.run.intention import Intention

__all__ = ["OpenTables"]


class OpenTables:
    """Opens tables on first use; safe to use from several threads.

    Args:
        files: The tables' file system.
        limits: Tell how often a table writes a checkpoint.
    """

    def __init__(self, files: Files, limits: EngineLimits) -> None:
        self._files, self._limits = files, limits
        self._tables: dict[str, ManagedTable] = {}
        self._lock = threading.Lock()

    def table(self, path: str) -> ManagedTable:
        """Return the table of a folder, as of its last read."""
        with self._lock:
            if path not in self._tables:
                every = self._limits.checkpoint_entries
                self._tables[path] = open_table(path, self._files, checkpoint_interval=every)
            return self._tables[path]

    def state(
        self,
        folder: str,
        node: StageNode,
        state: str,
        unpublished: Sequence[Intention] = (),
        *,
        refresh: bool = True,
    ) -> StateTable:
        """Return a state's live files; refuse a state whose placement is not the stage's."""
        name = state_table(node.name, state)
        table = self.table(f"{folder}/{name}")
        snapshot = table.refresh() if refresh else table.snapshot
        key = node.translator.key_of(node.translator.state(state)).names
        require_placement(table.path, snapshot.metadata, buckets=node.buckets, key=key)
        live = live_files(snapshot, name, unpublished)
        return StateTable(table.path, snapshot.metadata.id, live)

    def live_output(self, folder: str, increment: Increment) -> list[AddFile]:
        """Return the live files that hold an increment's records now, in order.

        Raises:
            NotFoundError: If the increment is a source's.
            IncrementCollectedError: If retention dropped it from its table.
        """
        if "." not in increment.flow:
            raise NotFoundError(kind="increment", name=increment.name)
        snapshot = self.output(folder, increment.flow)
        if increment.index < (oldest := horizon(snapshot.txns)):
            raise IncrementCollectedError(increment.flow, increment.index, oldest)
        return live_of(snapshot.live.values(), increment.index)

    def output(self, folder: str, flow: str, *, version: int | None = None) -> Snapshot:
        """Return the snapshot of a flow's table as of a version; `None`: the newest."""
        stage, _, output = flow.partition(".")
        table = self.table(f"{folder}/{flow_table(stage, output)}")
        return table.refresh() if version is None else table.log.snapshot(version)

    def forget(self, folder: str) -> None:
        """Drop the cached tables of a folder."""
        with self._lock:
            for path in [path for path in self._tables if path.startswith(f"{folder}/")]:
                del self._tables[path]
