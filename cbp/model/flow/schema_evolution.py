"""Schema evolution: the changes of columns after which earlier records stay readable. Pure.

    before  "url STRING, n INT"
    after   "url STRING, n BIGINT, seen DATE"     widened n, added seen: null for old records

A column can be *added* (old records have null), *widened* to a type that holds every value of the
old type exactly, and *loosened* from NOT NULL. Any other change would lose values or change the
meaning of old records. It is refused, column by column.

Absent on purpose: renamed columns; defaults; changes inside arrays, maps and structs; and Delta's
`typeWidening` feature, which not every reader has. Files are rewritten instead
(`cbp.engine.outputs.table_migration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cbp.model.flow.schema import DataType, Schema

ColumnKind = Literal["added", "widened", "loosened", "removed", "narrowed", "tightened"]

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_TO_DOUBLE = frozenset({"TINYINT", "SMALLINT", "INT", "FLOAT"})


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """The change of one column.

    Attributes:
        kind: Kind of change. `narrowed` is any new type that cannot hold every old value.
        before, after: Type as text, with NOT NULL; `""` if the column does not exist.
    """

    column: str
    kind: ColumnKind
    before: str
    after: str

    @property
    def allowed(self) -> bool:
        """Whether old records keep their meaning; not if they would lack a NOT NULL value."""
        empty = self.kind == "added" and self.after.endswith("NOT NULL")
        return self.kind in ("added", "widened", "loosened") and not empty

    def __str__(self) -> str:
        if self.kind == "added":
            null = " (old records would have no value)" if not self.allowed else ""
            return f"+ {self.column} {self.after}{null}"
        if self.kind == "removed":
            return f"- {self.column} {self.before}"
        return f"{self.column} {self.before} -> {self.after} ({self.kind})"


def compare(before: Schema, after: Schema) -> tuple[ColumnChange, ...]:
    """Return the changed columns; columns are matched by name, in any order."""
    changes = [
        ColumnChange(f.name, "removed", _shown(before, f.name), "")
        for f in before.fields
        if f.name not in after
    ]
    for field in after.fields:
        now = _shown(after, field.name)
        if field.name not in before:
            changes.append(ColumnChange(field.name, "added", "", now))
            continue
        was, old = _shown(before, field.name), before[field.name]
        if old.type != field.type:
            kind: ColumnKind = "widened" if is_widened(old.type, field.type) else "narrowed"
            changes.append(ColumnChange(field.name, kind, was, now))
        if old.nullable != field.nullable:
            kind = "loosened" if field.nullable else "tightened"
            changes.append(ColumnChange(field.name, kind, was, now))
    return tuple(changes)


def refused(changes: Sequence[ColumnChange]) -> tuple[ColumnChange, ...]:
    """Return the changes that are not allowed, given records that were written before."""
    return tuple(change for change in changes if not change.allowed)


def is_widened(before: DataType, after: DataType) -> bool:
    """Return whether `after` is another type that holds every value of `before` exactly."""
    if before.kind in _INTEGERS and after.kind in _INTEGERS:
        return _INTEGERS.index(after.kind) > _INTEGERS.index(before.kind)
    if before.kind == after.kind == "DECIMAL":
        whole = (after.precision - after.scale) - (before.precision - before.scale)
        return whole >= 0 and after.scale >= before.scale and after != before
    return after.kind == "DOUBLE" and before.kind in _TO_DOUBLE


def _shown(schema: Schema, column: str) -> str:
    field = schema[column]
    return f"{field.type}{'' if field.nullable else ' NOT NULL'}"
