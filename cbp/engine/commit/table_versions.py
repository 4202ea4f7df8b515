"""Time travel: which version of a managed table shows a time or an epoch; reads the log only.

In-commit timestamps rise with the versions, and so do the epochs that they show, within a
generation of the dataflow. So both are found by bisection, which reads few entries of a long log.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime

from cbp.engine.commit.table_entries import RECORDS, app_id, shown_epoch, shown_generation
from cbp.engine.delta.log import DeltaLog, Snapshot, written_by
from cbp.engine.delta.tables import ManagedTable
from cbp.errors import NotFoundError
from cbp.model.flow.snapshot import TableVersion


def version_at(table: ManagedTable, name: str, at_ms: int | None) -> TableVersion:
    """Return the newest version of a table as of a time.

    Args:
        name: The table's folder, relative to the dataflow's.
        at_ms: Milliseconds since 1970; `None` means the newest version.

    Raises:
        NotFoundError: If no readable version is that old.
    """
    log, snapshot = table.log, table.refresh()
    if at_ms is None or snapshot.in_commit_timestamp <= at_ms:
        return TableVersion(snapshot.version, _shown(snapshot), snapshot.in_commit_timestamp)
    versions = log.readable()
    at = bisect_right(versions, at_ms, key=log.stamp)
    if at == 0:
        hint = f"the oldest readable one is from {_moment(log.stamp(versions[0]))}"
        raise NotFoundError(kind="version", name=f"{name} as of {_moment(at_ms)}", hint=hint)
    return _described(log, versions, at - 1)


def version_showing(
    table: ManagedTable, name: str, dataflow: str, epoch: int, generation: int
) -> TableVersion | None:
    """Return the oldest readable version that shows an epoch; `None` if none shows it yet."""
    table.refresh()
    application = app_id(dataflow, name, RECORDS, generation)
    if table.snapshot.txns.get(application, -1) < epoch:
        return None
    log = table.log
    versions = log.readable()
    at = bisect_right(versions, epoch - 1, key=lambda v: _epoch(log, v, application))
    return _described(log, versions, at)


def _moment(at_ms: int) -> str:
    """Return a time as commands and routes take it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _described(log: DeltaLog, versions: list[int], at: int) -> TableVersion:
    version = versions[at]
    behind = log.stamp(versions[at + 1]) if at + 1 < len(versions) else None
    return TableVersion(version, _shown(log.snapshot(version)), log.stamp(version), behind)


def _shown(snapshot: Snapshot) -> int:
    """Return the last epoch that a version shows; -1 if none."""
    return shown_epoch(snapshot.txns, shown_generation(snapshot.txns))


def _epoch(log: DeltaLog, version: int, application: str) -> int:
    """Return the last epoch that a version shows; -1 if none.

    An entry without an epoch (a compaction, a repair) shows the epoch of the version before.
    """
    for before in range(version, -1, -1):
        try:
            written = written_by(log.entry(before), application)
        except NotFoundError:
            return log.snapshot(before + 1).txns.get(application, -1)
        if written is not None:
            return written
    return -1
