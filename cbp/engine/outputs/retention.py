"""Retention of outputs: which files a run drops from an output's table, and how coarse merges are.

    drop  | may be dropped, oldest first | must stay          (cbp.model.flow.retention decides)
    merge   within a grain: an eighth of the retention, or of what must stay if that is more

A file is dropped when every record in it is older than the retention. So merges stay within a
grain: without a grain, the oldest file would grow with every merge and never be dropped. The run
that drops a file records this, as it records a compaction, so there is no second writer.
`controller.loop.runs.output_retention` decides what must stay.

Invariants (tests/cbp/engine/outputs/test_retention.py): the remaining records are the end of the
flow, without gaps; nothing that must stay is dropped; the number of files stays small.
Not guaranteed: that anything is dropped while its stage does not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from cbp.engine.delta.actions import AddFile
from cbp.engine.outputs.output_compaction import CompactionGrain, blocks, came_ms, epochs_of
from cbp.model.flow.retention import Expiry, Held, KeptFlow, expire
from cbp.model.run.intention import TableChange

PARTS = 8
"""Merges leave the kept records in about this many files or more."""


def expired(live: Iterable[AddFile], kept: KeptFlow, *, now_ms: int) -> Expiry:
    """Return the files that retention drops from an output, and why the next file stays; pure."""
    held = [_held(block) for block in blocks(live)]
    return expire(
        held,
        total_bytes=sum(one.bytes for one in held),
        first_replayed=kept.first_replayed,
        first_waiting=kept.first_waiting,
        needed=(),
        retention=kept.retention,
        now=datetime.fromtimestamp(now_ms / 1000, UTC),
    )


def expired_change(
    table: str, live: Sequence[AddFile], kept: KeptFlow, *, now_ms: int
) -> TableChange | None:
    """Return the change by which a run drops an output's old records; `None` if it drops none."""
    gone = expired(live, kept, now_ms=now_ms).gone
    if not gone:
        return None
    drops = tuple(path for one in gone for path in one.paths)
    # Records with epochs below 0 belong to no increment, so no increment loses records.
    return TableChange(table, drops=drops, below=gone[-1].index + 1 or -1)


def grain_of(live: Iterable[AddFile], kept: KeptFlow, *, now_ms: int) -> CompactionGrain:
    """Return how coarse the files of an output may become; pure.

    The grain follows from the retention, or from what must stay for other reasons if that is more.
    Otherwise an output that is dropped as soon as it is consumed would have one file per epoch.
    """
    first = min(kept.first_replayed, kept.first_waiting)
    needed = [block for block in blocks(live) if epochs_of(block[-1])[1] >= first]
    retention = kept.retention
    ms = 0
    if retention.seconds < math.inf:
        age = max((now_ms - came_ms(block) for block in needed), default=0)
        share = max(retention.seconds * 1000, age) / PARTS
        ms = 1 << max(int(share).bit_length() - 1, 0)  # the largest power of two up to it
    size = sum(file.size for block in needed for file in block)
    most = max(retention.bytes, size) // PARTS if retention.bytes else 0
    return CompactionGrain(max(most, 1) if retention.bytes else 0, ms)


def _held(block: Sequence[AddFile]) -> Held:
    return Held(
        max(epochs_of(file)[1] for file in block),
        sum(file.size for file in block),
        datetime.fromtimestamp(came_ms(block) / 1000, UTC),
        tuple(file.path for file in block),
    )
