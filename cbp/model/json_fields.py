"""Dataclasses as plain JSON values, and back, by the types of their fields. Pure.

A field with the metadata `LEFT_OUT` is written only if it differs from its default: a later release
added it, and records without it keep their form. A key that is missing is read as the default of
its field, and one that is unknown is ignored.

Invariant: `type(x).from_json(x.to_json()) == x` (tests/cbp/model/run/test_intention.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from cbp.errors import format_unknown

LEFT_OUT: Mapping[str, bool] = {"cbp.left_out": True}
"""Metadata of a field that is not written while it has its default."""

_Convert = Callable[[Any], Any]


class JsonFields:
    """A dataclass that is a JSON object of its fields.

    The types of fields are plain JSON, mappings with text keys, tuples, optional values, and
    classes with `to_json` and `from_json`. `record` is what messages call it, and its format.
    """

    __slots__ = ()
    record: ClassVar[tuple[str, int] | None] = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        written = {
            field.name: write(value)
            for field, write, _ in _fields(type(self))
            if (value := getattr(self, field.name)) != default_of(field)
            or field.metadata != LEFT_OUT
        }
        return {"format": self.record[1], **written} if self.record else written

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the output of `to_json`.

        Raises:
            InvariantError: The format of the record is unknown to this release.
            KeyError: A field without a default is missing.
        """
        if cls.record and value.get("format") != cls.record[1]:
            raise format_unknown(cls.record[0], value.get("format"), cls.record[1])
        return cls(
            **{
                field.name: read(value[field.name])
                for field, _, read in _fields(cls)
                if field.name in value or default_of(field) is dataclasses.MISSING
            }
        )


class JsonArray:
    """A dataclass that is a JSON array of its fields, which are plain JSON."""

    __slots__ = ()

    def to_json(self) -> list[Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return [getattr(self, field.name) for field, *_ in _fields(type(self))]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Self:
        """Read the output of `to_json`."""
        return cls(*value)


def _fields_of(kind: Any) -> list[tuple[dataclasses.Field[Any], _Convert, _Convert]]:
    hints = get_type_hints(kind)
    return [(one, *_conversions(hints[one.name])) for one in dataclasses.fields(kind)]


_fields: Callable[[Any], list[tuple[dataclasses.Field[Any], _Convert, _Convert]]]
_fields = cache(_fields_of)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; `MISSING` if it has none."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _conversions(hint: Any) -> tuple[_Convert, _Convert]:
    """Return how values of a type are written, and how they are read."""
    if hasattr(hint, "from_json"):
        return lambda one: one.to_json(), hint.from_json
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType and inner[1:] == (type(None),):
        write, read = _conversions(inner[0])
        return _unless_none(write), _unless_none(read)
    if origin is Mapping:
        write, read = _conversions(inner[1])
        return _by_key(write), _by_key(read)
    if origin is tuple:
        write, read = _conversions(inner[0])
        return lambda many: [*map(write, many)], lambda many: (*map(read, many),)
    return _same, _same


def _unless_none(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _by_key(convert: _Convert) -> _Convert:
    if convert is _same:
        return dict
    return lambda values: {key: convert(one) for key, one in values.items()}


def _same(value: Any) -> Any:
    return value
