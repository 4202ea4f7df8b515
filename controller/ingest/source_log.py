"""The log of a source: one immutable entry per accepted increment; the truth.

A SQL store is an index over it. Entry n is put once, when the increment's files
are durable; two controllers cannot both put it. Each entry holds the increment,
the claim, the SHA-256 and size of the original, its name and the time.

    _log/<n>.json                     one entry
    _log/sealed/<start>-<end>.jsonl   a thousand old ones, together

Entries stay for good: they are the fingerprints of what came. A sealed file is put once, then
its entries go one by one; whoever reads prefers it, so that a controller that was deposed
long ago and puts a number again which is sealed is not heard.
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

SEALED_ENTRIES = 1_000
"""Of one sealed file: some hundred kilobytes."""

_SEALED = "sealed"


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
        for _, end, name in self._sealed():
            if end > index:
                for line in self._files.read(f"{self._folder}/{_SEALED}/{name}").splitlines():
                    entry = SourceEntry.from_json(json.loads(line))
                    if entry.increment.index >= index:
                        yield entry
                index = end
        while self._files.exists(path := self._path(index)):
            yield SourceEntry.from_json(json.loads(self._files.read(path)))
            index += 1

    def seal(self, below: int) -> int:
        """Put entries before `below` together, `SEALED_ENTRIES` at a time; return how many.

        May be interrupted anywhere, and repeated.
        """
        sealed = self._sealed()
        start = sealed[-1][1] if sealed else 0
        self._remove_before(start)
        first = start
        while below - start >= SEALED_ENTRIES:
            end = start + SEALED_ENTRIES
            lines = [self._files.read(self._path(number)) for number in range(start, end)]
            target = f"{self._folder}/{_SEALED}/{start:020d}-{end:020d}.jsonl"
            self._files.put_if_absent(target, b"\n".join(lines), what="source_log")
            self._remove_before(end)
            start = end
        return start - first

    def _sealed(self) -> list[tuple[int, int, str]]:
        """Return first entry, end and name of the sealed files, ascending."""
        names = self._files.list_names(f"{self._folder}/{_SEALED}")
        parts = (name.removesuffix(".jsonl").split("-") for name in names)
        return [
            (int(start), int(end), name) for (start, end), name in zip(parts, names, strict=True)
        ]

    def _remove_before(self, end: int) -> None:
        for name in self._files.list_names(self._folder):
            if name.endswith(".json") and int(name.removesuffix(".json")) < end:
                self._files.remove(f"{self._folder}/{name}", what="dead_record")

    def _path(self, index: int) -> str:
        return f"{self._folder}/{index:020d}.json"
