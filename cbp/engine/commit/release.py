"""Release of a table to other writers: publish what is recorded, then remove the fence."""

from __future__ import annotations

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.commit.table_entries import plan_entries
from cbp.engine.delta.foreign_writer_fence import FENCE
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.managed_table import open_table, release
from cbp.engine.storage.files import Files


def release_table(path: str, *, files: Files, now_ms: int) -> int:
    """Publish a table's recorded runs, and release it; return the version that released it.

    The records are those in the dataflow's folder, if the table belongs to one. Raises as
    `cbp.engine.delta.managed_table.release` and `plan_entries`; `ForeignWriterError` if others
    wrote.
    """
    parts = path.rsplit("/", 2)
    if FENCE in DeltaLog(path, files).snapshot().protocol.writer_features and len(parts) == 3:
        folder, name = parts[0], "/".join(parts[1:])
        log, table = IntentionLog(folder, files), open_table(path, files)
        for stage, epoch in log.next_epochs().items():
            records = log.unpublished(stage, epoch)
            stamp, now = records[-1].prepared_ms, table.refresh()
            for entry in plan_entries(folder, name, now, records, timestamp_ms=stamp, files=files):
                entry.put_into(table, stamp)
    return release(path, files=files, now_ms=now_ms)
