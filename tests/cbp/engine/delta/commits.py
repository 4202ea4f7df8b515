"""Commits to a Delta table."""

from __future__ import annotations

from cbp.engine.delta.actions import (
    AddFile,
)
from cbp.engine.delta.tables import ManagedTable


def file(name: str, bucket: int = 0) -> AddFile:
    """Describe a run file; these tests never read one."""
    return AddFile(f"_runs/_bucket={bucket}/{name}.parquet", {"_bucket": str(bucket)}, 10, 10, 1)


def files(*names: str) -> dict[str, AddFile]:
    """Describe a live set."""
    return {file(name).path: file(name) for name in names}


def publish(
    table: ManagedTable, epoch: int, *names: str, app: str = "run", at: int | None = None
) -> int:
    """Publish a live set as an epoch."""
    return table.publish(
        files(*names),
        app_id=app,
        version=epoch,
        intention_id=f"d/s/{epoch}",
        timestamp_ms=10_000 + epoch if at is None else at,
    )
