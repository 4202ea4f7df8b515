"""Creates tables, and changes them as the next version of a dataflow declares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cbp.engine.commit.table_entries import CHANGE, app_id
from cbp.engine.delta.tables import create_table
from cbp.engine.interface.runs import RunControl
from cbp.engine.outputs.table_migration import Rewriter, alter
from cbp.engine.outputs.table_specs import declared_tables
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import TableChange

__all__ = ["FolderCache", "TableChanges"]


class FolderCache(Protocol):
    """What an engine remembers about the tables of folders."""

    def forget(self, folder: str) -> None:
        """Drop what is cached for a folder."""
        ...


@dataclass
class TableChanges:
    """Changes tables; implements `TableAdministration`.

    Attributes:
        control: Refuses stages that the engine cannot run.
        cache: Folder of the index copies.
        caches: What remembers something about tables.
        faults: Failpoints, called at every durable effect of a rewrite.
        limits: How much of state is read and merged at a time.
    """

    control: RunControl
    tables: OpenTables
    files: Files
    cache: str
    caches: Sequence[FolderCache]
    now_ms: Callable[[], int]
    faults: Faults
    limits: EngineLimits

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
        for node in nodes:
            for table in declared_tables(dataflow, node):
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

    def rewrite(
        self, folder: str, dataflow: str, node: StageNode, *, epoch: int, run: str, anew: bool
    ) -> Sequence[TableChange]:
        """Write what the tables of a changed stage need; see `TableAdministration.rewrite`."""
        cache = index_cache(self.cache, self.limits)
        rewriter = Rewriter(epoch, run, self.now_ms(), cache, self.faults)
        changes = []
        for declared in declared_tables(dataflow, node):
            if not self.files.exists(f"{folder}/{declared.name}/_delta_log"):
                continue
            table = self.tables.table(f"{folder}/{declared.name}")
            change = rewriter.rewritten(table, declared, anew=anew and declared.is_state)
            changes += [change] if change else []
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
        declared = {table.name: table for table in declared_tables(dataflow, node)}
        for change in changes:
            alter(
                self.tables.table(f"{folder}/{change.table}"),
                declared[change.table],
                change,
                app_id=app_id(dataflow, change.table, f"{CHANGE}{version}"),
                epoch=epoch,
                cause=f"{dataflow}/{node.name}/version {version}",
                timestamp_ms=timestamp_ms,
            )

    def forget(self, folder: str) -> None:
        """Drop what each cache holds of a folder; see `TableAdministration.forget`."""
        for cache in self.caches:
            cache.forget(folder)
