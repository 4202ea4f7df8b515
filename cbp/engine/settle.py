"""What becomes of a state's records once their groups were called.

Per group, as multisets: a record that was emitted again stays and costs nothing; one
that was not dies; a record that was not there before is new. Most windows have at most
one record per group before, and one after: these are compared as whole lists.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cbp.engine.rows import Row, identity
from cbp.engine.window import Source

__all__ = ["Settled", "settle"]


@dataclass(slots=True)
class Settled:
    """The outcome for one state in one window.

    Attributes:
        died: Positions in the source's rows.
        groups: Group of each new record; ascending.
        born: The new records.
    """

    died: npt.NDArray[np.int64]
    groups: list[int] = field(default_factory=list)
    born: list[Row] = field(default_factory=list)


def settle(source: Source, emitted: list[Row], ends: list[int]) -> Settled:
    """Compare what a window's groups had with what they emitted.

    Args:
        ends: Group g emitted `emitted[ends[g - 1]:ends[g]]`.
    """
    sizes = np.array(source.stops) - np.array(source.starts)
    if len(emitted) == len(ends) == ends[-1] and np.all(np.diff(ends) == 1) and np.all(sizes <= 1):
        return _settle_single(source, emitted, sizes)
    return _settle_many(source, emitted, ends)


def _settle_single(source: Source, emitted: list[Row], sizes: npt.NDArray[np.int64]) -> Settled:
    """Every group had one record or none, and emitted exactly one."""
    if len(source.rows) == len(emitted):
        olds: list[Row | None] = list(source.rows)
    else:
        rows = iter(source.rows)
        olds = [next(rows) if size else None for size in sizes.tolist()]
    groups = [at for at, (old, new) in enumerate(zip(olds, emitted, strict=True)) if old != new]
    changed = np.array(groups, np.int64)
    died = np.array(source.starts, np.int64)[changed][sizes[changed] == 1]
    return Settled(died, groups, [emitted[at] for at in groups])


def _settle_many(source: Source, emitted: list[Row], ends: list[int]) -> Settled:
    died: list[int] = []
    groups: list[int] = []
    born: list[Row] = []
    start = 0
    for group, end in enumerate(ends):
        olds, news = source.of(group), emitted[start:end]
        start = end
        if olds == news:
            continue
        gone, new = _difference(olds, news)
        died.extend(source.starts[group] + at for at in gone)
        groups.extend([group] * len(new))
        born.extend(new)
    return Settled(np.array(died, np.int64), groups, born)


def _difference(olds: list[Row], news: list[Row]) -> tuple[list[int], list[Row]]:
    """Return which of `olds` are not emitted again, and which of `news` are new; as multisets."""
    if not olds or not news:
        return list(range(len(olds))), news
    wanted = Counter(map(identity, news))
    died = []
    for at, old in enumerate(olds):
        same = identity(old)
        if wanted[same] > 0:
            wanted[same] -= 1
        else:
            died.append(at)
    born = []
    for row in news:
        same = identity(row)
        if wanted[same] > 0:
            wanted[same] -= 1
            born.append(row)
    return died, born
