"""Which type the values of a column suggest, whether it can be null, and what is doubtful; pure.

Nothing is decided for the author: each guess that could be another one is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from cbp.model.dataflow.source_options import ValueRules
from cbp.model.flow.schema import DataType, Schema
from controller.values import excerpt, from_text

__all__ = ["Column", "column_name_problem", "of_json", "of_texts"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_PADDED = re.compile(r"[+-]?0\d")
_DAY_ELSEWHERE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
_ZONELESS = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
_DEPTH_MAX = 8
_FIELDS_MAX = 200
_LOCAL = ValueRules(zone=UTC)
_TEXT_KINDS = ("BIGINT", "DECIMAL(38,0)", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Column:
    """One column as a sample suggests it.

    Attributes:
        type: As a schema spells it.
        nullable: Whether a record of the sample lacks it.
        zoneless: Whether it has times without a zone.
        doubts: What the author should look at.
    """

    name: str
    type: str
    nullable: bool
    zoneless: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        """The column in a schema."""
        return f"{self.name} {self.type}{'' if self.nullable else ' NOT NULL'}"


def column_name_problem(name: str) -> str:
    """Return why a schema cannot have a column of this name; `""` if it can."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"{excerpt(name)} can be no column (letters, digits and '_'): rename it in the file, or "
        "leave it out with options: {unknown: ignore}"
    )


def of_texts(name: str, cells: Sequence[str | None]) -> Column:
    """Return the column of a file whose cells are text.

    Args:
        name: Its name.
        cells: One for each record; `None` where it is null.
    """
    texts = [cell for cell in cells if cell is not None]
    nullable = len(texts) < len(cells)
    if not texts:
        return Column(name, "STRING", True, doubts=("it is null in the whole sample",))
    kind, doubts = "STRING", list[str]()
    if any(map(_PADDED.match, texts)):
        doubts.append("it has numbers that begin with 0, so it stays text")
    elif kinds := [kind for kind in _TEXT_KINDS if _holds(kind, texts)]:
        kind = kinds[0]
    if kind == "BIGINT" and set(texts) <= {"0", "1"}:
        doubts.append("it has 0 and 1 only; a BOOLEAN is written true and false")
    if kind == "STRING" and all(map(_DAY_ELSEWHERE.fullmatch, texts)):
        doubts.append("it looks like days; a DATE is written YYYY-MM-DD")
    zoneless = kind == "TIMESTAMP" and any(map(_ZONELESS.fullmatch, texts))
    return Column(name, kind, nullable, zoneless, tuple(doubts))


def _holds(kind: str, texts: Iterable[str]) -> bool:
    """Return whether every text is a value of the type."""
    convert = from_text(_type(kind), _LOCAL)
    try:
        for text in texts:
            convert(text)
    except ValueError:
        return False
    return True


def _type(kind: str) -> DataType:
    return Schema.parse(f"c {kind}")["c"].type


def of_json(name: str, values: Sequence[Any]) -> Column:
    """Return the column of JSON values; `None` where a record lacks it, or has null."""
    there = [value for value in values if value is not None]
    doubts, zoneless = list[str](), list[bool]()
    kind = _json_type(there, doubts, zoneless, 0)
    return Column(name, kind, len(there) < len(values), any(zoneless), tuple(doubts))


def _json_type(values: Sequence[Any], doubts: list[str], zoneless: list[bool], depth: int) -> str:
    if not values:
        doubts.append("it is null or empty in the whole sample, so its type is not known")
        return "STRING"
    kinds = set(map(type, values))
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return (
            "BIGINT" if all(-(1 << 63) <= value < 1 << 63 for value in values) else "DECIMAL(38,0)"
        )
    if kinds <= {int, float}:
        if int in kinds:
            doubts.append("it has whole numbers too; they become DOUBLE")
        return "DOUBLE"
    if kinds == {str}:
        return _json_text(values, zoneless)
    if depth < _DEPTH_MAX and kinds == {list}:
        items = [item for value in values for item in value if item is not None]
        return f"ARRAY<{_json_type(items, doubts, zoneless, depth + 1)}>"
    if depth < _DEPTH_MAX and kinds == {dict}:
        return _struct(values, doubts, zoneless, depth)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    doubts.append(f"its values are of several kinds ({names}): no type holds them all")
    return "STRING"


def _json_text(values: Sequence[str], zoneless: list[bool]) -> str:
    for kind in ("DATE", "TIMESTAMP"):
        if _holds(kind, values):
            zoneless.append(kind == "TIMESTAMP" and any(map(_ZONELESS.fullmatch, values)))
            return kind
    return "STRING"


def _struct(
    values: Sequence[Mapping[str, Any]], doubts: list[str], zoneless: list[bool], depth: int
) -> str:
    names = list(dict.fromkeys(name for value in values for name in value))
    bad = next((name for name in names if not _NAME.fullmatch(name)), None)
    if bad is not None or len(names) > _FIELDS_MAX or not names:
        items = [item for value in values for item in value.values() if item is not None]
        doubts.append("its keys are no names of fields, so it is taken for a map")
        return f"MAP<STRING, {_json_type(items, doubts, zoneless, depth + 1)}>"
    fields = []
    for name in names:
        inner = [value[name] for value in values if value.get(name) is not None]
        fields.append(f"{name}: {_json_type(inner, doubts, zoneless, depth + 1)}")
    return f"STRUCT<{', '.join(fields)}>"
