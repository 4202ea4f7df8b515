"""Some versions of a Delta table that become one increment, as the small file that is claimed.

    {"table": "39716b38-...", "first": 5, "last": 12, "partitions": ["day"]}
    {"table": "39716b38-...", "snapshot": 4, "partitions": []}

It says what is to be read and holds no records, so it is claimed, known again and moved like any
dropped file. The folder of the table is the source's, never the file's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["BYTES_MAX", "ChangeGroup", "is_group_name", "last_version"]

BYTES_MAX = 1 << 16
_NAME = re.compile(r"(?:versions-\d{20}|snapshot)-(\d{20})\.json", re.ASCII)


def is_group_name(name: str) -> bool:
    """Return whether a file may be a `ChangeGroup`, by its name."""
    return _NAME.fullmatch(name) is not None


def last_version(name: str) -> int:
    """Return the last version of a group, by the name of its file."""
    match = _NAME.fullmatch(name)
    assert match, name
    return int(match[1])


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """What is read for one increment.

    Attributes:
        table: Id of the table.
        first, last: The versions whose changes are read; both ends included.
        partitions: The table's partition columns at these versions.
        snapshot: Whether it is all rows of version `last` instead, each as an insert.
    """

    table: str
    first: int
    last: int
    partitions: tuple[str, ...] = ()
    snapshot: bool = False

    @property
    def name(self) -> str:
        """The name of the file."""
        if self.snapshot:
            return f"snapshot-{self.last:020d}.json"
        return f"versions-{self.first:020d}-{self.last:020d}.json"

    @property
    def words(self) -> str:
        """What it is, for people."""
        if self.snapshot:
            return f"the rows of version {self.last}"
        if self.first == self.last:
            return f"the changes of version {self.last}"
        return f"the changes of versions {self.first} to {self.last}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        versions = (
            {"snapshot": self.last} if self.snapshot else {"first": self.first, "last": self.last}
        )
        return {"table": self.table, **versions, "partitions": list(self.partitions)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ChangeGroup:
        """Read what `to_json` wrote; raises `KeyError`, `TypeError` or `ValueError`."""
        snapshot = "snapshot" in value
        first, last = (value["snapshot" if snapshot else name] for name in ("first", "last"))
        table, partitions = value["table"], value["partitions"]
        texts = [table, *partitions]
        if not all(type(number) is int for number in (first, last)) or not 0 <= first <= last:
            message = f"versions {first!r} to {last!r}"
            raise ValueError(message)
        if type(partitions) is not list or not all(type(text) is str for text in texts):
            message = "a table's id and its columns are texts"
            raise TypeError(message)
        return cls(table, first, last, tuple(partitions), snapshot)

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        return json.dumps(self.to_json()).encode() + b"\n"

    @classmethod
    def decoded(cls, data: bytes) -> ChangeGroup:
        """Read the bytes of a file; raises `ValueError` if it is none of these."""
        try:
            value = json.loads(data)
            return cls.from_json(value)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(str(error)) from error
