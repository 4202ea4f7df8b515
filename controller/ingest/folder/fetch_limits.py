"""What a fetch of objects may take, in one value; tests make it smaller."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FetchLimits"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of the fetches of one source.

    Attributes:
        slice_seconds: After this time others have their turn.
        new_max: New objects of one listing; the next one shows those behind them.
        block_bytes: What one request fetches; held in memory.
        ahead: How many small objects are fetched while the one before them is claimed.
        ahead_bytes: Size of a small object.
        noted_together: Objects of one record of the index.
        noted_seconds: How long a claimed object waits to be noted.
        waiting_files: How many files may wait in `claimed`, unless its batch has more.
        waiting_bytes: How many bytes may wait there; the last file may exceed it.
        failed_in_a_row: After so many objects that could not be read the others of a listing are
            not tried.
        index_records: After so many records of the index they are made one.
        index_gone: So many objects that are gone stay in the index, and as many as are there.
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
