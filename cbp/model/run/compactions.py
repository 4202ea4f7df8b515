"""Compactions of small files into larger ones, read from the records of runs. Pure.

A record names the files that a compaction wrote, with their sizes, and the files that it replaced.
The size of a replaced file is in the record of the run that wrote it, so it is known if that record
is among the given ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cbp.model.run.intention import Intention


@dataclass(frozen=True, slots=True)
class Compaction:
    """The effect of one run's compactions on one table.

    Attributes:
        at_ms: When the run was recorded, in milliseconds since 1970.
        files_before, files_after: Number of merged files, and number of resulting files.
        bytes_before: Size of the merged files; `None` if the size of one of them is unknown.
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
    changes = ((record, change) for record in records for change in record.changes)
    for record, change in changes:
        table, after = change.table, [int(add["size"]) for add in change.adds]
        sizes |= {(table, add["path"]): size for add, size in zip(change.adds, after, strict=True)}
        if change.data_change or not after or change.below:
            continue
        known = [sizes[table, path] for path in change.drops if (table, path) in sizes]
        newest[table] = Compaction(
            table,
            record.stage,
            record.epoch,
            at_ms=record.prepared_ms,
            files_before=len(change.drops),
            files_after=len(after),
            bytes_before=sum(known) if len(known) == len(change.drops) else None,
            bytes_after=sum(after),
        )
    return [newest[table] for table in sorted(newest)]
