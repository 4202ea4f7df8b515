"""Dataclasses as plain JSON values, and back, by the types of their fields. Pure.

A field that a later release added has the metadata `ADDED`, or `LEFT_OUT` if it is written only
where it differs from its default, so that records without it keep their form. Only such a field may
be missing in a record; it then has its default. An unknown key is ignored, except where a record
without it would mean something else (`refuses_unknown`).

Invariants (tests/cbp/model/test_json_fields.py): `type(x).from_json(x.to_json()) == x`; a record
that lacks any other field is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from cbp.errors import format_unknown

ADDED: Mapping[str, str] = {"cbp.json": "added"}
"""Metadata of a field that earlier releases did not write."""

LEFT_OUT: Mapping[str, str] = {"cbp.json": "left out"}
"""Metadata of a field that earlier releases did not write, and that is written only if it differs
from its default."""

_Convert = Callable[[Any], Any]

_ALWAYS_WRITTEN = object()


class JsonFields:
    """A dataclass that is a JSON object of its fields.

    The types of fields are plain JSON, mappings with text keys, tuples, optional values, and
    classes with `to_json` and `from_json`. `record` is its name in messages, and the number of its
    format.
    """

    __slots__ = ()
    record: ClassVar[tuple[str, int] | None] = None
    refuses_unknown: ClassVar[bool] = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        written = {
            one.name: one.write(value)
            for one in _fields(type(self))
            if (value := getattr(self, one.name)) != one.unwritten
        }
        return {"format": self.record[1], **written} if self.record else written

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the output of `to_json`.

        Raises:
            InvariantError: The format of the record is unknown to this release.
            KeyError: A field is missing that every release has written.
            TypeError: A key is unknown, and the class refuses that.
        """
        if cls.record and value.get("format") != cls.record[1]:
            raise format_unknown(cls.record[0], value.get("format"), cls.record[1])
        fields = _fields(cls)
        if cls.refuses_unknown and (unknown := value.keys() - {one.name for one in fields}):
            message = f"{cls.__name__} has no field {min(unknown)!r}"
            raise TypeError(message)
        return cls(
            **{
                one.name: one.read(value[one.name])
                for one in fields
                if one.name in value or not one.may_lack
            }
        )


class JsonArray:
    """A dataclass that is a JSON array of its fields, which are plain JSON."""

    __slots__ = ()

    def to_json(self) -> list[Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return [getattr(self, one.name) for one in _fields(type(self))]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Self:
        """Read the output of `to_json`."""
        return cls(*value)


class _Field(NamedTuple):
    """How a field is written and read, whether it may be missing, and when it is not written."""

    name: str
    write: _Convert
    read: _Convert
    may_lack: bool
    unwritten: object


def _fields_of(kind: Any) -> list[_Field]:
    hints = get_type_hints(kind)
    return [
        _Field(
            one.name,
            *_conversions(hints[one.name]),
            may_lack=one.metadata in (ADDED, LEFT_OUT),
            unwritten=default_of(one) if one.metadata == LEFT_OUT else _ALWAYS_WRITTEN,
        )
        for one in dataclasses.fields(kind)
    ]


_fields: Callable[[Any], list[_Field]]
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
