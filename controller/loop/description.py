"""What a dataflow is, beside its tables: one immutable record per version.

    _description/00000000000000000001.json      as it was registered
    _description/00000000000000000002.json      as it was changed, and where it went on

The newest one is the truth; the store is an index over it. Putting it is the one step by
which a new version takes over: before it, nothing that the new version needs is visible;
after it, everything else is redo (`controller.loop.change`).

Invariant: `Description.from_json(d.to_json()) == d`; a number is put once, whoever comes
second learns that another controller leads (tests/controller/test_change_crashes.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cbp.engine.files import Exists, Files
from cbp.errors import InvariantError, LogConflictError
from cbp.model.intention import TableChange
from cbp.model.position import Position
from cbp.model.shape import DataflowShape
from controller.store.base import DataflowRecord

__all__ = ["FOLDER", "FORMAT", "Begin", "Description", "Descriptions", "path_of"]

FOLDER = "_description"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a version went on, and what its taking over changes; the redo record.

    Attributes:
        at_ms: Milliseconds since 1970; later than every record before.
        tables: Stage to how its tables change.
        fresh: Stages that lead and are not what they were: their failures are forgotten.
        anew: All stages that are not what they were, or that make their state again.
    """

    at_ms: int
    position: Position
    tables: Mapping[str, tuple[TableChange, ...]]
    fresh: tuple[str, ...]
    anew: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "at_ms": self.at_ms,
            "position": self.position.to_json(),
            "tables": {n: [c.to_json() for c in found] for n, found in self.tables.items()},
            "fresh": list(self.fresh),
            "anew": list(self.anew),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Begin:
        """Read what `to_json` wrote."""
        position = Position.from_json(value["position"])
        return cls(
            value["at_ms"],
            position,
            {n: tuple(map(TableChange.from_json, found)) for n, found in value["tables"].items()},
            tuple(value["fresh"]),
            # Of old ones it is not known: any stage may have begun anew.
            tuple(value.get("anew", position.stages)),
        )


@dataclass(frozen=True, slots=True)
class Description:
    """One version of a dataflow.

    Attributes:
        leaders: The stages that lead others; `None`, of old ones: each leads itself.
        shape: What was compiled; `None` of old ones.
        begin: Of every version but the first.
    """

    version: int
    document: Mapping[str, Any]
    leaders: tuple[str, ...] | None = None
    shape: DataflowShape | None = None
    begin: Begin | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "version": self.version,
            "document": self.document,
        }
        if self.leaders is not None:
            value["leaders"] = list(self.leaders)
        if self.shape is not None:
            value["shape"] = self.shape.to_json()
        if self.begin is not None:
            value["begin"] = self.begin.to_json()
        return value

    @classmethod
    def from_json(cls, value: Any) -> Description:
        """Read what `to_json` wrote.

        Raises:
            InvariantError: If it is no description, or one of another format.
        """
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            message = "a description cannot be read: it is of another format"
            raise InvariantError(message)
        leaders, shape, begin = (value.get(name) for name in ("leaders", "shape", "begin"))
        return cls(
            value["version"],
            value["document"],
            None if leaders is None else tuple(leaders),
            None if shape is None else DataflowShape.from_json(shape),
            None if begin is None else Begin.from_json(begin),
        )

    @property
    def begins(self) -> Mapping[str, int]:
        """Stage to its first epoch under this version, whose records before are published."""
        stages = {} if self.begin is None else self.begin.position.stages
        return {name: stage.epoch for name, stage in stages.items()}


@dataclass(slots=True)
class Descriptions:
    """Reads and puts descriptions; remembers the one of each dataflow that is in use."""

    files: Files
    _kept: dict[str, tuple[tuple[int, datetime], Description]] = field(default_factory=dict)

    def newest(self, folder: str) -> Description | None:
        """Return the newest description of a folder, or `None` when there is none.

        Raises:
            InvariantError: If it cannot be read.
        """
        names = [n for n in self.files.list_names(f"{folder}/{FOLDER}") if n.endswith(".json")]
        return self._read(f"{folder}/{FOLDER}/{names[-1]}") if names else None

    def of(self, record: DataflowRecord) -> Description:
        """Return the description of a record's version.

        Raises:
            InvariantError: If it cannot be read.
        """
        key = record.version, record.created_at
        kept = self._kept.get(record.folder)
        if kept is None or kept[0] != key:
            kept = key, self._read(path_of(record.folder, record.version))
            self._kept[record.folder] = kept
        return kept[1]

    def before(self, record: DataflowRecord) -> Iterator[Description]:
        """Yield the versions before a record's, oldest first; raises as `of`."""
        for version in range(1, record.version):
            yield self._read(path_of(record.folder, version))

    def begins(self, record: DataflowRecord) -> tuple[Mapping[str, int], int]:
        """Return where the stages of a record's version began, and when."""
        if record.version == 1:
            return {}, 0
        found = self.of(record)
        return found.begins, found.begin.at_ms if found.begin else 0

    def anew(self, record: DataflowRecord) -> frozenset[str]:
        """Return the stages that any version but the first let begin anew, or changed."""
        found: set[str] = set()
        for version in range(2, record.version + 1):
            begin = self._read(path_of(record.folder, version)).begin
            found |= set(begin.anew if begin else ())
        return frozenset(found)

    def put(self, folder: str, description: Description, *, staged: str = "") -> None:
        """Make a new version durable: the step by which it takes over.

        Args:
            folder: Of the dataflow.
            description: Of its next version.
            staged: As of `Files.put_if_absent`.

        Raises:
            LogConflictError: If another controller put one of this number, or leads now.
        """
        path = path_of(folder, description.version)
        data = json.dumps(description.to_json(), allow_nan=False, sort_keys=True, indent=1)
        result = self.files.put_if_absent(path, data.encode(), what="description", staged=staged)
        if isinstance(result, Exists) and result.data != data.encode():
            raise LogConflictError(path)

    def _read(self, path: str) -> Description:
        try:
            return Description.from_json(json.loads(self.files.read(path)))
        except (ValueError, KeyError, TypeError) as error:
            message = f"{path} cannot be read: {error}"
            raise InvariantError(message, path=path) from error


def path_of(folder: str, version: int) -> str:
    """Return the path of a version's description."""
    return f"{folder}/{FOLDER}/{version:020d}.json"
