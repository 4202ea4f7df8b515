"""How much a dropped file may ask of this service; every limit is a clear rejection.

Memory is bounded by `line_bytes_max`, `batch_rows` and `row_group_bytes` whatever
the size of the file; disk is bounded by `file_bytes_max` and `decompressed_bytes_max`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IngestLimits"]

_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Limits per file unless the name says otherwise.

    Attributes:
        file_bytes_max: Size as dropped.
        decompressed_bytes_max: Size after decompression.
        ratio_max: Decompressed to compressed bytes, looked at from `ratio_floor_bytes` on.
        members_max: Concatenated gzip members.
        line_bytes_max: One line of JSON, or one CSV record with its quoted line ends.
        batch_rows: Rows that are converted at a time.
        row_group_bytes: Arrow bytes that are gathered before they are written.
        part_bytes: Parquet bytes after which an increment begins its next part.
        claims_per_scan: Files of one source that one scan takes in; the others wait.
    """

    file_bytes_max: int = 256 * _GIB
    decompressed_bytes_max: int = 1024 * _GIB
    ratio_max: int = 250
    ratio_floor_bytes: int = 64 * _MIB
    members_max: int = 500_000
    line_bytes_max: int = 16 * _MIB
    batch_rows: int = 1 << 16
    row_group_bytes: int = 64 * _MIB
    part_bytes: int = 256 * _MIB
    claims_per_scan: int = 64
