"""A snapshot: versions of all tables of a dataflow that belong together. Pure.

A publication writes its tables one after the other, so at any instant some may show it and
others not yet, and one that died leaves it so. The records tell: a time is *whole* when no
table lacks a record that was put up to then. Publications and records come one after the
other within a dataflow, and their times rise; so going back to just before the oldest
record that some table lacks leads to the publication before, which is whole.

    tables      A ---1-----2-->          B ---1------->        times of publications
    records     A  1      2              B  1      2           B lacks 2: the cut is at 1

Invariant: `earlier` of the versions as of the time that it returned is `None` in the end
(tests/cbp/model/test_snapshot.py); whoever reads the versions of a whole time sees every
record up to it and none after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Snapshot", "TableVersion", "earlier"]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of one table.

    Attributes:
        epoch: The last one of its stage that it shows; -1: none.
        stamp_ms: Its in-commit timestamp, milliseconds since 1970.
        superseded_ms: That of the version behind it; `None`: it is the newest.
    """

    version: int
    epoch: int
    stamp_ms: int
    superseded_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Versions that belong together.

    Attributes:
        at_ms: Time of the last publication in it, milliseconds since 1970.
        epochs: Stage that leads to the last epoch that its tables show; -1: none.
        tables: Folder of each table, relative to the dataflow's, to its version.
        newest: Whether nothing newer was whole when it was taken.
        readable_until_ms: Until when collection leaves its files alone; see the limit
            on versions in `cbp.engine.collect.Retention`.
    """

    dataflow: str
    folder: str
    at_ms: int
    epochs: dict[str, int]
    tables: dict[str, TableVersion]
    newest: bool
    readable_until_ms: int


def earlier(at_ms: int, lacking_ms: Iterable[int]) -> int | None:
    """Return the time to go back to; `None` when the cut at `at_ms` is whole.

    Args:
        at_ms: Time of the newest version in it.
        lacking_ms: For each stage, when the first record was put that some table of it does
            not show; stages whose tables show all their records are left out.
    """
    oldest = min(lacking_ms, default=at_ms + 1)
    return None if oldest > at_ms else oldest - 1
