"""Snapshot: consistent versions of all tables of a dataflow. Pure.

A publication writes its tables one after the other. So at any moment, and after a crash, some
tables can show it while others do not. The records of runs reveal this: a time is *whole* if no
table lacks a record that was put up to then. Within a dataflow, publications and records follow one
another, and their times rise. So take the oldest record that some table lacks: just before its
time, all tables show the previous publication, which is whole.

    tables      A ---1-----2-->          B ---1------->        times of publications
    records     A  1      2              B  1      2           B lacks 2: the cut is at 1

Invariant: calling `earlier` repeatedly, each time with the versions as of the time it returned,
ends with `None` (tests/cbp/model/flow/test_snapshot.py). The versions as of a whole time show every
record up to it and none after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of one table, with its in-commit timestamp and that of the next, if any.

    Attributes:
        epoch: The last epoch of its stage that it shows; -1 if none.
    """

    version: int
    epoch: int
    stamp_ms: int
    superseded_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Consistent versions of all tables of a dataflow.

    Attributes:
        at_ms: Time of the last publication in it, milliseconds since 1970.
        epochs: Maps each leading stage to the last epoch that its tables show; -1 if none.
        tables: Maps the folder of each table, relative to the dataflow's, to its version.
        newest: Whether there was no newer consistent time when it was taken.
        readable_until_ms: Until when garbage collection keeps its files.
    """

    dataflow: str
    folder: str
    at_ms: int
    epochs: dict[str, int]
    tables: dict[str, TableVersion]
    newest: bool
    readable_until_ms: int


def earlier(at_ms: int, lacking_ms: Iterable[int]) -> int | None:
    """Return an earlier time to try; `None` if the tables as of `at_ms` are consistent.

    `lacking_ms` is, for each stage, the time of the first record that some table does not show.
    """
    oldest = min(lacking_ms, default=at_ms + 1)
    return None if oldest > at_ms else oldest - 1
