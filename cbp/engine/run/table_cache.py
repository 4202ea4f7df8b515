"""Cache of an engine's open tables and their live files; all threads share one object per table.

Guaranteed: a state whose records are placed by another hash or number of buckets than the stage
declares is refused here, before any look-up. A looked-up table is read as of one moment, chosen by
`pinned`; the run's record contains this moment (`cbp.model.run.intention.LookupMoment`).
Not guaranteed: that a table is as new as its log; call `refresh` where that matters.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cbp.engine.commit.table_entries import horizon, live_files, newest_epoch
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.deletion_vectors import vector_path
from cbp.engine.delta.foreign_writer_fence import require_placement
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.managed_table import ManagedTable, open_table
from cbp.engine.interface.runs import LookedUp
from cbp.engine.outputs.output_compaction import live_of
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import IncrementCollectedError, NotFoundError, VersionGoneError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.increment import Increment
from cbp.model.run.intention import Intention, LookupMoment

_Use = tuple[str, str, str, LookupMoment | None]


def _use_of(one: LookedUp) -> _Use:
    return one.folder, one.node.name, one.state, one.moment


class OpenTables:
    """Opens tables on first use; safe to use from several threads."""

    def __init__(self, files: Files, limits: EngineLimits) -> None:
        self._files, self._limits = files, limits
        self._tables: dict[str, ManagedTable] = {}
        self._in_use: dict[_Use, tuple[StateTable, int]] = {}
        self._published: dict[str, tuple[Snapshot, StateTable]] = {}
        self._forgotten = 0
        self._lock = threading.Lock()

    def table(self, path: str) -> ManagedTable:
        """Return the table of a folder, as of its last read; a table that hangs delays no other."""
        every = self._limits.checkpoint_entries
        while True:
            with self._lock:
                known, forgotten = self._tables.get(path), self._forgotten
            if known is not None:
                return known
            opened = open_table(path, self._files, checkpoint_interval=every)
            with self._lock:
                if self._forgotten == forgotten:
                    return self._tables.setdefault(path, opened)
            # Opened again: by now, another dataflow may have this folder.

    def state(
        self,
        folder: str,
        node: StageNode,
        state: str,
        unpublished: Sequence[Intention] = (),
        *,
        refresh: bool = True,
    ) -> StateTable:
        """Return a state's live files; refuse a state whose placement differs from the stage's."""
        table = self.table(f"{folder}/{state_table(node.name, state)}")
        snapshot = table.refresh() if refresh else table.snapshot
        return self._state(table, snapshot, node, state, unpublished)

    def pinned(self, one: LookedUp) -> LookedUp:
        """Return a looked-up table with the moment as of which to read it; by default, now."""
        if one.moment is not None:
            return one
        snapshot = self._table_of(one).refresh()
        shown = newest_epoch(snapshot.txns)
        newest = one.unpublished[-1].epoch if one.unpublished else shown
        return replace(one, moment=LookupMoment(max(shown, newest), snapshot.version))

    def looked_up(self, one: LookedUp) -> StateTable:
        """Return the live files of a looked-up table at its moment (`VersionGoneError`)."""
        assert one.moment is not None, "the looked-up table was not pinned to a moment"
        with self._lock:
            if (known := self._in_use.get(_use_of(one))) is not None:
                return known[0]
        table = self._table_of(one)
        snapshot, version = table.snapshot, one.moment.version
        if snapshot.version != version:
            try:
                snapshot = table.log.snapshot(version)
            except NotFoundError as error:
                raise VersionGoneError(table.path, version) from error
        return self._state(table, snapshot, one.node, one.state, one.unpublished)

    @contextmanager
    def in_use(self, tables: Iterable[LookedUp]) -> Iterator[None]:
        """Protect the files of looked-up tables, as of their moments, from collection."""
        uses = [(_use_of(one), self.looked_up(one)) for one in tables]
        with self._lock:
            for use, live in uses:
                self._in_use[use] = live, self._in_use.get(use, (live, 0))[1] + 1
        try:
            yield
        finally:
            with self._lock:
                for use, live in uses:
                    if readers := self._in_use.pop(use)[1] - 1:
                        self._in_use[use] = live, readers

    def files_in_use(self, path: str) -> set[str]:
        """Return the files of a table that runs under way look up, relative to the table."""
        with self._lock:
            tables = [table for table, _ in self._in_use.values() if table.folder == path]
        files = [file for table in tables for many in table.live.values() for file in many]
        vectors = (vector_path(file.vector) for file in files if file.vector is not None)
        return {file.path for file in files}.union(path for path in vectors if path)

    def _table_of(self, one: LookedUp) -> ManagedTable:
        return self.table(f"{one.folder}/{state_table(one.node.name, one.state)}")

    def _state(
        self,
        table: ManagedTable,
        snapshot: Snapshot,
        node: StageNode,
        state: str,
        unpublished: Sequence[Intention],
    ) -> StateTable:
        name, spec = state_table(node.name, state), node.translator.state(state)
        key = node.translator.key_of(spec).names
        require_placement(table.path, snapshot.metadata, buckets=node.buckets, key=key)
        order = (*key, *spec.second_key) if spec.second_key else ()
        if unpublished:
            live = live_files(snapshot, name, unpublished)
            return StateTable(table.path, snapshot.metadata.id, live, order)
        known, made = self._published.get(table.path, (None, None))
        if made is None or known is not snapshot or made.order != order:
            live = live_files(snapshot, name, ())
            made = StateTable(table.path, snapshot.metadata.id, live, order)
            # Look-ups of single keys need the same snapshot, which can have hundreds of files.
            self._published[table.path] = snapshot, made
        return made

    def live_output(self, folder: str, increment: Increment) -> list[AddFile]:
        """Return the live files that have an increment's records now, in order.

        `NotFoundError` if it is a source's, `IncrementCollectedError` if retention dropped it.
        """
        if "." not in increment.flow:
            raise NotFoundError(kind="increment", name=increment.name)
        snapshot = self.output(folder, increment.flow)
        if increment.index < (oldest := horizon(snapshot.txns)):
            raise IncrementCollectedError(increment.flow, increment.index, oldest)
        return live_of(snapshot.live.values(), increment.index)

    def output(self, folder: str, flow: str, *, version: int | None = None) -> Snapshot:
        """Return the snapshot of a flow's table as of a version; `None` means the newest."""
        table = self.table(f"{folder}/{flow_table(*flow.split('.', 1))}")
        return table.refresh() if version is None else table.log.snapshot(version)

    def forget(self, folder: str) -> None:
        """Drop the cached tables of a folder."""
        with self._lock:
            self._forgotten += 1
            for path in [path for path in self._tables if path.startswith(f"{folder}/")]:
                del self._tables[path]
                self._published.pop(path, None)
