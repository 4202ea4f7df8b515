"""The last publication of a table, before it belongs to somebody else."""

from __future__ import annotations

from cbp.engine.delta.fence import FENCE
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.tables import open_table, release
from cbp.engine.files import Files
from cbp.engine.intentions import IntentionLog
from cbp.engine.publication import plan_entries

__all__ = ["hand_over"]


def hand_over(path: str, *, files: Files, now_ms: int) -> int:
    """Publish what is recorded of one table, and release it; see `cbp.engine.delta.tables`.

    Args:
        path: Folder of the table; of a dataflow's, its records are found beside it.
        files: Where it lies.
        now_ms: Milliseconds since 1970.

    Returns:
        The version that released the table.

    Raises:
        NotFoundError: If there is no table.
        InvariantError: If a record cannot be read, or does not fit the table.
        ForeignWriterError: If somebody else wrote into the table.
    """
    parts = path.rsplit("/", 2)
    if FENCE in DeltaLog(path, files).snapshot().protocol.writer_features and len(parts) == 3:
        folder, name = parts[0], "/".join(parts[1:])
        log, table = IntentionLog(folder, files), open_table(path, files)
        for stage, epoch in log.next_epochs().items():
            records = log.unpublished(stage, epoch)
            stamp = records[-1].prepared_ms
            for entry in plan_entries(
                folder, name, table.refresh(), records, timestamp_ms=stamp, files=files
            ):
                entry.put_into(table, stamp)
    return release(path, files=files, now_ms=now_ms)
