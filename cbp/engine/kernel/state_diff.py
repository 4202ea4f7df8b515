"""State diff of a window: which records of the called groups are deleted, which are new.

Per group, as multisets: a record that was emitted again stays and costs nothing; one
that was not is deleted; a record that was not there before is new. In most windows each group
has at most one record before and one after: these are compared as whole lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import ne

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.group_batch import Source
from cbp.model.dataflow.equality import identity

_NESTED = (list, tuple, dict)


@dataclass(slots=True)
class Settled:
    """The diff of one state in one window; the groups of new records ascend."""

    died: Int64s
    groups: Int64s
    born: list[Row]


def settle(source: Source, emitted: list[Row], ends: list[int]) -> Settled:
    """Compare state records with those emitted; group g emitted `emitted[ends[g - 1]:ends[g]]`."""
    sizes = source.sizes
    if len(emitted) <= len(ends) and np.all(sizes <= 1):
        stops = np.array([0, *ends], np.int64)
        counts = stops[1:] - stops[:-1]
        if np.all(counts <= 1):
            return _settle_single(source, emitted, sizes, counts)
    return _settle_many(source, emitted, ends)


def _settle_single(source: Source, emitted: list[Row], sizes: Int64s, counts: Int64s) -> Settled:
    groups = np.flatnonzero(counts)
    had = sizes[groups] == 1
    olds: Iterable[Row | None] = source.rows
    if len(source.rows) != len(emitted) or not had.all():
        places = np.where(had, source.starts[groups], len(source.rows))
        olds = map([*source.rows, None].__getitem__, places.tolist())
    changed = np.fromiter(map(ne, olds, emitted), np.bool_, len(emitted))
    dies = sizes == 1
    dies[groups[~changed]] = False
    if changed.all():
        return Settled(source.starts[dies], groups, emitted)
    return Settled(source.starts[dies], groups[changed], list(compress(emitted, changed)))


def _settle_many(source: Source, emitted: list[Row], ends: list[int]) -> Settled:
    died: list[int] = []
    groups: list[int] = []
    born: list[Row] = []
    start = 0
    starts = source.starts.tolist()
    for group, (end, olds) in enumerate(zip(ends, source.groups(), strict=True)):
        news = emitted[start:end]
        start = end
        olds = list(olds)
        if olds == news:
            continue
        gone, new = _difference(olds, news)
        died.extend(starts[group] + at for at in gone)
        groups.extend([group] * len(new))
        born.extend(new)
    return Settled(np.array(died, np.int64), np.array(groups, np.int64), born)


def _difference(olds: list[Row], news: list[Row]) -> tuple[list[int], list[Row]]:
    """Return positions in `olds` not emitted again, and the new ones of `news`, as multisets."""
    olds_left, news_left = _unlike(olds, news)
    if not olds_left or not news_left or _one_changed(olds, olds_left, news, news_left):
        return list(olds_left), [news[at] for at in news_left]
    before, after = _names([olds[at] for at in olds_left], [news[at] for at in news_left])
    wanted = Counter(after)
    died = []
    for at, name in zip(olds_left, before, strict=True):
        if wanted[name] > 0:
            wanted[name] -= 1
        else:
            died.append(at)
    born = []
    for at, name in zip(news_left, after, strict=True):
        if wanted[name] > 0:
            wanted[name] -= 1
            born.append(news[at])
    return died, born


def _one_changed(
    olds: list[Row], olds_left: Sequence[int], news: list[Row], news_left: Sequence[int]
) -> bool:
    """Return whether one record is left on each side, and they differ in a value not nested."""
    if len(olds_left) != 1 or len(news_left) != 1:
        return False
    pairs = zip(olds[olds_left[0]], news[news_left[0]], strict=True)
    return any(
        old != new and (old == old or new == new) and not isinstance(old, _NESTED)
        for old, new in pairs
    )


def _unlike(olds: list[Row], news: list[Row]) -> tuple[Sequence[int], Sequence[int]]:
    """Return positions in both lists, without pairs of equal records that are easily found.

    Mostly an author emits what was read, in its order. Then one comparison per record finds those
    that stay: at the same position, or from both ends if records were added or removed.
    """
    differs = list(map(ne, olds, news))
    if len(olds) == len(news):
        places = [at for at, unlike in enumerate(differs) if unlike]
        return places, places
    start = differs.index(True) if True in differs else len(differs)
    backwards = map(ne, reversed(olds), reversed(news))
    same = next((at for at, unlike in enumerate(backwards) if unlike), len(differs))
    same = min(same, len(differs) - start)
    return range(start, len(olds) - same), range(start, len(news) - same)


def _names(olds: list[Row], news: list[Row]) -> tuple[list[Hashable], list[Hashable]]:
    left, right = list(map(_outline, olds)), list(map(_outline, news))
    both = set(left) & set(right)
    before, after = (
        [identity(row) if outline in both else outline for row, outline in pairs]
        for pairs in (zip(olds, left, strict=True), zip(news, right, strict=True))
    )
    return before, after


def _outline(row: Row) -> Hashable:
    """Return a value that is equal for equal records; nested values only give their length."""
    return tuple(
        len(value) if isinstance(value, _NESTED) else "NaN" if value != value else value
        for value in row
    )
