"""Commits to a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cbp.engine.delta.actions import AddFile, RemoveFile, difference
from cbp.engine.delta.managed_table import ManagedTable


def file(name: str, bucket: int = 0) -> AddFile:
    """Describe a run file; these tests never read one."""
    return AddFile(f"_runs/_bucket={bucket}/{name}.parquet", {"_bucket": str(bucket)}, 10, 10, 1)


def files(*names: str) -> dict[str, AddFile]:
    """Describe a live set."""
    return {file(name).path: file(name) for name in names}


def change(
    table: ManagedTable, after: Mapping[str, AddFile], *, now_ms: int, data_change: bool = True
) -> dict[str, Any]:
    """Return the actions that make a table show a live set in place of what was seen last."""
    actions = difference(table.snapshot.live, after, now_ms=now_ms, data_change=data_change)
    return {
        "adds": [one for one in actions if isinstance(one, AddFile)],
        "removes": [one for one in actions if isinstance(one, RemoveFile)],
    }


def publish(
    table: ManagedTable, epoch: int, *names: str, app: str = "run", at: int | None = None
) -> int:
    """Publish a live set as an epoch."""
    at_ms = 10_000 + epoch if at is None else at
    return table.publish(
        **change(table, files(*names), now_ms=at_ms),
        app_id=app,
        version=epoch,
        intention_id=f"d/s/{epoch}",
        timestamp_ms=at_ms,
    )
