"""Limits on the cost of a dropped file; a file beyond one is rejected with a clear reason.

The limits of time and `memory_bytes_max` hold only in a separate process (`reader_pool`).
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Limits of ingestion; per file, unless stated otherwise.

    Memory is bounded by `line_bytes_max`, `batch_rows` and `row_group_bytes`, whatever the size of
    the file. Disk is bounded by `file_bytes_max` and `decompressed_bytes_max`.

    Attributes:
        ratio_max: Decompressed bytes per compressed byte; checked from `ratio_floor_bytes` on.
        members_max: Concatenated gzip or bzip2 members.
        line_bytes_max: One line of JSON, or one CSV record with its quoted line ends.
        fast_block_bytes_min: Smallest number of characters of a block of lines for which Arrow
            parses it, since its start takes 0.1 ms.
        row_group_bytes: Arrow bytes that are collected before they are written.
        part_bytes: Parquet bytes after which an increment begins its next part.
        claims_per_scan: Maximum number of files of one source that one scan takes in.
        scan_seconds: After this time a scan begins no more files of a source, so that no source
            delays the next ones for long.
        seconds_max: Processor time allowed for every file, even an empty one.
        bytes_per_second_min: Number of bytes, read or decoded, for which one second is added.
        silent_seconds_shown: After this time without computing or reading, a reader is shown as
            stuck.
        silent_seconds_max: After this time without either, the device is considered hung.
        memory_bytes_max: Additional memory that a reader process may take for one file.
        group_files, group_bytes: Largest number of small files, and of their bytes, that are
            claimed together and moved away together, unless they become one increment.
        sealed_entries: Number of entries of a source's log that are put into one file, once there
            are as many newer ones.
    """

    file_bytes_max: int = 256 * _GIB
    decompressed_bytes_max: int = 1024 * _GIB
    ratio_max: int = 250
    ratio_floor_bytes: int = 64 * _MIB
    members_max: int = 500_000
    line_bytes_max: int = 16 * _MIB
    batch_rows: int = 1 << 16
    fast_block_bytes_min: int = 1 << 12
    row_group_bytes: int = 64 * _MIB
    part_bytes: int = 256 * _MIB
    claims_per_scan: int = 4096
    scan_seconds: float = 1.0
    seconds_max: float = 60.0
    bytes_per_second_min: int = _MIB
    silent_seconds_shown: float = 10.0
    silent_seconds_max: float = 300.0
    memory_bytes_max: int = 2 * _GIB
    group_files: int = 64
    group_bytes: int = _MIB
    sealed_entries: int = 1_000


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of the fetches of one source.

    Attributes:
        slice_seconds: Time after which other sources get a turn.
        new_max: Largest number of new objects of one listing; the next listing continues after
            them.
        block_bytes: Bytes that one request fetches; held in memory.
        ahead: Number of small objects, of `ahead_bytes`, that are fetched while an earlier one is
            claimed.
        noted_seconds: Longest time until a claimed object is noted in the index.
        waiting_files: How many files may wait in `claimed`, or more if its batch is larger.
        waiting_bytes: How many bytes may wait there; the last file may exceed it.
        failed_in_a_row: Number of unreadable objects in a row after which the rest of a listing
            is not tried.
        index_records: Number of records of the index that are merged into one.
        index_gone: Number of deleted objects that may stay in the index, beside as many as exist.
    """

    slice_seconds: float = 10.0
    new_max: int = 100_000
    block_bytes: int = 4 * _MIB
    ahead: int = 8
    ahead_bytes: int = _MIB
    noted_together: int = 256
    noted_seconds: float = 5.0
    waiting_files: int = 1_024
    waiting_bytes: int = 1024 * _MIB
    failed_in_a_row: int = 3
    index_records: int = 64
    index_gone: int = 1_000
