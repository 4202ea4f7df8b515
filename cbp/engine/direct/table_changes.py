"""Table changes: creates the tables of a dataflow, and changes them for its next version.

Two other modules write tables, too: `publication_writer`, and `table_collector`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from cbp.engine.commit.garbage_collection import paths_of
from cbp.engine.commit.table_entries import CHANGE, app_id, shown_epoch, shown_generation
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.managed_table import create_table
from cbp.engine.interface.runs import RunControl
from cbp.engine.outputs.table_migration import TableRewriter, ViewFilling, alter, shown_again
from cbp.engine.outputs.table_specs import DeclaredTable, declared_set_aside, declared_tables
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import TableChange

_TABLES_TOGETHER = 32
"""This many tables or more are created in parallel: a creation only waits for the disk."""
_SYNC_THREADS = 16


@dataclass
class TableChanges:
    """Changes tables; implements `TableAdministration`. `forgets` drop cached data of a folder."""

    control: RunControl
    tables: OpenTables
    files: Files
    cache: str
    forgets: Sequence[Callable[[str], None]]
    now_ms: Callable[[], int]
    faults: Faults
    limits: EngineLimits
    hash_mask: int = -1

    def create_tables(
        self,
        folder: str,
        dataflow: str,
        nodes: Sequence[StageNode],
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Create the state and output tables of these stages that do not exist yet."""
        self.control.refuse(dataflow, nodes)
        now_ms = self.now_ms() if timestamp_ms is None else timestamp_ms
        tables = [table for node in nodes for table in declared_tables(dataflow, node)]

        def create(table: DeclaredTable) -> None:
            self._create(folder, table, now_ms)

        if len(tables) < _TABLES_TOGETHER:
            for table in tables:
                create(table)
            return
        self.files.make_dirs(*(f"{folder}/{table.name}" for table in tables))
        with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="cbp-tables") as threads:
            for _ in threads.map(create, tables):
                pass

    def _create(self, folder: str, table: DeclaredTable, now_ms: int) -> None:
        create_table(
            f"{folder}/{table.name}",
            table.schema,
            files=self.files,
            table_id=table.id,
            extra=table.extra,
            partition_by=table.partition_by,
            configuration=table.configuration,
            now_ms=now_ms,
        )

    def _exists(self, folder: str, table: str) -> bool:
        # Not judged by the folder: a crash may leave the folder of a log without an entry.
        return DeltaLog(f"{folder}/{table}", self.files).latest_version() >= 0

    def rewrite(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        *,
        epoch: int,
        run: str,
        anew: bool,
        filled: Mapping[str, int] = MappingProxyType({}),
    ) -> Sequence[TableChange]:
        """Write files for the tables of a changed stage; see `TableAdministration.rewrite`."""
        cache = index_cache(self.cache, self.limits)
        rewriter = TableRewriter(epoch, run, self.now_ms(), cache, self.faults)
        fillings = {
            state_table(node.name, view): ViewFilling(
                node.translator.state(view),
                node.translator.key_of(node.translator.state(view)),
                self.tables.table(f"{folder}/{flow_table(node.name, view)}"),
                first,
                self.limits,
                self.hash_mask,
            )
            for view, first in filled.items()
        }
        changes = []
        for declared in declared_tables(dataflow, node):
            exists = self._exists(folder, declared.name)
            if declared.name in fillings:
                path = f"{folder}/{declared.name}"
                old = self.tables.table(path).refresh().live if exists else ()
                changes.append(rewriter.filled(path, declared, fillings[declared.name], drops=old))
                continue
            if not exists:
                continue
            table = self.tables.table(f"{folder}/{declared.name}")
            change = rewriter.rewritten(table, declared, anew=anew)
            changes += [change] if change else []
        return [*changes, *(self._emptied(folder, dataflow, node) if anew else ())]

    def _emptied(self, folder: str, dataflow: str, node: StageNode) -> list[TableChange]:
        """Return the change that empties a set-aside table that its stage no longer declares."""
        name = declared_set_aside(dataflow, node.name).name
        if node.sets_aside or not self._exists(folder, name):
            return []
        live = self.tables.table(f"{folder}/{name}").refresh().live
        return [TableChange(name, drops=tuple(sorted(live)))] if live else []

    def show_built(
        self, folder: str, dataflow: str, node: StageNode, *, built: str, epoch: int, run: str
    ) -> Sequence[TableChange]:
        """Copy tables that were built elsewhere; see `TableAdministration.show_built`."""
        cache = index_cache(self.cache, self.limits)
        rewriter = TableRewriter(epoch, run, self.now_ms(), cache, self.faults)
        messages = {flow_table(node.name, one.name) for one in node.translator.loopbacks}
        changes = []
        for declared in declared_tables(dataflow, node):
            path = f"{folder}/{declared.name}"
            exists = self._exists(folder, declared.name)
            live = sorted(self.tables.table(path).refresh().live) if exists else []
            if declared.name in messages:
                changes.append(TableChange(declared.name, drops=tuple(live), below=epoch))
                continue
            source = self.tables.table(f"{built}/{declared.name}")
            shown = source.refresh()
            epochs = 1 + shown_epoch(shown.txns, shown_generation(shown.txns))
            changes.append(
                rewriter.built(path, declared, source, drops=live, epochs=max(epochs, 1))
            )
        return [*changes, *self._emptied(folder, dataflow, node)]

    def show_again(
        self, folder: str, node: StageNode, versions: Mapping[str, int], *, epoch: int
    ) -> Sequence[TableChange]:
        """Find the earlier contents of tables; see `TableAdministration.show_again`."""
        outputs = {flow_table(node.name, output.name) for output in node.translator.outputs}
        changes = []
        for name, version in versions.items():
            table = self.tables.table(f"{folder}/{name}")
            below = epoch if name in outputs else 0
            change = shown_again(table, name, version, below=below)
            for path in sorted(paths_of(map(AddFile.from_json, change.adds))):
                if not self.files.exists(f"{table.path}/{path}"):
                    raise NotFoundError(kind="file", name=f"{table.path}/{path}")
            changes.append(change)
        return changes

    def alter(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        changes: Sequence[TableChange],
        *,
        epoch: int,
        version: int,
        timestamp_ms: int,
    ) -> None:
        """Put the entries of changed tables; see `TableAdministration.alter`."""
        left = declared_set_aside(dataflow, node.name)
        declared = {table.name: table for table in (left, *declared_tables(dataflow, node))}
        for change in changes:
            if not self._exists(folder, change.table):
                # Created before the change, so that a reader as of the change's time sees the new
                # records.
                self._create(folder, declared[change.table], timestamp_ms - 1)
            alter(
                self.tables.table(f"{folder}/{change.table}"),
                declared[change.table],
                change,
                app_id=app_id(dataflow, change.table, f"{CHANGE}{version}"),
                epoch=epoch,
                cause=f"{dataflow}/{node.name}/version {version}",
                timestamp_ms=timestamp_ms,
                files=self.files,
                limits=self.limits,
            )

    def forget(self, folder: str) -> None:
        """Drop cached data of a folder; see `TableAdministration.forget`."""
        for forget in self.forgets:
            forget(folder)
