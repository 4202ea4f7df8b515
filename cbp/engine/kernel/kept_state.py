"""What the groups of a window put into a kept state and deleted from it, and what that changes.

Only the records that are put or deleted are looked up (`cbp.engine.kernel.kept_groups`). A record
that is put unchanged costs no write; one that is put with other values replaces the record of its
key. So the cost of a call follows the records that it touches, not the size of its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from operator import ne
from typing import cast

import numpy as np
import numpy.typing as npt

from cbp.engine.columnar.kept_records import Deletion, changes_of
from cbp.engine.columnar.row_codec import Row
from cbp.engine.kernel.kept_groups import KeptSource
from cbp.engine.state.bucket_state import RecordPositions

Int64s = npt.NDArray[np.int64]


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
    """Return what puts and deletions change; a record that is put unchanged is left alone.

    Args:
        source: The state of the window.
        operations: What the calls put and deleted, group after group.
        ends: Group g put and deleted `operations[ends[g - 1]:ends[g]]`.

    Raises:
        TypeError: A record does not fit the state.
        ValueError: A record is of another key than its group's.
    """
    died: list[tuple[int, int, int, int]] = []
    groups: list[int] = []
    born: list[Row] = []
    exact = source.shape.are_exact(operations)
    for number, (start, end) in enumerate(pairwise([0, *ends])):
        if start == end:
            continue
        mine = operations[start:end]
        changes = _changes(source, mine, exact=exact)
        _require_key(source, source.keys[number], mine, exact=exact)
        group, hash_ = source.group(number), int(source.hashes[number])
        new: dict[Row, Row] = {}
        for second, row in changes.items():
            before = group.locate(second)
            if before:
                if row is not None and source.is_same(group.record_at(before[0]), row):
                    continue
                for at, position in before:
                    died.append((hash_, at, position, number))
            if row is not None:
                new[second] = row
        groups.extend([number] * len(new))
        born.extend(source.shape.in_order(new))
    columns = np.array(died, np.int64).reshape(-1, 4).T
    positions = RecordPositions(columns[0], columns[1], columns[2])
    return KeptChanges(positions, columns[3], np.array(groups, np.int64), born)


def _changes(
    source: KeptSource, operations: Sequence[Row | Deletion], *, exact: bool
) -> Mapping[Row, Row | None]:
    """Return what `changes_of` does; records that need no check are not looked at one by one."""
    shape = source.shape
    if exact:
        rows = cast("Sequence[Row]", operations)
        changes = dict(zip(shape.seconds_of(rows), rows, strict=True))
        if len(changes) == len(rows):  # each is compared or encoded, which checks its values
            return changes
    return changes_of(shape, operations)


def _require_key(
    source: KeptSource, key: Row, operations: Sequence[Row | Deletion], *, exact: bool
) -> None:
    puts = operations if exact else [one for one in operations if not isinstance(one, Deletion)]
    if any(map(ne, map(source.key_of, cast("Sequence[Row]", puts)), repeat(key))):
        message = f"state {source.name!r} was emitted for a key other than its group's"
        raise ValueError(message)
