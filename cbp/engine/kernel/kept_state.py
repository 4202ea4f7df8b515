"""What the groups of a window put into a kept state and deleted from it, and what that changes.

Only the records that are put or deleted are looked up (`cbp.engine.kernel.kept_groups`). A record
that is put unchanged costs no write; one that is put with other values replaces the record of its
key. So the cost of a call follows the records that it touches, not the size of its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from operator import ne
from typing import Any, cast

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.kept_records import Deletion, KeptShape, changes_of
from cbp.engine.columnar.row_codec import Row
from cbp.engine.kernel.kept_groups import KeptSource
from cbp.engine.kernel.named_records import Place
from cbp.engine.state.bucket_state import RecordPositions


@dataclass(slots=True)
class KeptChanges:
    """What the groups of a window changed in one kept state.

    Attributes:
        died: Records that were deleted or replaced.
        died_groups: Group of each of them; ascending.
        groups: Group of each new record; ascending.
        born: The new records, in order within each group.
    """

    died: RecordPositions
    died_groups: Int64s
    groups: Int64s
    born: list[Row]


def settle_kept(
    source: KeptSource, operations: Sequence[Row | Deletion], ends: Sequence[int]
) -> KeptChanges:
    """Return the changes made by puts and deletions; a record put unchanged is none.

    Args:
        source: The state of the window.
        operations: The puts and deletions of the calls, group after group.
        ends: Group g put and deleted `operations[ends[g - 1]:ends[g]]`.

    Raises:
        TypeError: A record does not fit the state.
        ValueError: A record has another key than its group.
    """
    found = _Found()
    shape, kinds = source.shape, list(map(type, operations))
    deletes = Deletion in kinds
    puts = [one for one in operations if type(one) is not Deletion] if deletes else operations
    exact = shape.are_exact(cast("Sequence[Row]", puts))
    for number, (start, end) in enumerate(pairwise([0, *ends])):
        if start == end:
            continue
        mine = operations[start:end]
        mixed = deletes and Deletion in kinds[start:end]
        changes = _changes(shape, mine, exact=exact, mixed=mixed)
        _require_key(source, source.keys[number], mine, mixed=mixed)
        seconds, group = shape.in_order(changes), source.group(number)
        rows = list(map(changes.__getitem__, seconds))
        found.numbers.append(number)
        found.sizes.append(len(rows))
        found.after += rows
        found.places += map(group.locate, seconds)
        if mixed:
            pairs = zip(seconds, rows, strict=True)
            found.before += [_ABSENT if row is None else group.get(second) for second, row in pairs]
        else:
            found.before += map(group.get, seconds)
    return found.changes(source)


_ABSENT: Any = object()
"""In place of a record that is deleted, and not read."""


@dataclass(slots=True)
class _Found:
    """The puts and deletions of all groups of a window, beside their present records.

    Attributes:
        numbers, sizes: Groups, and how many records each puts and deletes.
        after: The records that are put; `None` for one that is deleted.
        places: Where the live records with the same keys lie.
        before: These records, `None` where there is none; `_ABSENT` where they are not asked for.
    """

    numbers: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    after: list[Row | None] = field(default_factory=list)
    places: list[Sequence[Place]] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)

    def changes(self, source: KeptSource) -> KeptChanges:
        """Return deleted and new records; a record put unchanged is neither."""
        same = source.are_same(self.before, self.after)
        groups = np.repeat(np.array(self.numbers, np.int64), np.array(self.sizes, np.int64))
        differs = ~np.array(same, np.bool_)
        born = np.flatnonzero(differs & np.array([row is not None for row in self.after], np.bool_))
        gone = np.flatnonzero(differs & np.array(list(map(len, self.places)), np.bool_))
        lie = list(map(self.places.__getitem__, gone.tolist()))
        died_groups = np.repeat(groups[gone], np.array(list(map(len, lie)), np.int64))
        columns = np.array(list(chain.from_iterable(lie)), np.int64).reshape(-1, 2).T
        positions = RecordPositions(source.hashes[died_groups], columns[0], columns[1])
        rows = cast("list[Row]", list(map(self.after.__getitem__, born.tolist())))
        return KeptChanges(positions, died_groups, groups[born], rows)


def _changes(
    shape: KeptShape, operations: Sequence[Row | Deletion], *, exact: bool, mixed: bool
) -> Mapping[Row, Row | None]:
    """Return the result of `changes_of`; records that need no check are not checked singly.

    Args:
        exact: Whether no record needs a check.
        mixed: Whether there are deletions among the operations.
    """
    if exact and not mixed:
        rows = cast("Sequence[Row]", operations)
        changes = dict(zip(shape.seconds_of(rows), rows, strict=True))
        if len(changes) == len(rows):  # each is compared or encoded, which checks its values
            return changes
    elif exact:
        pairs: list[tuple[Row, Row | None]] = [
            (one.second, None) if isinstance(one, Deletion) else (shape.second_of(one), one)
            for one in operations
        ]
        if len(mixture := dict(pairs)) == len(pairs):
            return mixture
    return changes_of(shape, operations)


def _require_key(
    source: KeptSource, key: Row, operations: Sequence[Row | Deletion], *, mixed: bool
) -> None:
    puts = [one for one in operations if not isinstance(one, Deletion)] if mixed else operations
    if any(map(ne, source.keys_of(cast("Sequence[Row]", puts)), repeat(key))):
        message = f"state {source.name!r} was emitted for a key other than its group's"
        raise ValueError(message)
