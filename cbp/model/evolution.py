"""How a schema may change while records written before stay readable. Pure.

    before  "url STRING, n INT"
    after   "url STRING, n BIGINT, seen DATE"     widened n, added seen: null for old records

A column may be *added* (old records have null), *widened* to a type that holds every value
of the old one exactly, and *loosened* from NOT NULL. Anything else would lose values, or
make old records mean something else, and is told column by column.

Absent on purpose: renamed columns, defaults, changes inside arrays, maps and structs; types
that only Delta's `typeWidening` feature could show, since not every reader has it: files are
rewritten instead (`cbp.engine.rewrite`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cbp.model.schema import DataType, Schema

__all__ = ["ColumnChange", "compare", "is_widened", "refused"]

ColumnKind = Literal["added", "widened", "loosened", "removed", "narrowed", "tightened"]

_ALLOWED = frozenset({"added", "widened", "loosened"})
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_TO_DOUBLE = frozenset({"TINYINT", "SMALLINT", "INT", "FLOAT"})


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One column that is not what it was.

    Attributes:
        kind: What happened to it; `narrowed` is any type that cannot hold every old value.
        before, after: Type as text, with NOT NULL; `""` where the column is not there.
    """

    column: str
    kind: ColumnKind
    before: str
    after: str

    @property
    def allowed(self) -> bool:
        """Whether records written before stay what they were; a new NOT NULL has no value."""
        return self.kind in _ALLOWED and not (
            self.kind == "added" and self.after.endswith("NOT NULL")
        )

    def __str__(self) -> str:
        if self.kind == "added":
            null = " (old records would have no value)" if not self.allowed else ""
            return f"+ {self.column} {self.after}{null}"
        if self.kind == "removed":
            return f"- {self.column} {self.before}"
        return f"{self.column} {self.before} -> {self.after} ({self.kind})"


def compare(before: Schema, after: Schema) -> tuple[ColumnChange, ...]:
    """Return what changed, column by column; columns are matched by name, in any order."""
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
    """Return the changes that records written before do not survive."""
    return tuple(change for change in changes if not change.allowed)


def is_widened(before: DataType, after: DataType) -> bool:
    """Tell whether a type holds every value of another one exactly, and is not the same."""
    if before.kind in _INTEGERS and after.kind in _INTEGERS:
        return _INTEGERS.index(after.kind) > _INTEGERS.index(before.kind)
    if before.kind == after.kind == "DECIMAL":
        whole = (after.precision - after.scale) - (before.precision - before.scale)
        return whole >= 0 and after.scale >= before.scale and after != before
    return after.kind == "DOUBLE" and before.kind in _TO_DOUBLE


def _shown(schema: Schema, column: str) -> str:
    field = schema[column]
    return f"{field.type}{'' if field.nullable else ' NOT NULL'}"
