"""Signed changes: the changes of a view's records in one epoch, as a flow.

    change_type    sign
    insert          +1   a key that had no record
    update_before   -1   the record that a key had
    update_after    +1   the record that it has instead; follows its update_before
    delete          -1   a key that no longer has a record

In one epoch a key has at most one insert, one delete, or one pair of updates, and a record that did
not change has none. So the sum of the signs of all changes of a record is 1 if the view has the
record, and 0 otherwise (`consolidated`). Delta's change data feed has these types too, but calls
those of an update `update_preimage` and `update_postimage` (`cbp/engine/commit/change_feed.py`).

A view without a key is a bag. Its changes are only inserts and deletes: one for each record that
was added or removed. The sum of the signs is then the number of times that the view has the record.

If a later version made a view of an output, the output's older records have neither type nor sign.
A reader of new records (`AFTER`) reads them; a reader of signed records never does
(`cbp.model.version.flow_life`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from cbp.model.flow.schema import DataType, Field, Schema

ChangesRead = Literal["", "signed", "after"]
"""How an input reads a view's changes: all of them, or the new records only; `""`: no changes."""

CHANGE_TYPE, SIGN = "change_type", "sign"
CHANGE_COLUMNS = (CHANGE_TYPE, SIGN)
"""Columns of changes after those of the view."""

SIGN_TYPES = ("INT", "BIGINT", "SMALLINT", "TINYINT")
"""Types that a column of signs can have."""

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "insert", "update_before", "update_after", "delete"

SIGNS: Mapping[str, int] = MappingProxyType(
    {INSERT: 1, UPDATE_BEFORE: -1, UPDATE_AFTER: 1, DELETE: -1}
)
"""The sign of each type of change."""

AFTER = (INSERT, UPDATE_AFTER)
"""Types whose record is in the view after the epoch; a record without a type is in it, too."""


def has_sign(schema: Schema) -> bool:
    """Return whether a schema has an integer column `sign`."""
    return SIGN in schema and schema[SIGN].type.kind in SIGN_TYPES


@lru_cache(maxsize=1024)
def changes_schema(schema: Schema) -> Schema:
    """Return the schema of the changes of a view that has this schema."""
    more = Field(CHANGE_TYPE, DataType("STRING")), Field(SIGN, DataType("INT"))
    return Schema((*schema.fields, *more))


def consolidated(changes: Iterable[tuple[Hashable, int]]) -> Counter[Hashable]:
    """Return the sum of the signs of each record, without zero sums; records can have any form."""
    sums: Counter[Hashable] = Counter()
    for record, sign in changes:
        sums[record] += sign
    return Counter({record: total for record, total in sums.items() if total})


def split_change(row: Sequence[Any]) -> tuple[Sequence[Any], int]:
    """Return the record and the sign of a view's change."""
    return row[: -len(CHANGE_COLUMNS)], row[-1]


def change_splitter(names: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Sequence[Any], int]]:
    """Return a function that splits a change with these columns into record and sign.

    A record whose sign is null is not a change: it keeps all columns, and counts once.
    """
    if tuple(names[-len(CHANGE_COLUMNS) :]) == CHANGE_COLUMNS:
        return split_change
    kept = [at for at, name in enumerate(names) if name not in CHANGE_COLUMNS]
    sign = names.index(SIGN)

    def split(row: Sequence[Any]) -> tuple[Sequence[Any], int]:
        if row[sign] is None:
            return row, 1
        return tuple(row[at] for at in kept), row[sign]

    return split
