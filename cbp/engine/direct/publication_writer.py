"""Publication writer: makes the results of runs visible, by an entry in the log of each table.

State and outputs of a run become visible together: all files of all tables are durable before the
first entry is put, each entry names all others, and all have one time.

Publication and roll-back are redo: they may be repeated after any crash.
`cbp.engine.commit.table_entries` makes the entries, and `cbp.engine.commit.publication_check` finds
out whether an epoch was published completely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cbp.engine.commit.change_feed import ChangeFeed, is_derivable
from cbp.engine.commit.table_entries import RECORDS, Entry, app_id, begun_ms, plan_entries
from cbp.engine.commit.table_rollback import plan_table_rollback, roll_back_table
from cbp.engine.delta.change_feed_settings import feed_flow
from cbp.engine.delta.log import Snapshot
from cbp.engine.interface.tables import TableRewind, Target
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import stage_tables
from cbp.engine.task.superstep_log import remove_logs
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import Intention


@dataclass
class PublicationWriter:
    """Publishes and rolls back; implements `TablePublisher`."""

    tables: OpenTables
    files: Files
    cache: str
    limits: EngineLimits

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        """Write the log entries of recorded intentions; idempotent, see `TablePublisher.publish`.

        All vectors and change files of all tables are durable before the first entry is written.
        """
        names = [change.table for intention in intentions for change in intention.changes]
        tables = {name: self.tables.table(f"{folder}/{name}") for name in dict.fromkeys(names)}
        versions = {name: table.refresh() for name, table in tables.items()}
        timestamp_ms = begun_ms(tables, intentions) or timestamp_ms
        planned = [
            (name, tables[name], self._with_feed(folder, name, versions[name], intentions, entry))
            for name in tables
            for entry in plan_entries(
                folder,
                name,
                versions[name],
                intentions,
                timestamp_ms=timestamp_ms,
                files=self.files,
                vectors=index_cache(self.cache, self.limits).vectors,
            )
        ]
        entries = [entry for _, _, entry in planned]
        shown = {
            name: entry.put_into(table, timestamp_ms, together=entries)
            for name, table, entry in planned
        }
        remove_logs(self.files, folder, intentions[-1].stage, up_to=intentions[-1].epoch)
        return shown

    def _with_feed(
        self,
        folder: str,
        name: str,
        snapshot: Snapshot,
        intentions: Sequence[Intention],
        entry: Entry,
    ) -> Entry:
        """Return an entry with the change files that it needs; they are durable."""
        flow = feed_flow(snapshot.metadata.configuration)
        if not flow or entry.kind != RECORDS or is_derivable(entry.adds, entry.removes):
            return entry
        flow = f"{name.removeprefix('state/').partition('.')[0]}.{flow}"
        feed = ChangeFeed(f"{folder}/{name}", snapshot, entry.epoch, self.files, self.limits)
        epochs = [
            [f"{folder}/{file.path}" for file in increment.files]
            for one in intentions
            if one.epoch
            > snapshot.txns.get(app_id(one.dataflow, name, RECORDS, one.generation), -1)
            for increment in one.outputs.values()
            if increment.flow == flow
        ]
        return replace(entry, feed=feed.write_epochs(epochs))

    def rewind(
        self,
        folder: str,
        node: StageNode,
        target: Target,
        *,
        records: Callable[[int], Sequence[Intention]],
        dry_run: bool = False,
    ) -> Mapping[str, TableRewind]:
        """Roll a stage's tables back to an earlier epoch; see `TablePublisher.rewind`."""
        done: dict[str, TableRewind] = {}
        for name in stage_tables(node):
            table = self.tables.table(f"{folder}/{name}")
            if dry_run:
                figures, _ = plan_table_rollback(
                    folder, name, table, target, records, files=self.files
                )
                done[name] = figures
            elif rewind := roll_back_table(
                folder, name, table, target, records, files=self.files, limits=self.limits
            ):
                done[name] = rewind
        if not dry_run:
            remove_logs(self.files, folder, node.name)
        return done
