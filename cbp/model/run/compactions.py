"""Compactions of small files into larger ones, read from the records of runs. Pure.

A record names the files that a compaction wrote, with their sizes, and the files that it replaced.
The size of a replaced file is in the record of the run that wrote it, so it is known if that
record is among those that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cbp.model.run.intention import Intention, TableChange


@dataclass(frozen=True, slots=True)
class Compaction:
    """The effect of one run's compactions on one table.

    Attributes:
        at_ms: When the run was recorded, in milliseconds since 1970.
        files_before, files_after: Number of merged files, and number of resulting files.
        bytes_before: Size of the merged files; `None` if that of one is unknown.
    """

    table: str
    stage: str
    epoch: int
    at_ms: int
    files_before: int
    files_after: int
    bytes_before: int | None
    bytes_after: int


def last_compactions(records: Iterable[Intention]) -> list[Compaction]:
    """Return the newest compaction of each table, by table."""
    sizes: dict[tuple[str, str], int] = {}
    newest: dict[str, Compaction] = {}
    for record in records:
        for change in record.changes:
            sizes |= {(change.table, add["path"]): int(add["size"]) for add in change.adds}
            if not change.data_change and change.adds and not change.below:
                newest[change.table] = _compaction(record, change, sizes)
    return [newest[table] for table in sorted(newest)]


def _compaction(
    record: Intention, change: TableChange, sizes: dict[tuple[str, str], Any]
) -> Compaction:
    before = [sizes.get((change.table, path)) for path in change.drops]
    known = [size for size in before if size is not None]
    return Compaction(
        change.table,
        record.stage,
        record.epoch,
        at_ms=record.prepared_ms,
        files_before=len(before),
        files_after=len(change.adds),
        bytes_before=sum(known) if len(known) == len(before) else None,
        bytes_after=sum(int(add["size"]) for add in change.adds),
    )
