"""Compaction of an output table by tiers, inside the runs that write it.

As soon as `EngineLimits.output_fanout` neighboring epochs are of one tier, their files are merged
into one of the next tier. So a record is rewritten at most once per tier, and a table has few files
per tier. Every merge preserves the records, their order (epoch, file, row), and `_epoch`, so that
an old increment can still be read from the table (`live_of`). Only neighboring epochs are merged,
and always completely: sorted by their epochs, the files give the flow. Merged files that connectors
still name stay until `cbp.engine.commit.garbage_collection` removes them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cbp.engine.columnar.arrow_types import conform
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.live_records import read_batches
from cbp.engine.storage.checked_parquet import open_parquet
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import merged_file
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.errors import InvariantError
from cbp.model.run.intention import TableChange

_TIER_ZERO_BYTES = 16 << 10
_TIERS = 4
"""Files of this tier, 8 MB and more, are large enough and are not merged."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionGrain:
    """How coarse merges may be; 0 means no limit.

    Attributes:
        bytes: Maximum size of a merged file.
        ms: Only files whose records arrived in the same interval of this many milliseconds are
            merged; a power of two, counted from 1970. Intervals of a fine grain lie within
            those of a coarser one, so no file exceeds the coarsest grain.
    """

    bytes: int = 0
    ms: int = 0


WHOLE = CompactionGrain()
"""The grain of an output that is kept forever: without limits."""


def due(epoch: int, limits: EngineLimits) -> bool:
    """Return whether a run compacts outputs; not each does: many live files make it slow."""
    return epoch % limits.output_fanout == 0


def epochs_of(file: AddFile) -> tuple[int, int]:
    """Return the first and the last epoch whose records a file of an output table contains."""
    low, high = dict(file.min_values or {}), dict(file.max_values or {})
    if "_epoch" not in low or "_epoch" not in high:
        message = f"the log entry of {file.path} has no statistics of the column _epoch"
        raise InvariantError(message, path=file.path)
    return int(low["_epoch"]), int(high["_epoch"])


def blocks(files: Iterable[AddFile]) -> list[list[AddFile]]:
    """Group an output table's files, in order, into the smallest blocks without a common epoch."""
    blocks_so_far: list[list[AddFile]] = []
    end = -1
    for file in in_order(files):
        low, high = epochs_of(file)
        if blocks_so_far and low <= end:
            blocks_so_far[-1].append(file)
        else:
            blocks_so_far.append([file])
        end = max(end, high)
    return blocks_so_far


def in_order(files: Iterable[AddFile]) -> list[AddFile]:
    """Return the files of an output table in the order of the flow."""
    return sorted(files, key=lambda file: (*epochs_of(file), file.path))


def live_of(files: Iterable[AddFile], epoch: int) -> list[AddFile]:
    """Return the live files that can contain records of an epoch, in order."""
    return in_order(file for file in files if epochs_of(file)[0] <= epoch <= epochs_of(file)[1])


def choose(
    files: Iterable[AddFile],
    grain: CompactionGrain = WHOLE,
    *,
    limits: EngineLimits = DEFAULT_LIMITS,
) -> list[AddFile]:
    """Return the files to merge into one, in order; empty if no merge is worth it; pure.

    The largest full tier is merged, together with its smaller neighbors. The grain limits the
    merged file, since retention removes whole files.
    """
    fanout = limits.output_fanout
    all_blocks = blocks(files)
    sizes = (max(_size(block), 1) / _TIER_ZERO_BYTES for block in all_blocks)
    tiers = [max(0, math.ceil(math.log(size, fanout))) for size in sizes]
    for tier in sorted({tier for tier in tiers if tier < _TIERS}, reverse=True):
        for stretch in _stretches(tiers, tier):
            for first, last in _within(all_blocks, stretch, grain):
                if sum(tiers[at] == tier for at in range(first, last)) >= fanout:
                    return [file for block in all_blocks[first:last] for file in block]
    return []


def merge(
    folder: str,
    files: Sequence[AddFile],
    *,
    epoch: int,
    run: str,
    faults: Faults,
    limits: EngineLimits = DEFAULT_LIMITS,
) -> AddFile:
    """Merge files into one that has their records in order, and the newest arrival time.

    The merged file is durable, but not published. `InvariantError` if the files do not have as many
    records as their log entries say.
    """
    path = merged_file(epoch, run)
    # The newest file has all columns of the current schema.
    schema = open_parquet(f"{folder}/{files[-1].path}").schema_arrow.remove_metadata()
    sink = ParquetSink(f"{folder}/{path}", schema, faults=faults)
    for file in files:
        for batch in read_batches(f"{folder}/{file.path}", limits=limits):
            sink.write(conform(pa.Table.from_batches([batch]), schema).cast(schema))
    expected = sum(file.rows for file in files)
    if sink.rows != expected:
        message = f"{folder}: {len(files)} files have {sink.rows} records instead of {expected}"
        raise InvariantError(message, table=folder)
    written = sink.close()
    assert written is not None, "the files to merge have no records"
    sync_files([written.path], faults=faults)
    return AddFile(
        path,
        {},
        written.bytes,
        written.rows,
        came_ms(files),
        min_values={"_epoch": epochs_of(files[0])[0]},
        max_values={"_epoch": epochs_of(files[-1])[1]},
    )


def merged_change(
    table: str,
    folder: str,
    live: Iterable[AddFile],
    *,
    epoch: int,
    run: str,
    faults: Faults,
    grain: CompactionGrain = WHOLE,
    limits: EngineLimits = DEFAULT_LIMITS,
) -> TableChange | None:
    """Compact one table and return the change; `None` if there is nothing to merge or it failed.

    A failure is only logged, since the epoch does not need the merged file. `table` is the folder
    relative to the dataflow's, `folder` its full path. Live files are published or recorded.
    """
    chosen = choose(live, grain, limits=limits)
    if not chosen:
        return None
    try:
        made = merge(folder, chosen, epoch=epoch, run=run, faults=faults, limits=limits)
    except (OSError, pa.ArrowException, InvariantError) as exc:
        _logger.warning("%s was not compacted; a later run tries again: %s", folder, exc)
        return None
    drops = tuple(file.path for file in chosen)
    return TableChange(table, (made.to_json(),), drops, data_change=False)


def came_ms(block: Iterable[AddFile]) -> int:
    """Return when the newest record of these files arrived, in milliseconds since 1970."""
    return max(file.modified_ms for file in block)


def _size(block: Iterable[AddFile]) -> int:
    return sum(file.size for file in block)


def _within(
    blocks: Sequence[Sequence[AddFile]], stretch: tuple[int, int], grain: CompactionGrain
) -> Iterable[tuple[int, int]]:
    """Cut a range of blocks into the longest ranges that respect a grain, in order."""
    start, last = stretch
    size = cell = 0
    for at in range(start, last):
        mine = _size(blocks[at])
        here = came_ms(blocks[at]) // grain.ms if grain.ms else 0
        if at > start and (here != cell or 0 < grain.bytes < size + mine):
            yield start, at
            start, size = at, 0
        cell, size = here, size + mine
    yield start, last


def _stretches(tiers: Sequence[int], limit: int) -> Iterable[tuple[int, int]]:
    """Yield the longest half-open ranges of blocks whose tiers are at most a limit."""
    first = 0
    for at, tier in enumerate([*tiers, limit + 1]):
        if tier > limit:
            if at > first:
                yield first, at
            first = at + 1
