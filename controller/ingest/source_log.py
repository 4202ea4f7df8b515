"""The log of a source: one immutable entry per accepted increment; the truth.

A SQL store is an index over it. Entry n is put once, when the increment's files
are durable; two controllers cannot both put it. Each entry holds the increment,
the claim, the SHA-256 and size of the original, its name and the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cbp.engine.base import source_folder
from cbp.engine.files import Exists, Files
from cbp.errors import LogConflictError
from cbp.model.increment import Increment

__all__ = ["SourceEntry", "SourceLog"]


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One accepted arrival.

    Attributes:
        claim: Id of the claim that brought it.
        sequence: Order of the claim within its source.
        path: Original name, as evidence.
        bytes: Size of the original.
        notes: See `controller.ingest.notes`.
    """

    increment: Increment
    claim: str
    sequence: int
    sha256: str
    path: str
    bytes: int
    accepted_at: datetime
    notes: Mapping[str, Any] = field(default_factory=dict)

    def origin(self) -> dict[str, Any]:
        """Return what the store shows of the arrival."""
        return {
            "files": [self.path],
            "claim": self.claim,
            "sha256": self.sha256,
            "bytes": self.bytes,
            **self.notes,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "increment": self.increment.to_json(),
            "claim": self.claim,
            "sequence": self.sequence,
            "sha256": self.sha256,
            "path": self.path,
            "bytes": self.bytes,
            "accepted_ms": int(self.accepted_at.timestamp() * 1000),
            "notes": dict(self.notes),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceEntry:
        """Read what `to_json` wrote."""
        return cls(
            increment=Increment.from_json(value["increment"]),
            claim=value["claim"],
            sequence=value["sequence"],
            sha256=value["sha256"],
            path=value["path"],
            bytes=value["bytes"],
            accepted_at=datetime.fromtimestamp(value["accepted_ms"] / 1000, UTC),
            notes=value["notes"],
        )


class SourceLog:
    """Reads and puts the entries below `<folder>/sources/<source>/_log`."""

    def __init__(self, folder: str, source: str, files: Files) -> None:
        self._folder, self._files = f"{folder}/{source_folder(source)}/_log", files

    def put(self, entry: SourceEntry) -> None:
        """Make an entry durable; succeeds again for the same claim.

        Raises:
            LogConflictError: If another claim is recorded under this index already.
        """
        path = self._path(entry.increment.index)
        data = json.dumps(entry.to_json(), separators=(",", ":")).encode()
        result = self._files.put_if_absent(path, data, what="source_log")
        if isinstance(result, Exists) and json.loads(result.data)["claim"] != entry.claim:
            raise LogConflictError(path)

    def since(self, index: int) -> Iterator[SourceEntry]:
        """Yield the entries from `index` on, in order, up to the first that is absent."""
        while self._files.exists(path := self._path(index)):
            yield SourceEntry.from_json(json.loads(self._files.read(path)))
            index += 1

    def _path(self, index: int) -> str:
        return f"{self._folder}/{index:020d}.json"
