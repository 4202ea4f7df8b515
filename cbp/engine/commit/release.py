"""Release of a table to other writers: publish what is recorded, then remove the fence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cbp.engine.commit.change_feed import ChangeFeed, is_derivable
from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.commit.table_entries import (
    RECORDS,
    Entry,
    newest_epoch,
    plan_entries,
    shown_generation,
)
from cbp.engine.delta.change_feed_settings import feed_flow
from cbp.engine.delta.foreign_writer_fence import FENCE
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.managed_table import ManagedTable, open_table, release
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.files import Files
from cbp.errors import DataflowBusyError


def release_table(path: str, *, files: Files, now_ms: int) -> int:
    """Publish a table's recorded runs, and release it; return the version that released it.

    The records are those in the dataflow's folder, if the table belongs to one. Raises as
    `cbp.engine.delta.managed_table.release` and `plan_entries`; `ForeignWriterError` if others
    wrote, `DataflowBusyError` if a recorded roll-back is not finished.
    """
    parts = path.rsplit("/", 2)
    if FENCE in DeltaLog(path, files).snapshot().protocol.writer_features and len(parts) == 3:
        folder, name = parts[0], "/".join(parts[1:])
        log, table = IntentionLog(folder, files), open_table(path, files)
        _require_rolled_back(folder, name, log, table.snapshot.txns)
        for stage, epoch in log.next_epochs().items():
            records = log.unpublished(stage, epoch)
            if not records:
                continue  # no run of the stage since a roll-back
            stamp, now = records[-1].prepared_ms, table.refresh()
            for entry in plan_entries(folder, name, now, records, timestamp_ms=stamp, files=files):
                _with_feed(table, entry, files).put_into(table, stamp)
    return release(path, files=files, now_ms=now_ms)


def _require_rolled_back(
    folder: str, name: str, log: IntentionLog, txns: Mapping[str, int]
) -> None:
    """Refuse a table that still shows what a recorded roll-back undid."""
    stage = name.partition("/")[2].partition(".")[0]
    for newest in log.generations[-1:]:
        undone = stage in newest.position.stages and newest_epoch(txns) >= newest.start(stage)
        if undone and shown_generation(txns) < newest.number:
            why = (
                "its roll-back is recorded, but not finished: start the service, which finishes it"
            )
            raise DataflowBusyError(folder.rpartition("/")[2], why)


def _with_feed(table: ManagedTable, entry: Entry, files: Files) -> Entry:
    """Return an entry of a table with the change files that it needs, which are durable."""
    snapshot = table.snapshot
    has_feed = entry.kind == RECORDS and feed_flow(snapshot.metadata.configuration)
    if not has_feed or is_derivable(entry.adds, entry.removes):
        return entry
    before = {remove.path: snapshot.live[remove.path] for remove in entry.removes}
    after = {add.path: add for add in entry.adds}
    feed = ChangeFeed(table.path, snapshot, entry.epoch, files, DEFAULT_LIMITS)
    return replace(entry, feed=feed.write_difference(before, after))
